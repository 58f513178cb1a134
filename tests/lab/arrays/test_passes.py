"""Gradients measured on a GPU that is made up: checked against float64 first, and counted by the field's convention."""

import json
import subprocess
import sys
from dataclasses import asdict
from types import SimpleNamespace

import fakecupy
import numpy as np
import pytest
from definitions import definition
from fakegpu import FakeTimer
from helpers import csv_rows, fails, hw4_env
from slow import quick_of_each
from test_measure import CASE, FAKE, NO_GPU

from benchmarks.pages import gradients as tables
from hw4cli.lab.arrays import expected
from hw4cli.lab.arrays.inputs import from_words, on_device, to_words, with_gradients
from hw4cli.lab.arrays.named import workload
from hw4cli.lab.cases import ArrayCase
from hw4cli.lab.changes import compare
from hw4cli.lab.contender import Contender, measure
from hw4cli.lab.kernels import GradientKernel, computes_gradients
from hw4cli.lab.tables import BACKWARD, BOTH, FORWARD
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_gradients


@pytest.fixture
def timer():
    return FakeTimer(SimpleNamespace(cupy=fakecupy.cupy, wait=lambda: None, last="half", tile=None, name="no GPU"))


def numbers(case, *arrays):
    return [from_words(np.array(x), case.work.dtype) for x in arrays]


class GradientsOf(Contender):
    """Computes the oracle's gradients, in the arrays' type; then `spoil` changes them."""

    def __init__(self, name, spoil=lambda dq, dk, dv: None, ours=True, repeats=True):
        super().__init__(name, ours, repeats)
        self.spoil = spoil

    def prepare(self, data):
        case, arrays = data.case, data.gradients
        work, both = case.work, case.direction == BOTH
        q, k, v, do = numbers(case, arrays.q, arrays.k, arrays.v, arrays.do)
        exact = exact_gradients(do, q, k, v, causal=work.causal, offset=work.offset, scale=case.work.scale)
        o, _ = definition(q, k, v, case.work.scale, work.offset if work.causal else None)
        self.made = [arrays.o, arrays.dq, arrays.dk, arrays.dv][not both :]
        self.words = [to_words(x.astype(np.float32), work.dtype) for x in (o, *exact)][not both :]
        return {"registers": 168}

    def run(self):
        for x, words in zip(self.made, self.words, strict=True):
            x[...] = words
        self.spoil(*self.made[-3:])

    def answer(self):
        return tuple(self.made)


@pytest.mark.parametrize(
    "text", [CASE, f"{CASE} dv=8 layout=BNHD", "B=2 H=2 N=40 d=8 dv=24 dtype=fp32", "H=2 N=300 d=8 causal"]
)
@pytest.mark.parametrize(("direction", "factor"), [(BACKWARD, 2.5), (BOTH, 3.5)])
def test_right_gradients_are_timed_and_their_operations_counted(timer, text, direction, factor):
    case = workload(text)
    (row,) = measure(timer, [GradientsOf("backward")], ArrayCase(case, direction))
    assert (row.status, row.reason, row.repeats, row.direction) == ("ok", "", True, direction)
    assert row.tflops == pytest.approx(factor * case.work.flops / row.median / 1e9)
    assert 0 < row.relative_error < 1e-3 and row.checked_rows > 0


@pytest.mark.parametrize("text", [CASE, "B=2 H=3 N=20 d=8 dtype=fp32", "H=2 N=500 Nk=700 d=8 dv=4 causal scale=0.5"])
@pytest.mark.parametrize("by", [np, fakecupy.cupy], ids=["on the CPU", "on the GPU"])
def test_some_rows_are_looked_at_on_the_cpu_and_all_on_the_gpu(text, by):
    case, work = workload(text), workload(text).work
    arrays = with_gradients(case, on_device(case, fakecupy.cupy), fakecupy.cupy)
    q, k, v, do = numbers(case, arrays.q, arrays.k, arrays.v, arrays.do)
    dq, dk, dv = exact_gradients(do, q, k, v, causal=work.causal, offset=work.offset, scale=case.work.scale)
    group = work.heads // work.kv_heads
    found = expected.expected_gradients(case, arrays, by)
    assert {(0, 0), (work.batch - 1, work.kv_heads - 1)} <= {(one.batch, one.kv_head) for one in found}
    for one in found:
        heads = slice(one.kv_head * group, (one.kv_head + 1) * group)
        assert (len(one.rows) == work.Nq) == (by is not np or work.Nq <= expected.ALL_ROWS)
        np.testing.assert_allclose(one.dq, dq[one.batch, heads][:, one.rows], atol=1e-12)
        np.testing.assert_allclose(one.dk, dk[one.batch, one.kv_head][one.keys], atol=1e-12)
        np.testing.assert_allclose(one.dv, dv[one.batch, one.kv_head][one.keys], atol=1e-12)


