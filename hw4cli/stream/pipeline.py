"""From file to file: an input streams through a device into an output."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Union

from hw4cli.errors import KernelError, LostGpuError, MachineError
from hw4cli.plans.dispatch import AUTO, Choice, on_cpu
from hw4cli.problem.casefile import InputFile
from hw4cli.problem.workload import Magnitudes, Workload, most_gpus
from hw4cli.stream.layout import Device, Files, Layout, choose_layout
from hw4cli.stream.scheduler import Choose
from hw4cli.stream.team import Member, Notify, OpenDevice, Team
from hw4cli.stream.timeline import Timeline
from hw4cli.stream.work import Part
from hw4cli.system.files import NewFile, check_different

if TYPE_CHECKING:
    from fractions import Fraction

# Finds the devices that are to compute a shape; the first one is opened first.
Members = Callable[[Workload], list[Member]]


@dataclass(frozen=True)
class Job:
    """How a file is computed: its devices; on how many cores; causal or not; `whole_batches`, if no batch may be cut
    into ranges of rows."""

    members: Members
    cores: int
    causal: bool = False
    whole_batches: bool = False

    def parts(self, inputs: InputFile) -> tuple[Workload, list[Part]]:
        """The shape of a file that is computed so, and its parts."""
        shape = replace(inputs.shape, causal=self.causal)
        return shape, choose_layout(shape, self.cores, self.whole_batches).parts(shape)


def run(source: Path, target: Path, job: Job, timeline: Timeline, notify: Notify) -> tuple[Workload, str]:
    """Compute the input file's attention into the output file; return the shape, and which kernels and devices computed
    it.

    Devices are opened after the input's header and the output's folder have been checked. `notify` gets a sentence
    when parts needed a more exact kernel, or a device failed. Raises InputError and MachineError; then, as on Ctrl-C,
    the old output is untouched.
    """
    with InputFile(source) as inputs:
        new = NewFile(target)
        check_different(source, target)
        shape, parts = job.parts(inputs)
        with new as output:
            team = compute(inputs, parts, Files(inputs.read, output.write_at), job, timeline, notify)
    team.finish()
    return shape, team.summary()


def compute(
    inputs: InputFile, parts: Sequence[Part], files: Files, job: Job, timeline: Timeline, notify: Notify
) -> Team:
    """Compute some parts of a file; the devices that did."""
    shape = replace(inputs.shape, causal=job.causal)
    timeline.progress.total = sum(part.batches * part.rows for part in parts) * 4 * shape.d
    team = Team(job.members(shape), shape, choose_layout(shape, job.cores, job.whole_batches), timeline)
    gc.enable()  # the command disables it while it imports
    timeline.started("start")
    team.compute(parts, files, chooser(inputs), notify)
    if sentence := team.choice.exceptions_sentence():
        notify(sentence)
    return team


def chooser(inputs: InputFile) -> Callable[[Choice], Choose]:
    """How each part of a file gets its kernel, by the choice that goes with a device."""

    def choose_by(choice: Choice) -> Choose:
        def choose(part: Part, found: Magnitudes) -> str:
            if not found.finite:
                inputs.check_finite(part.first, part.first + part.batches)
            kernel = choice.kernel_for(found)
            choice.note(kernel, _batches(part, inputs.shape.N), found)
            return kernel

        return choose

    return choose_by


def _batches(part: Part, N: int) -> Union["Fraction", int]:
    """How many batches of N rows a part has; a part of a batch is less than one."""
    if part.rows == N:
        return part.batches
    from fractions import Fraction  # here, as it imports decimal

    return Fraction(part.rows, N)


def alone(open_device: OpenDevice) -> Members:
    """A single device."""
    return lambda shape: [Member("", 1.0, open_device)]


def cpu(max_error: float | None) -> OpenDevice:
    """The CPU as a device."""

    def open_device(shape: Workload, layout: Layout, timeline: Timeline) -> tuple[Device, Choice]:
        from hw4cli.stream.cpudevice import CpuDevice

        choice = on_cpu(shape.d, shape.N, max_error)
        return CpuDevice(choice, shape, layout, timeline), choice

    return open_device


def emulated(kernel: str, max_error: float | None) -> OpenDevice:
    """A GPU that is emulated on the CPU, as a device, for small files."""

    def open_device(shape: Workload, layout: Layout, timeline: Timeline) -> tuple[Device, Choice]:
        from hw4cli.stream.emulated import EmulatedDevice

        device = EmulatedDevice(kernel, max_error, shape, layout, timeline)
        return device, device.choice

    return open_device


def cuda(kernel: str, max_error: float | None, number: int = 0, alone: bool = True) -> OpenDevice:
    """A GPU as a device, with a kernel of the ladder or "auto"; `alone`: it computes the whole file. Opening raises
    MachineError if there is none."""

    def open_device(shape: Workload, layout: Layout, timeline: Timeline) -> tuple[Device, Choice]:
        from hw4cli.device.presence import check_cupy

        check_cupy()  # before all that computes on a GPU is imported
        from hw4cli.stream.cudadevice import CudaDevice

        device = CudaDevice(kernel, max_error, shape, layout, timeline, number, alone)
        return device, device.choice

    return open_device


def several(kernel: str, max_error: float | None, gpus: str, place: int = 0, processes: int = 1) -> Members:
    """The GPUs that `gpus` asks for, as `--gpus` does, or this process's stretch of them, of several on this node."""

    def members(shape: Workload) -> list[Member]:
        from hw4cli.stream.gpus import chosen, count_here, of_process, speed

        numbers = of_process(chosen(gpus, count_here()), place, processes)[: most_gpus(gpus, shape)]
        return [
            Member(f"GPU {number}", speed(number), cuda(kernel, max_error, number, alone=False), number)
            for number in numbers
        ]

    return members


def auto(kernel: str, max_error: float | None, notify: Notify) -> OpenDevice:
    """The GPU if there is one that works, else the CPU; then `notify` gets the reason."""

    def open_device(shape: Workload, layout: Layout, timeline: Timeline) -> tuple[Device, Choice]:
        try:
            return cuda(kernel, max_error)(shape, layout, timeline)
        except MachineError as reason:
            if isinstance(reason, (KernelError, LostGpuError)):
                raise
            if kernel != AUTO:  # the user wants this kernel, not only the answer
                raise MachineError(
                    f"{reason}; `--device emulate` executes {kernel} on the CPU, for small files, and `--device cpu` "
                    "without --kernel answers by NumPy"
                ) from None
            notify(f"{reason}; using the CPU")
            return cpu(max_error)(shape, layout, timeline)

    return open_device
