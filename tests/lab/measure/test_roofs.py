"""`hw4 bench roofs` and what goes by its record; the kernels compile for every GPU."""

import json
import math
import os
import re
from types import SimpleNamespace

import pytest
from helpers import ROOT, csv_rows
from records import as_written
from slow import quick_of_each, slow

from hw4cli.device.compilerlog import VERBOSE, entry_points, usage
from hw4cli.device.kernelcheck import compiler_for
from hw4cli.device.machinecode import OPTIONS
from hw4cli.errors import InputError
from hw4cli.lab.measure import roofkernels
from hw4cli.lab.measure.gpus import model_for
from hw4cli.lab.measure.roofkernels import KERNELS, SOURCE, options
from hw4cli.lab.measure.roofs import checked, keep, kept, path_of, rates_of, unit_of
from hw4cli.plans.plan import DEVICES
from hw4cli.resources import kernel_source

RECORD = ROOT / "benchmarks/roofs/h100.json"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@quick_of_each(1)
@pytest.mark.parametrize("cc", DEVICES)
def test_every_kernel_of_a_gpu_compiles_for_it_and_spills_nothing(cc):
    props = DEVICES[cc]
    flags = (*OPTIONS, *options(props), VERBOSE)
    code, log = compiler_for(props).build(kernel_source(SOURCE), "roofs", flags, cc)
    wanted = {kernel.symbol for kernel in KERNELS if kernel.runs_on(props)}
    assert wanted <= {*entry_points(code)}
    assert sum(used.spilled for used in usage(log).values()) == 0


class FakeTimer:
    """A GPU on which a launch takes a nanosecond for each round and thread."""

    def __init__(self, props):
        self.launches = []
        buffer = SimpleNamespace(data=SimpleNamespace(memset=lambda *_: None), nbytes=0)
        self.gpu = SimpleNamespace(props=props, empty=lambda shape: buffer)

    def copy_gb_per_s(self):
        return 1000.0

    def milliseconds(self, work, cold):
        self.launches.clear()
        work()
        (grid, threads, rounds) = self.launches[0]
        return grid * threads * rounds * 1e-6


@pytest.mark.parametrize("cc", [61, 80, 90])
def test_a_rate_is_what_all_threads_do_by_the_time_of_the_launch(monkeypatch, cc):
    timer = FakeTimer(DEVICES[cc])

    def functions(gpu, kernels):
        def launch(grid, block, arguments, shared_mem):
            timer.launches.append((grid[0], block[0], int(arguments[1])))

        return {kernel.symbol: launch for kernel in kernels}

    monkeypatch.setattr(roofkernels, "_functions", functions)
    rates = roofkernels.measured_rates(timer)
    assert rates["DRAM"] == 1000
    assert rates["FFMA"] == pytest.approx(2 * 8 * 16 * 1e9 / 1e12)  # of a thread and round, in a nanosecond
    assert rates["shared memory"] == pytest.approx(16 * 16)
    assert ("tensor cores" in rates) == (cc >= 80)
    for kind in ("fp16", "bf16", "tf32", "int8"):
        assert (f"mma.sync {kind}" in rates) == (cc >= 80)
        assert (f"wgmma {kind}" in rates) == (cc == 90)
    assert [unit_of(name) for name in ("DRAM", "wgmma fp16", "mma.sync int8")] == ["GB/s", "TFLOP/s", "TOP/s"]


def test_the_record_of_an_h100_is_near_its_data_sheet():
    record = checked(json.loads(RECORD.read_text()), "it")
    sheet = model_for(record["machine"]["gpu"], 90).rates
    for name in ("DRAM", "L2", "shared memory", "FFMA", "exp2", "tensor cores"):
        assert 0.85 < record["rates"][name] / sheet[name] < 1.05, name


def test_integers_are_twice_as_fast_as_the_model_of_split8_has_it():
    record = json.loads((ROOT / "benchmarks/roofs/h200.json").read_text())
    for path in ("mma.sync", "wgmma"):
        assert record["rates"][f"{path} int8"] / record["rates"][f"{path} fp16"] == pytest.approx(2, rel=0.05)
    assert {*record["rates"]} >= {kernel.name for kernel in KERNELS}, "each path was measured"


