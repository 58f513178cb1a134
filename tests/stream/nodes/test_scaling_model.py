"""The model of a file's time on many GPUs, and the rates that `hw4 doctor --measure` finds for it."""

import re
from dataclasses import replace
from importlib import import_module

import pytest
from helpers import ROOT

from hw4cli.doctor import measure
from hw4cli.problem.workload import Shape
from hw4cli.show.scaling import LONG, load_scaling
from hw4cli.stream.nodes.model import Rates, predicted

LARGE = Shape(8, 1 << 20, 64)
RATES = Rates(33e9, 5.8e9, None, 1.5e14, 55e9, 55e9, 0.13)


def test_long_files_were_measured_as_the_machines_rates_predict_them():
    record = load_scaling(ROOT / "benchmarks/scaling/h200.json")
    long = [step for steps in record.of("strong").values() for step in steps if step.seconds > LONG]
    assert {step.gpus for step in long} >= {1, 2}
    for step in long:
        assert step.predicted == pytest.approx(step.seconds, rel=0.1), f"{step.name} on {step.gpus} GPUs"


def test_what_the_smallest_file_takes_every_file_takes():
    times = [predicted(LARGE, replace(RATES, starting=starting), 2).seconds for starting in (0.0, 0.1)]
    assert times[1] - times[0] == pytest.approx(0.1)


def test_the_second_gpu_is_open_when_the_first_begins_and_others_follow():
    times = [predicted(Shape(128, 1 << 20, 64), replace(RATES, opening=opening), 4).seconds for opening in (0.0, 0.4)]
    assert times[1] - times[0] == pytest.approx((0 + 0 + 1 + 2) / 4 * 0.4)


@pytest.mark.parametrize("shape", [LARGE, Shape(1, 1 << 21, 64), Shape(9600, 128, 64), Shape(2, 128, 32, causal=True)])
def test_more_gpus_and_nodes_are_never_predicted_to_do_more_than_their_sum(shape):
    for gpus, nodes in ((1, 1), (2, 1), (8, 1), (8, 4), (8, 16)):
        found = predicted(shape, RATES, gpus, nodes)
        assert 0 < found.efficiency <= 1.0
        assert found.seconds >= shape.pairs * 4 * shape.d / RATES.flops / (gpus * nodes)


@pytest.mark.parametrize(
    ("changed", "limit"),
    [
        ({"flops": 1e12}, "computing"),
        ({"flops": 1e18}, "writing"),
        ({"flops": 1e18, "cache_write": 1e12, "cache_read": 1e12}, "copying to the GPUs"),
        ({"flops": 1e18, "cache_write": 1e12}, "reading"),
        ({"flops": 1e18, "cache_write": 1e12, "cache_read": 1e12, "to_gpu": 1e12}, "copying from the GPUs"),
    ],
)
def test_the_slowest_stage_is_named(changed, limit):
    assert predicted(LARGE, Rates(**{**vars(RATES), **changed}), 1).limit == limit


def test_keys_and_values_of_one_batch_are_read_by_each_gpu():
    alone, read = Shape(1, 1 << 20, 64), Rates(1e9, 1e12, None, 1e18)
    keys, rows = 2 * 4 * alone.N * alone.d, 1 << 16
    for gpus in (1, 4):
        begins = gpus * (keys + 4 * rows * alone.d)  # what is read until all of them compute
        ends = gpus * 4 * rows * alone.d / 1e12
        expected = (begins + alone.input_bytes + (gpus - 1) * keys) / 1e9 + ends
        found = predicted(alone, read, gpus)
        assert (found.limit, found.seconds) == ("reading", pytest.approx(expected, rel=1e-3))


def test_what_the_last_part_writes_comes_behind_all_else():
    """Of one part, all comes back from the GPU, and then is what is left to do."""
    alone = Shape(1, 128, 64)
    found = predicted(alone, replace(RATES, from_gpu=1e3, starting=0.0), 1)
    assert found.seconds == pytest.approx(2 * alone.output_bytes / 1e3, rel=1e-3)


def test_a_file_that_is_not_cached_is_read_at_the_disks_rate():
    slow = Rates(**{**vars(RATES), "disk_read": 1e8})
    assert predicted(LARGE, slow, 1, cached=False).limit == "reading"
    assert predicted(LARGE, slow, 1).limit == "computing"


def test_a_machines_rates_are_measured_and_no_file_stays(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "FILE_BYTES", 4 << 20)
    monkeypatch.setattr(measure, "CPU_SAMPLE", Shape(1, 256, 32))
    command = import_module("hw4cli.cli.doctor")
    found = command.measurements(tmp_path)
    rates = found["measured"]
    documented = re.findall(r"`(\w+)`", (ROOT / "docs/doctor.md").read_text().partition("two more: ")[2])
    fields = {*rates, "shape", "rows", *vars(predicted(LARGE, RATES, 1))}
    assert fields == {*documented} - {"measured", "predicted"}
    assert min(rates["cache_read"], rates["cache_write"], rates["flops"]) > 0
    assert found["predicted"]["shape"] == (8, 1 << 20, 64)
    assert (rates["to_gpu"] is None) == (found["predicted"]["rows"] == [])
    assert list(tmp_path.iterdir()) == []
    command.show_measurements(found)
    shown = capsys.readouterr().out
    assert "\nMeasured\n  read from the page cache" in shown
    assert "  computed by " in shown


def test_rates_are_those_of_the_disk_where_a_folder_will_be(tmp_path, monkeypatch):
    asked, command = [], import_module("hw4cli.cli.doctor")
    monkeypatch.setattr(measure, "measured", lambda folder: asked.append(folder) or (RATES, "nobody"))
    command.measurements(tmp_path / "not" / "yet")
    command.measurements(tmp_path)
    assert asked == [tmp_path, tmp_path]
