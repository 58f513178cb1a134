"""From file to file: an input streams through a device into an output."""

import gc
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hw4cli.casefile import InputFile, NewFile, check_different, check_finite
from hw4cli.errors import MachineError
from hw4cli.shape import Shape
from hw4cli.stopwatch import Stopwatch
from hw4cli.stream import Device, Files, Magnitudes, Stream, layout

OpenDevice = Callable[[Shape, int, Stopwatch], Device]  # told the shape and how many batches a group has
Say = Callable[[str], None]


def run(source: Path, target: Path, open_device: OpenDevice, cores: int, watch: Stopwatch, say: Say) -> Shape:
    """Compute the input file's attention into the output file; return the shape.

    The device is opened after the input's header is known to be good and the output's place to be there.
    `say` gets a sentence when groups had to be computed in float64. Raises InputError and MachineError;
    then, as on Ctrl-C, the old output is untouched.
    """
    with InputFile(source) as inputs:
        shape = inputs.shape
        check_different(source, target)
        plan = layout(shape, cores)
        with NewFile(target) as output:
            device = open_device(shape, plan.group, watch)
            plan = replace(plan, group=device.batches)
            gc.enable()  # whoever called us may have done without while everything was imported
            watch.started("start")

            def needs_wide(first: int, batches: int, found: Magnitudes) -> bool:
                if not all(map(math.isfinite, found)):
                    check_finite(inputs.batches(first, first + batches), first, source)
                return not device.suffices(found)

            stream = Stream(shape, plan, device, Files(inputs.read, output.write_at), needs_wide, watch)
            stream.run()
        if stream.wide_batches:
            say(f"{stream.wide_batches} batch(es) have scores too large for float32 and were computed in float64")
    return shape


def cpu(shape: Shape, group: int, watch: Stopwatch) -> Device:
    """The CPU as a device."""
    from hw4cli.devices import CpuDevice

    return CpuDevice(shape, group, watch)


def cuda(kernel: str) -> OpenDevice:
    """The GPU as a device, with a kernel of the ladder. MachineError, when it is opened, if there is none."""

    def open_device(shape: Shape, group: int, watch: Stopwatch) -> Device:
        from hw4cli.devices import CudaDevice

        return CudaDevice(kernel, shape, group, watch)

    return open_device


def auto(kernel: str, say: Say) -> OpenDevice:
    """The GPU if there is one that works, else the CPU and a sentence that says so."""

    def open_device(shape: Shape, group: int, watch: Stopwatch) -> Device:
        try:
            return cuda(kernel)(shape, group, watch)
        except MachineError as reason:
            say(f"{reason}; using the CPU")
            return cpu(shape, group, watch)

    return open_device
