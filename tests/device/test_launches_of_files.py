"""Launches of parts of files: by cupy, or where they overlap by CUDA's driver; both note what comes."""

import ctypes
from types import SimpleNamespace

import pytest

from hw4cli.device import launcher
from hw4cli.errors import MachineError
from hw4cli.plans.plan import AMD_DEVICES, DEVICES, Launch

STEP = Launch("flash_combine", 40, 256, 1024, early=True)
PASSED = bytes(range(8))


class Function:
    """One of cupy's, which notes its launches."""

    kernel = SimpleNamespace(ptr=7)

    def __init__(self):
        self.calls = []

    def __call__(self, grid, block, params, shared_mem):
        self.calls.append((grid, block, params[0].tobytes(), shared_mem))


class Driver:
    """Notes how often it launches, with what, and answers with a status."""

    def __init__(self, status=0):
        self.status, self.launches = status, []

    def cuLaunchKernelEx(self, config, kernel, params, extra):  # noqa: N802
        at = ctypes.cast(config, ctypes.POINTER(launcher.Config)).contents
        passed = params._obj._objects
        attribute = at.attributes[0]
        self.launches.append((kernel.value, [*at.sizes], at.stream, at.count, attribute.id, attribute.value, passed))
        return self.status


def enqueue(monkeypatch, props, step=STEP, status=0):
    function, asked = Function(), Driver(status)
    monkeypatch.setattr(launcher, "driver", lambda: asked)
    launcher.enqueue(function, step, PASSED, SimpleNamespace(ptr=99), props)
    return function.calls, asked.launches


def test_a_launch_overlaps_the_one_in_front_of_it_where_the_gpu_can(monkeypatch):
    calls, launches = enqueue(monkeypatch, DEVICES[90])
    assert not calls
    assert launches == [(7, [40, 1, 1, 256, 1, 1, 1024], 99, 1, launcher.PROGRAMMATIC, 1, PASSED)]


@pytest.mark.parametrize("props", [DEVICES[61], DEVICES[80], AMD_DEVICES["gfx90a"]], ids=["6.1", "8.0", "gfx90a"])
def test_elsewhere_launches_follow_each_other(monkeypatch, props):
    assert enqueue(monkeypatch, props) == ([((40,), (256,), PASSED, 1024)], [])


def test_a_launch_that_does_not_wait_itself_never_overlaps(monkeypatch):
    assert enqueue(monkeypatch, DEVICES[90], STEP._replace(early=False)) == ([((40,), (256,), PASSED, 1024)], [])


def test_what_the_driver_refuses_is_told_by_the_kernels_name(monkeypatch):
    with pytest.raises(MachineError, match=r"the driver refuses to launch flash_combine \(error 701\)"):
        enqueue(monkeypatch, DEVICES[90], status=701)