@pytest.mark.parametrize(("cc", "kernel", "dv"), [(90, "backward_wgmma", 128), (80, "backward_mma", 0)])
def test_v_of_fewer_columns_is_measured_as_it_lies_or_widened_as_calls_widen_it(cc, kernel, dv):
    gpu = SimpleNamespace(props=DEVICES[cc], cupy=fakecupy.cupy)
    case = ArrayCase(workload("H=2 N=100 d=192 dv=128 dtype=bf16"), BACKWARD)
    assert case.work.dv == 128
    one = GradientKernel(FakeTimer(gpu), case)
    assert (one.name, one.planned().macros.get("DV", 0)) == (kernel, dv)
    assert computes_gradients("backward_once", workload("H=2 N=9 d=64 dv=32").work, DEVICES[90])


def test_the_gradient_of_o_is_not_q_and_every_gradient_begins_as_nan():
    case = workload(CASE)
    arrays = with_gradients(case, on_device(case, fakecupy.cupy), fakecupy.cupy)
    assert arrays.do.shape == arrays.q.shape and (arrays.do != arrays.q).any()
    for x, like in ((arrays.dq, arrays.q), (arrays.dk, arrays.k), (arrays.dv, arrays.v)):
        assert x.shape == like.shape and np.isnan(numbers(case, x)[0]).all()


def leaves_out_the_last_key(dq, dk, dv):
    dk[:, :, -1] = 0


def has_a_nan(dq, dk, dv):
    dv[0, 1, 7, 1] = 0x7E00


def changes_each_time():
    count = iter(range(1000))

    def spoil(dq, dk, dv):
        dq[0, 0, 0, 0] += next(count) % 2

    return spoil


def test_wrong_gradients_are_not_timed_and_get_their_reason(timer):
    wrong = {
        "a key": (leaves_out_the_last_key, "of a gradient's norm in"),
        "NaN": (has_a_nan, "1 elements are NaN or Inf"),
        "other bits": (changes_each_time(), "a second run gave other bits"),
    }
    subjects = [GradientsOf(name, spoil=spoil) for name, (spoil, _) in wrong.items()]
    theirs = GradientsOf("cuDNN", spoil=changes_each_time(), ours=False)
    rows = measure(timer, [*subjects, theirs], ArrayCase(workload(CASE), BACKWARD))
    for row, (_, reason) in zip(rows, wrong.values(), strict=False):
        assert row.status == "wrong" and reason in row.reason and row.direction == BACKWARD
    assert (rows[3].status, rows[3].repeats) == ("ok", False)


def test_what_is_known_to_have_other_bits_each_time_is_timed_and_the_row_says_so(timer):
    ours = GradientsOf("backward_atomic", changes_each_time(), repeats=False)
    (row,) = measure(timer, [ours], ArrayCase(workload(CASE), BACKWARD))
    assert (row.status, row.repeats, row.ours) == ("ok", False, True)


