"""The choice between kernels as a GPU makes it: kernels/choice.cu, executed on the CPU."""

import struct

import numpy as np

from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import Library, Watched
from hw4cli.plans import choice
from hw4cli.resources import kernel_path


class Chooser:
    """Which of some kernels, the last of which has no limits, is chosen for rows of d columns."""

    def __init__(self, d, limits, ratio=1.0, flavour=PLAIN):
        self._library = Library(shared_object(kernel_path(choice.CHOICE.name), {}, 80, 32, flavour))
        self._memory = np.zeros(choice.SCRATCH + 64, np.uint8)
        at = -self._memory.ctypes.data % 64
        self._memory = self._memory[at : at + choice.SCRATCH]
        self._argument = choice.arguments(self._memory.ctypes.data, ratio, d, limits)

    def __call__(self, found):
        """The number, by the five numbers that the range check leaves."""
        self._memory[:] = 0xFF
        self._memory[:20] = np.frombuffer(np.asarray(found, np.float32).tobytes(), np.uint8)
        at = self._memory.ctypes.data
        watched = Watched(at, 20, False, "what is found", True), Watched(at + choice.CHOICE_AT, 4, True, "the choice")
        assert self._library.launch(choice.LAUNCH, self._argument, watched) == (True, ())
        return struct.unpack_from("<I", self._memory, choice.CHOICE_AT)[0]
