"""The tilings of arrays' kernels that `hw4 tune` keeps, and that `attention` goes by."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from hw4cli.arrays.ongpu import tuned
from hw4cli.device.tuning import store
from hw4cli.device.tuning.store import Finding, Machine, Tilings, arrays, found, keep, keep_tiling, path_of
from hw4cli.plans.half import Tiling, tiling
from hw4cli.plans.kernels16 import ENTRIES16, plan16
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.scores import Score
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Shape, Span, Workload

HERE = Machine("Test GPU", 13000, "nvrtc 13")
WORK = Workload(FLOAT16, 1, 32, 32, 8192, 8192, 128)
OTHER = next(one for one in ENTRIES16["half"].space if one.groups == 2 and not one.ones)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def planner(machine=HERE):
    code = SimpleNamespace(driver=machine.driver, compiler_id=machine.compiler)
    return tuned(SimpleNamespace(name=machine.gpu, code=code, props=DEVICES[90]))


def test_attention_takes_the_tiling_that_was_kept_for_the_workload_and_no_other_does():
    own = tiling(WORK, DEVICES[90])
    assert planner()(WORK, DEVICES[90]) == plan16(WORK, DEVICES[90])
    keep_tiling(HERE, WORK, "half", OTHER)
    assert planner()(WORK, DEVICES[90]) == plan16(WORK, DEVICES[90], "half", OTHER) != plan16(WORK, DEVICES[90])
    longer = Workload(FLOAT16, 1, 32, 32, 8193, 8192, 128)
    assert planner()(longer, DEVICES[90]) == plan16(longer, DEVICES[90])
    assert planner()(WORK, DEVICES[90], "half") == plan16(WORK, DEVICES[90], "half"), "a kernel that is named: its own"
    assert planner()(WORK, DEVICES[90], "half", own) == plan16(WORK, DEVICES[90], "half", own)


@pytest.mark.parametrize(
    "changed",
    [
        {"dv": 32},  # beside which there is no column of ones, and the kernel would not compile
        {"score": Score("30.0 * tanh(s / 30.0)")},
        {"sequences": (Span(0, 0, 8192, 0, 8192), Span(0, 0, 1, 0, 9))},
        {"scale": 0.5, "dtype": BFLOAT16},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_workloads_of_other_columns_scores_lengths_or_types_have_their_own_tilings(changed):
    plain = replace(WORK, d=64)
    keep_tiling(HERE, plain, "half", Tiling(2, 128, 4, ones=True))
    work = replace(plain, **changed)
    assert planner()(work, DEVICES[90]) == plan16(work, DEVICES[90])


@pytest.mark.parametrize("changed", [{"driver": 12000}, {"compiler": "nvrtc 12"}, {"gpu": "Other GPU"}])
def test_another_driver_compiler_or_gpu_finds_nothing(changed):
    keep_tiling(HERE, WORK, "half", OTHER)
    machine = Machine(**{**HERE.record(), **changed})
    assert planner(machine)(WORK, DEVICES[90]) == plan16(WORK, DEVICES[90])


def test_the_file_is_read_when_a_gpu_is_opened_and_by_no_plan(monkeypatch):
    keep_tiling(HERE, WORK, "half", OTHER)
    plan = planner()
    monkeypatch.setattr(store, "read_json", lambda path: pytest.fail("reads a file for a plan"))
    for _ in range(2):
        assert plan(WORK, DEVICES[90]) == plan16(WORK, DEVICES[90], "half", OTHER)


def test_tilings_and_what_was_found_of_files_are_kept_beside_each_other():
    keep_tiling(HERE, WORK, "half", OTHER)
    keep(HERE, Shape(4, 512, 64), Finding(("flash", "split")))
    keep_tiling(HERE, Workload(FLOAT16, 1, 1, 1, 300, 300, 64), "half", Tiling(3, 128, 2))
    assert found(HERE, Shape(4, 512, 64)).kernels == ("flash", "split")
    assert Tilings(HERE).of(WORK, "half", tiling(WORK, DEVICES[90])) == OTHER


@pytest.mark.parametrize(
    "wrong",
    [
        {"groups": "3"},
        {"groups": -1},
        {"ones": 1},
        {"more": 1},
        {"groups": 3, "keys": 128, "stages": 40},
        {"groups": 3, "keys": 65},
    ],
)
def test_what_is_no_tiling_in_the_file_counts_for_nothing(wrong):
    keep_tiling(HERE, WORK, "half", OTHER)
    document = json.loads(path_of(HERE.gpu).read_text())
    document["arrays"][arrays(WORK)]["tiling"].update(wrong)
    path_of(HERE.gpu).write_text(json.dumps(document))
    assert planner()(WORK, DEVICES[90]) == plan16(WORK, DEVICES[90])
