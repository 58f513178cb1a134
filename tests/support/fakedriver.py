"""CUDA's driver that there is not: it notes launches, or has them executed, or captures them, and refuses what it is
asked to refuse."""

import ctypes
import threading
import zlib
from types import SimpleNamespace

from hw4cli.arrays import ongpu
from hw4cli.device import launcher
from hw4cli.device.launcher import PROGRAMMATIC, Config

CONTEXT = 0xC0FFEE


class Driver:
    """`launched`: symbol, stream, the argument's bytes, whether it may begin early. `refusals`: the status of each of
    the next calls that launch. A thread has a context once it is given one, if `contexts` is a set of threads. While it
    is `capturing`, what is enqueued is executed by `replay` alone."""

    def __init__(self):
        self.launched, self.refusals, self.encoded, self.contexts = [], [], [], None
        self.capturing, self._captured = False, []
        self._functions = {}

    def replay(self):
        """Execute what was captured."""
        for work in self._captured:
            work()

    def _execute(self, work):
        if self.capturing:
            self._captured.append(work)
        else:
            work()

    def function(self, symbol, run=None):
        """A compiled function, as cupy holds it; `run` executes a launch: of the grid, the block, shared bytes, the
        argument."""
        number = len(self._functions) + 1
        self._functions[number] = symbol, run
        return SimpleNamespace(kernel=SimpleNamespace(ptr=number))

    def _status(self):
        if self.contexts is not None and threading.get_ident() not in self.contexts:
            return launcher.INVALID_CONTEXT
        return self.refusals.pop(0) if self.refusals else 0

    def cuLaunchKernelEx(self, config, function, passed, extra):  # noqa: N802 - its name
        status = self._status()
        if not status:
            at = ctypes.cast(config, ctypes.POINTER(Config)).contents
            argument = passed._obj._objects
            symbol, run = self._functions[function.value]
            assert not at.count or (at.attributes[0].id, at.attributes[0].value) == (PROGRAMMATIC, 1)
            self.launched.append((symbol, at.stream or 0, argument, bool(at.count)))
            if run:
                sizes = at.sizes[0], at.sizes[3], at.sizes[6]
                self._execute(lambda: run(*sizes, argument))
        return status

    def cuMemsetD8Async(self, at, byte, size, stream):  # noqa: N802
        status = self._status()
        if not status:
            self.launched.append(("memset", stream.value or 0, (at.value, byte, size.value), False))
            if self._functions and any(run for _, run in self._functions.values()):
                place, count = at.value, size.value
                self._execute(lambda: ctypes.memset(place, byte, count))
        return status

    def cuMemsetD32Async(self, at, word, count, stream):  # noqa: N802
        status = self._status()
        if not status:
            self.launched.append(("memset", stream.value or 0, (at.value, word, count.value), False))
            words = (ctypes.c_uint * count.value).from_address(at.value)
            self._execute(lambda: words.__setitem__(slice(None), [word] * len(words)))
        return status

    def cuMemcpyHtoDAsync_v2(self, at, source, size, stream):  # noqa: N802
        assert not self.capturing, "a graph would copy from memory that is not its own"
        status = self._status()
        if not status:
            self.launched.append(("copy", stream.value or 0, (at.value, source[: size.value]), False))
            if self._functions and any(run for _, run in self._functions.values()):
                ctypes.memmove(at.value, source, size.value)
        return status

    def cuStreamIsCapturing(self, stream, at):  # noqa: N802
        ctypes.cast(at, ctypes.POINTER(ctypes.c_int))[0] = int(self.capturing)
        return 0

    def cuCtxGetCurrent(self, at):  # noqa: N802
        ctypes.cast(at, ctypes.POINTER(ctypes.c_void_p))[0] = CONTEXT
        return 0

    def cuCtxSetCurrent(self, context):  # noqa: N802
        assert context.value == CONTEXT
        if self.contexts is not None:
            self.contexts.add(threading.get_ident())
        return 0

    def cuTensorMapEncodeTiled(self, at, element, rank, address, sizes, strides, box, steps, *rest):  # noqa: N802
        """The address, and behind it what tells all else apart."""
        assert at.value % 64 == 0 and address.value % 16 == 0
        rest = repr([element, rank, [*sizes], [*strides], [*box], [*steps], rest]).encode()
        words = address.value.to_bytes(8, "little") + zlib.crc32(rest).to_bytes(4, "little") + rest[:100]
        ctypes.memmove(at.value, words.ljust(128, b"\0"), 128)
        self.encoded.append(address.value)
        return 0


def install(monkeypatch):
    """Let hw4's launcher and its tensor maps find this driver, which is returned."""
    made = Driver()
    for module in (launcher, ongpu):
        monkeypatch.setattr(module, "driver", lambda: made)
    return made