@quick_of_each(1)
@pytest.mark.parametrize("which", ["bwd", "both"])
def test_the_command_records_the_pass_and_says_how_operations_are_counted(which, tmp_path):
    out = tmp_path / "record.json"
    args = [
        "bench",
        "backward",
        "--pass",
        which,
        CASE,
        "--peers",
        "cudnn",
        "-o",
        out,
        "-o",
        tmp_path / "record.csv",
    ]
    command = [sys.executable, "-c", FAKE, *args]
    result = subprocess.run(command, capture_output=True, text=True, env=hw4_env(COLUMNS="200"))
    assert result.returncode == 0, result.stderr
    record = json.loads(out.read_text())
    name = {"bwd": "backward", "both": "both"}[which]
    assert [(row["kernel"], row["status"], row["pass"]) for row in record["rows"]] == [
        ("backward", "ok", name),
        ("cuDNN", "failed", name),
    ]
    assert record["method"]["flops"].startswith({"bwd": "2.5", "both": "3.5"}[which])
    assert "of the backward pass 2.5 times as many operations are counted" in " ".join(result.stdout.split())
    assert result.stdout.splitlines()[0].split()[:4] == ["kernel", "workload", "pass", "(B,"]
    assert csv_rows(tmp_path / "record.csv")[0]["pass"] == name


def test_gradients_are_compared_with_gradients_alone(timer):
    rows = measure(timer, [GradientsOf("ours")], ArrayCase(workload(CASE), BACKWARD))
    then = {**asdict(rows[0]), "pass": BACKWARD}
    del then["direction"]
    assert [change.kernel for change in compare(rows, {"rows": [then]})] == ["ours"]
    assert compare(rows, {"rows": [{**then, "pass": FORWARD}]}) == []


def test_the_pages_table_has_times_and_errors_of_ours_and_of_peers(timer):
    subjects = [GradientsOf("backward"), GradientsOf("FA2", spoil=changes_each_time(), ours=False)]
    rows = [asdict(row) for row in measure(timer, subjects, ArrayCase(workload(CASE), BACKWARD))]
    shown = tables.gradients({"rows": rows}, {"rows": [{**row, "median": 3 * row["median"]} for row in rows]})
    (line,) = shown.lines
    header = ["workload", "(B, H, N, d)", "kernel", "backward ms", "TFLOP/s", "error", "FA2 ms", "error"]
    assert shown.header == [*header, "both passes ms", "FA2 ms"]
    assert line[1:3] == ["(1, 4/2, 33/40, 16) fp16 causal", "backward"]
    assert not line[5].endswith("*") and line[7].endswith("*")
    ours, theirs = (next(row["median"] for row in rows if row["ours"] == own) for own in (True, False))
    assert line[6] == f"{theirs:.4g} ({theirs / ours:.2f})"
    assert line[8:] == [f"{3 * ours:.4g}", f"{3 * theirs:.4g} ({theirs / ours:.2f})"]
    assert tables.gradients({"rows": rows}, {"rows": []}).lines[0][8:] == ["-", "-"]


def as_dictionaries(table):
    return [dict(zip(table.header, line, strict=True)) for line in table.lines]


def test_the_pages_table_of_a_sweep_has_times_and_how_many_times_as_fast_ours_are_as_the_fastest_peer():
    facts = {"status": "ok", "dtype": "bfloat16", "heads": 4, "kv_heads": 4, "shape": [64, 1024, 128], "Nk": 1024}
    times = [("backward_once", 1.0), ("cuDNN", 1.5), ("FA2", 2.0)]
    rows = [
        {**facts, "case": str(causal), "kernel": kernel, "median": median, "ours": median == 1, "causal": causal}
        for causal in (False, True)
        for kernel, median in times
    ]
    rows[-2]["status"] = rows[-1]["status"] = "failed"
    peers = {"cuDNN, ms": "1.5", "FA2, ms": "2", "efficient, ms": "-"}
    full = {"N": "1024", "d": "128", "type": "bfloat16", "mask": "-", "ours, ms": "1", **peers, "× the fastest": "1.50"}
    none = dict.fromkeys((*peers, "× the fastest"), "-")
    assert as_dictionaries(tables.sweep({"rows": rows})) == [full, {**full, "mask": "causal", **none}]


