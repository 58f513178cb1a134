"""From file to file: an input streams through a device into an output."""

import gc
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hw4cli.compute.dispatch import AUTO, Choice, on_cpu
from hw4cli.errors import MachineError
from hw4cli.problem.casefile import InputFile
from hw4cli.problem.shape import AbsMax, Shape
from hw4cli.resources import is_own_kernel
from hw4cli.stream.layout import Device, Files, Layout, choose_layout
from hw4cli.stream.scheduler import Stream
from hw4cli.stream.timeline import Timeline
from hw4cli.system.files import NewFile, check_different

# Opens a device for a file's shape and layout.
OpenDevice = Callable[[Shape, Layout, Timeline], tuple[Device, Choice]]
Notify = Callable[[str], None]  # shows the user a sentence


def run(
    source: Path,
    target: Path,
    open_device: OpenDevice,
    cores: int,
    timeline: Timeline,
    notify: Notify,
    causal: bool = False,
) -> tuple[Shape, Choice]:
    """Compute the input file's attention, or causal attention, into the output file; return the shape and the kernels
    that were used.

    The device is opened after the input's header and the output's folder have been checked. `notify` gets a sentence
    when groups needed a more exact kernel. Raises InputError and MachineError; then, as on Ctrl-C, the old output is
    untouched.
    """
    with InputFile(source) as inputs:
        shape = replace(inputs.shape, causal=causal)
        timeline.progress.total = shape.output_bytes
        new = NewFile(target)
        check_different(source, target)
        layout = choose_layout(shape, cores)
        with new as output:
            device, choice = open_device(shape, layout, timeline)
            layout = replace(layout, group=device.batches, rows=device.rows)
            gc.enable()  # the command disables it while it imports
            timeline.started("start")

            def choose(first: int, batches: int, found: AbsMax) -> str:
                if not all(map(math.isfinite, found)):
                    inputs.check_finite(first, first + batches)
                kernel = choice.kernel_for(found)
                choice.note(kernel, batches, found)
                return kernel

            files = Files(inputs.read, output.write_at)
            Stream(shape, layout, device, files, choice.first, choose, timeline).run()
        if sentence := choice.exceptions_sentence():
            notify(sentence)
    device.finish()
    return shape, choice


def cpu(max_error: float | None) -> OpenDevice:
    """The CPU as a device."""

    def open_device(shape: Shape, layout: Layout, timeline: Timeline) -> tuple[Device, Choice]:
        from hw4cli.stream.devices import CpuDevice

        choice = on_cpu(shape.d, shape.N, max_error)
        return CpuDevice(choice, shape, layout, timeline), choice

    return open_device


def emulated(kernel: str, max_error: float | None) -> OpenDevice:
    """A GPU that is emulated on the CPU, as a device, for small files."""

    def open_device(shape: Shape, layout: Layout, timeline: Timeline) -> tuple[Device, Choice]:
        from hw4cli.stream.emulated import EmulatedDevice

        device = EmulatedDevice(kernel, max_error, shape, layout, timeline)
        return device, device.choice

    return open_device


def cuda(kernel: str, max_error: float | None) -> OpenDevice:
    """The GPU as a device, with a kernel of the ladder or "auto". Opening raises MachineError if there is none."""

    def open_device(shape: Shape, layout: Layout, timeline: Timeline) -> tuple[Device, Choice]:
        from hw4cli.stream.devices import CudaDevice

        device = CudaDevice(kernel, max_error, shape, layout, timeline)
        return device, device.choice

    return open_device


def auto(kernel: str, max_error: float | None, notify: Notify) -> OpenDevice:
    """The GPU if there is one that works, else the CPU; then `notify` gets the reason."""

    def open_device(shape: Shape, layout: Layout, timeline: Timeline) -> tuple[Device, Choice]:
        try:
            return cuda(kernel, max_error)(shape, layout, timeline)
        except MachineError as reason:
            if is_own_kernel(kernel):  # the user wants this kernel, not only the answer
                raise
            notify(f"{reason}; using the CPU" + ("" if kernel == AUTO else f" instead of kernel {kernel}"))
            return cpu(max_error)(shape, layout, timeline)

    return open_device
