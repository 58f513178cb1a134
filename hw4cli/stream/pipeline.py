"""From file to file: an input streams through a device into an output."""

import gc
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hw4cli.compute.dispatch import AUTO, Choice, on_cpu
from hw4cli.errors import MachineError
from hw4cli.problem.casefile import InputFile, Magnitudes
from hw4cli.problem.shape import Shape
from hw4cli.resources import is_own_kernel
from hw4cli.stream.scheduler import Device, Files, Stream, layout
from hw4cli.stream.timeline import Stopwatch
from hw4cli.system.files import NewFile, check_different

# Told the shape and how many batches a group has.
OpenDevice = Callable[[Shape, int, Stopwatch], tuple[Device, Choice]]
Say = Callable[[str], None]


def run(
    source: Path, target: Path, open_device: OpenDevice, cores: int, watch: Stopwatch, say: Say
) -> tuple[Shape, Choice]:
    """Compute the input file's attention into the output file; return the shape, and by which kernels it was done.

    The device is opened after the input's header is known to be good and the output's place to be there.
    `say` gets a sentence when groups needed a more exact kernel. Raises InputError and MachineError;
    then, as on Ctrl-C, the old output is untouched.
    """
    with InputFile(source) as inputs:
        shape = inputs.shape
        watch.progress.total = shape.output_bytes
        new = NewFile(target)
        check_different(source, target)
        plan = layout(shape, cores)
        with new as output:
            device, choice = open_device(shape, plan.group, watch)
            plan = replace(plan, group=device.batches)
            gc.enable()  # whoever called us may have done without while everything was imported
            watch.started("start")

            def choose(first: int, batches: int, found: Magnitudes) -> str:
                if not all(map(math.isfinite, found)):
                    inputs.check_finite(first, first + batches)
                kernel = choice.kernel_for(found)
                choice.note(kernel, batches, found)
                return kernel

            files = Files(inputs.read, output.write_at)
            Stream(shape, plan, device, files, choice.first, choose, watch).run()
        if sentence := choice.exceptions_told():
            say(sentence)
    device.finish()
    return shape, choice


def cpu(max_error: float | None) -> OpenDevice:
    """The CPU as a device."""

    def open_device(shape: Shape, group: int, watch: Stopwatch) -> tuple[Device, Choice]:
        from hw4cli.stream.devices import CpuDevice

        choice = on_cpu(shape.d, shape.N, max_error)
        return CpuDevice(choice, shape, group, watch), choice

    return open_device


def emulated(kernel: str, max_error: float | None) -> OpenDevice:
    """A GPU that is emulated on the CPU, as a device, for small files."""

    def open_device(shape: Shape, group: int, watch: Stopwatch) -> tuple[Device, Choice]:
        from hw4cli.stream.emulated import EmulatedDevice

        device = EmulatedDevice(kernel, max_error, shape, group, watch)
        return device, device.choice

    return open_device


def cuda(kernel: str, max_error: float | None) -> OpenDevice:
    """The GPU as a device, with a kernel of the ladder or "auto". MachineError, when it is opened, if there is none."""

    def open_device(shape: Shape, group: int, watch: Stopwatch) -> tuple[Device, Choice]:
        from hw4cli.stream.devices import CudaDevice

        device = CudaDevice(kernel, max_error, shape, group, watch)
        return device, device.choice

    return open_device


def auto(kernel: str, max_error: float | None, say: Say) -> OpenDevice:
    """The GPU if there is one that works, else the CPU and a sentence that says so."""

    def open_device(shape: Shape, group: int, watch: Stopwatch) -> tuple[Device, Choice]:
        try:
            return cuda(kernel, max_error)(shape, group, watch)
        except MachineError as reason:
            if is_own_kernel(kernel):  # what is asked for is this kernel, not the answer
                raise
            say(f"{reason}; using the CPU" + ("" if kernel == AUTO else f" instead of kernel {kernel}"))
            return cpu(max_error)(shape, group, watch)

    return open_device
