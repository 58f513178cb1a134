"""fp16qk, whose Q and K are rounded to fp16: its bound holds, and says that the kernel may not answer."""

import numpy as np
import pytest
from emulation import adversaries
from test_bounds import exact, largest

from hw4cli.plans.bounds import SAFE, bound, suffices, uniform
from hw4cli.plans.dispatch import AUTO, candidates, on_cpu, ranking
from hw4cli.plans.plan import AMD_DEVICES, DEVICES

NAME = "fp16qk"
ALL_DEVICES = [*DEVICES.values(), *AMD_DEVICES.values()]


def rounded(x):
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


@pytest.mark.parametrize(("N", "d"), [(128, 64), (512, 32), (300, 128)])
def test_the_error_is_never_more_than_the_bound(N, d):
    worst = 0.0
    for name, q, k, v in adversaries(N, d):
        limit = bound(NAME, largest(q, k, v), d, N)
        if limit < np.inf:
            share = np.abs(exact(rounded(q), rounded(k), v) - exact(q, k, v)).max() / limit
            assert share <= 1, name
            worst = max(worst, share)
    assert worst > 0.02, "a bound that nothing comes near says little"


def test_what_is_beyond_fp16_has_no_bound():
    assert bound(NAME, (7e4, 1, 1), 64, 128) == bound(NAME, (1, 7e4, 1), 64, 128) == np.inf
    assert bound(NAME, (1, 1, 7e4), 64, 128) < np.inf


@pytest.mark.parametrize("d", [4, 32, 64, 128])
def test_it_may_not_answer_the_assignments_data_however_it_is_asked_for(d):
    for props in ALL_DEVICES:
        assert bound(NAME, uniform(d), d, 128, props) > SAFE
        assert not suffices(NAME, uniform(d), d, 32768, props, SAFE)
        kernels, _ = candidates(NAME, props, "", d, 1024)
        assert kernels[0] == NAME
        assert len(kernels) > 2, "only float64 is left to answer"


def test_auto_never_prefers_it():
    for props in ALL_DEVICES:
        assert NAME not in ranking(props, "", 64, 1024)[0]
        assert NAME not in candidates(AUTO, props, "", 64, 1024)[0]
    choice = on_cpu(64, 4096, None)
    choice.kernels = (NAME, *choice.kernels)  # as if somebody had measured it to be the fastest
    assert choice.first != NAME
    assert choice.kernel_for(uniform(64)) != NAME
