"""The runs by which `hw4 check` finds mistakes in kernels of arrays."""

import pytest

from hw4cli.lab.arrays import check
from hw4cli.plans.backwardcut import Cut
from hw4cli.plans.half import Tiling
from hw4cli.problem.workload import FLOAT16, Workload


class RanError(Exception):
    """Instead of a run, its arguments."""


@pytest.mark.parametrize(
    ("kernel", "tiling", "run", "name"),
    [
        ("half", Tiling(2, 64, 4), "run_half", "tiling"),
        ("backward_once", Cut(1, rounded=True), "run_backward", "tile"),
    ],
)
def test_a_trial_runs_the_tiling_that_it_names(kernel, tiling, run, name, monkeypatch):
    def asked(*given, **how):
        raise RanError(how[name])

    monkeypatch.setattr(check, run, asked)
    with pytest.raises(RanError) as ran:
        list(check.check_trial(check.Trial(kernel, 90, Workload.square(FLOAT16, 1, 1, 64, 64), tiling=tiling)))
    assert ran.value.args == (tiling,)