def test_the_pages_table_of_designs_has_products_bytes_times_and_what_repeats(timer):
    names = ["backward_once", "backward_atomic", "backward_wgmma", "backward_mma"]
    subjects = [GradientsOf(name) for name in names]
    subjects[1] = GradientsOf(names[1], changes_each_time(), repeats=False)
    subjects.append(GradientsOf("cuDNN", spoil=changes_each_time(), ours=False))
    case = workload("B=2 H=2 N=256 d=64")
    rows = [asdict(row) for row in measure(timer, subjects, ArrayCase(case, BACKWARD))]
    lines = as_dictionaries(tables.designs({"rows": rows}))
    assert [line["design"] for line in lines] == [*names, "*cuDNN*"]
    assert [line["products"] for line in lines] == ["5", "5", "7", "7", "5"]
    assert [line["bits again"] for line in lines] == ["the same", "other ones", "the same", "the same", "other ones"]
    assert all(float(line["ms"]) > 0 for line in lines) and lines[-1]["GB streamed"] == "-"


def test_bytes_of_designs_are_those_of_rows_that_pass_by():
    full, causal = (workload(f"B=2 H=3 N=512 d=64 {mask}").work for mask in ("", "causal"))
    rows = 6 * 512 * 4  # each row of each head passes four blocks of 128 keys
    assert tables.moved(full, "backward_once") == (rows * (256 + 8), rows * 64 * 4)
    rows = 6 * 128 * (1 + 2 + 3 + 4)
    assert tables.moved(causal, "backward_atomic") == (rows * (256 + 8), rows * 64 * 4)
    assert tables.moved(full, "backward_wgmma")[1] == 0
    assert tables.moved(full, "backward_wgmma")[0] == pytest.approx(6 * 512 * 512 / 192 * (256 + 256 + 8))


def test_the_pages_table_of_errors_has_a_line_for_each_kind_of_numbers():
    machine = {"gpu": "G", "driver": "1.2", "torch": "2.11", "cudnn": "9.19.0"}
    row = {"dtype": "fp16", "numbers": "normal", "by": "hw4", "errors": [1e-4, 2e-4, 3e-4], "repeats": True}
    theirs = {**row, "by": "cuDNN", "errors": [4e-4, 5e-4, 6e-4], "repeats": False}
    rows = [row, theirs, {**row, "dtype": "fp32"}]
    record = {"machine": machine, "shape": [1, 4, 4096, 64], "commit": "abc", "date": "2026-01-01", "rows": rows}
    table = tables.errors(record)
    assert as_dictionaries(table) == [
        {
            "type": "fp16",
            "numbers": "normal",
            "hw4": "1.0e-04, 2.0e-04, 3.0e-04",
            "cuDNN": "4.0e-04, 5.0e-04, 6.0e-04*",
        },
        {"type": "fp32", "numbers": "normal", "hw4": "1.0e-04, 2.0e-04, 3.0e-04", "cuDNN": "-"},
    ]
    assert "(1, 4, 4096, 64) causal; G, driver 1.2, torch 2.11, cuDNN 9.19.0; commit abc, 2026-01-01." in table.below[0]


def test_a_kernel_of_gradients_computes_what_the_gpu_and_the_element_type_allow():
    work = workload("N=64 d=64 dtype=bf16").work
    assert [computes_gradients("backward_mma", work, DEVICES[cc]) for cc in (75, 80, 90)] == [False, True, True]
    assert all(computes_gradients("backward", work, DEVICES[cc]) for cc in (61, 90))


def test_bad_requests_are_one_sentence(hw4):
    for args, words in (
        (
            ["half", "N=8 d=8", "--pass", "bwd"],
            "half is not a kernel for the backward pass of arrays: give",
        ),
        (["backward", "N=8 d=8"], "backward is not a kernel for the forward pass of arrays: give half"),
        (["backward", "t01"], "backward computes gradients of arrays: name a workload, with --pass bwd"),
        (["flash", "t01", "--pass", "both"], "--pass goes only with a workload"),
        (["N=8 d=8", "--pass", "back"], "'back' is not one of 'fwd', 'bwd', 'both'"),
    ):
        fails(hw4("bench", *args, env=NO_GPU), 2, words)
    fails(hw4("bench", "--pass", "bwd", "N=8 d=8", env=NO_GPU), 3, "no GPU")