def test_a_kept_record_is_found_again_by_its_gpus_name_and_a_damaged_one_is_none():
    record = json.loads(RECORD.read_text())
    gpu = record["machine"]["gpu"]
    assert kept(gpu) is None
    assert rates_of(model_for(gpu, 90), gpu)[1] == "data sheet"
    assert keep(record) == path_of(gpu)
    rates, source = rates_of(model_for(gpu, 90), gpu)
    assert (rates["FFMA"], source) == (record["rates"]["FFMA"], "measured")
    for rate in (-1, True, math.inf, math.nan, 1e-320, 10**400, "1"):
        path_of(gpu).write_text(json.dumps({**record, "rates": {"FFMA": rate}}))
        assert kept(gpu) is None, rate
    path_of(gpu).write_text(json.dumps({**record, "rates": {}}))
    assert kept(gpu) is None
    with pytest.raises(InputError, match="is not a record of roofs"):
        checked([], "it")


def keep_called(gpu, rate):
    return keep({"kind": "roofs", "machine": {"gpu": gpu}, "rates": {"FFMA": rate}})


def test_a_models_name_finds_the_newest_record_of_gpus_that_are_called_so():
    for age, (gpu, rate) in enumerate([("NVIDIA H100 80GB HBM3", 1.0), ("NVIDIA H100 NVL", 2.0), ("NVIDIA H200", 3.0)]):
        os.utime(keep_called(gpu, rate), (age, age))

    def found(name):
        record = kept(name)
        return record and record["rates"]["FFMA"]

    assert [found(name) for name in ("H100", "h100", "9.0", "H200", "T4", "T1000")] == [2.0, 2.0, 2.0, 3.0, None, None]
    assert found("NVIDIA H100 80GB HBM3") == 1.0
    keep_called("H100", 4.0)
    assert (found("H100"), found("NVIDIA H100 PCIe"), found("NVIDIA H100 64GB")) == (4.0, None, None)


def test_a_part_of_a_gpu_and_a_damaged_record_stand_for_no_model():
    keep_called("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 1.0)
    path_of("NVIDIA H100 NVL").write_text("{")
    assert kept("H100") is None


@slow
def test_the_roofs_of_a_gpu_are_those_of_its_model_in_explain_too(hw4):
    keep(json.loads(RECORD.read_text()))
    for name in ("H100", "9.0", "NVIDIA H100 80GB HBM3"):
        assert hw4("explain", "roofs", "--gpu", name).stdout.startswith("NVIDIA H100 80GB HBM3, measured\n"), name
        assert "measured" in hw4("explain", "flash", "t28", "--gpu", name).stdout, name
    assert "data sheet" in hw4("explain", "flash", "t28", "--gpu", "H100 PCIe").stdout


def test_what_is_known_of_a_gpu_is_shown_without_one(hw4, tmp_path):
    result = hw4("explain", "roofs", "--gpu", "T4")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("T4, data sheet\n")
    assert hw4("explain", "roofs", "--gpu", "T4", "-o", tmp_path / "a.csv").returncode == 0
    rows = csv_rows(tmp_path / "a.csv")
    assert {row["roof"]: (row["rate"], row["unit"]) for row in rows}["DRAM"] == ("320", "GB/s")
    assert as_written(hw4("explain", "roofs", "--gpu", "7.5", "--json").stdout)["rates"]["tensor cores"] == 65


@pytest.mark.parametrize("capability", [None, 7.5, "x.y", "", "9" * 9])
def test_a_record_with_an_odd_compute_capability_is_shown(hw4, capability):
    machine = {"gpu": "T4"} if capability is None else {"gpu": "T4", "compute_capability": capability}
    keep({"kind": "roofs", "machine": machine, "rates": {"FFMA": 8.0}})
    result = hw4("explain", "roofs", "--gpu", "T4")
    assert (result.returncode, result.stderr) == (0, "")
    assert re.search(r"^FFMA +8 +TFLOP/s +98%$", result.stdout, re.MULTILINE)


def test_without_a_gpu_nothing_is_measured_and_the_reason_is_said(hw4, tmp_path):
    result = hw4("bench", "roofs")
    assert result.returncode == 3
    assert result.stderr.startswith("hw4: no GPU can be used")
    result = hw4("bench", "roofs", "-o", tmp_path / "a")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)


def test_an_empty_name_is_no_gpu(hw4):
    result = hw4("explain", "roofs", "--gpu", "")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "there is no GPU '' in the list" in result.stderr
