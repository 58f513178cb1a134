"""Compiles kernels beforehand, as a program is built before it is timed: those of files, and of arrays."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hw4cli.arrays.float32 import as_batches, without_needless_mask
from hw4cli.arrays.operand import Operand
from hw4cli.device.compilerlog import first_error
from hw4cli.device.gpu import Gpu, import_cupy, kernel_of
from hw4cli.device.machinecode import Kernel
from hw4cli.errors import CompileError, MachineError
from hw4cli.lab.arrays.named import NamedWorkload
from hw4cli.plans import columns
from hw4cli.plans import gradients as choice
from hw4cli.plans.choice import CODE as CHOOSING
from hw4cli.plans.choice import chosen
from hw4cli.plans.dispatch import AUTO, candidates
from hw4cli.plans.kernels16 import plan16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DeviceProperties, Plan
from hw4cli.problem.workload import FLOAT32, MAX_D, Workload
from hw4cli.stream.gpus import count_here
from hw4cli.stream.kernels import plans_of_file
from hw4cli.text.progress import Progress


@dataclass(frozen=True)
class Prepared:
    """What came of it on the GPUs of one kind: kernels that were compiled now, and that were there before; where they
    are kept; and a sentence if one is missing all the same."""

    gpu: str
    folder: str
    compiled: int
    there: int
    seconds: float
    problem: str


def prepare(shapes: Sequence[Workload], workloads: Sequence[NamedWorkload], progress: Progress) -> list[Prepared]:
    """Compile all kernels that files of some shapes, and arrays with their gradients, may need on the GPUs here.

    Raises MachineError if there is no GPU, or no folder for kernels.
    """
    cases = [_missing(gpu, shapes, workloads) for gpu in _different_gpus()]
    progress.total = sum(len(missing) for _, missing, _ in cases)
    return [_compiled(gpu, missing, there, progress) for gpu, missing, there in cases]


def _different_gpus() -> Iterator[Gpu]:
    """The GPUs here, one of each kind: they are opened in turn."""
    seen = set()
    for number in range(count_here()):
        import_cupy().cuda.Device(number).use()
        gpu = Gpu()
        if (kind := (gpu.name, gpu.props)) not in seen:
            seen.add(kind)
            yield gpu


def _missing(gpu: Gpu, shapes: Iterable[Workload], workloads: Iterable[NamedWorkload]) -> tuple[Gpu, list[Kernel], int]:
    """The kernels that are missing, and how many are there."""
    if gpu.code.folder is None:
        raise MachineError("compiled kernels cannot be kept: CUPY_CACHE_IN_MEMORY is set, or no folder can be written")
    wanted = dict[Kernel, None]()
    for shape in shapes:
        wanted |= dict.fromkeys(map(kernel_of, plans_of_file(shape, gpu)))
    for named in workloads:
        wanted |= dict.fromkeys(map(kernel_of, plans_of_arrays(named.work, gpu.props, gpu.name)))
    missing = gpu.code.missing(wanted)
    return gpu, missing, len(wanted) - len(missing)


def plans_of_arrays(work: Workload, props: DeviceProperties, gpu: str) -> Iterator[Plan]:
    """All plans that the first calls of `attention` and of its gradients may need for a workload on a GPU."""
    yield from columns.needed(work.d, work.element)
    if work.dtype == FLOAT32:
        yield from _plans_of_float32(without_needless_mask(work), props, gpu)
    else:
        yield plan16(work, props)
    with suppress(MachineError):  # its rows may not fit a block's shared memory
        yield choice.plan(work, props)


def _plans_of_float32(work: Workload, props: DeviceProperties, gpu: str) -> Iterator[Plan]:
    """Of every kernel that the values may ask for: of the range check, as if no heads shared keys; of the call; and of
    one of which the GPU chooses the kernel."""
    kernels, _ = candidates(AUTO, props, gpu, work.d, work.Nk, work.causal)
    of_check = Workload.one_head(work.batch * work.heads, work.Nk, work.d, work.causal, work.Nq)
    rows = (work.heads, work.Nq), (work.kv_heads, work.Nk), (work.kv_heads, work.Nk), (work.heads, work.Nq)
    q, k, v, o = (_contiguous(work, *size) for size in rows)
    of_call = as_batches(work, (q, k, v, o)).each[0].shape
    for name in kernels:
        for shape in dict.fromkeys((of_check, of_call)):
            with suppress(MachineError):  # it does not run on this GPU
                yield VARIANTS[name].plan(shape, props)
        if not props.gfx and work.d <= MAX_D:
            with suppress(MachineError):
                yield chosen(VARIANTS[name].plan(of_call, props, copies=False))
    if not props.gfx and work.d <= MAX_D:
        yield CHOOSING


def _contiguous(work: Workload, heads: int, rows: int) -> Operand:
    """An array as `attention` sees it, without memory."""
    shape = work.batch, heads, rows, work.d
    strides = heads * rows * work.d, rows * work.d, work.d, 1
    return Operand("", "", work.dtype, shape, strides, 0, 0, None, "BHND")


def _compiled(gpu: Gpu, missing: list[Kernel], there: int, progress: Progress) -> Prepared:
    began = time.monotonic()
    gpu.code.compile_all(missing, lambda kernel: progress.add(1))
    failed = gpu.code.missing(missing)
    problem = _problem(gpu, failed[0]) if failed else ""
    seconds = time.monotonic() - began
    return Prepared(gpu.name, str(gpu.code.folder), len(missing) - len(failed), there, seconds, problem)


def _problem(gpu: Gpu, kernel: Kernel) -> str:
    """The reason for which a kernel is still missing; "" if it is there after one more try."""
    name, _ = kernel
    try:
        gpu.code.compile(kernel)
    except CompileError as error:
        where = f"kernel {name} does not compile for {gpu.props.architecture}"
        return f"{where}: {first_error(str(error), name)}"
    except MachineError as error:
        return str(error)
    if gpu.code.is_kept(kernel):
        return ""
    return f"compiled kernels cannot be kept in {gpu.code.folder}: make room there, or name another in CUPY_CACHE_DIR"
