"""A kernel on an architecture, without a GPU: compiled by NVRTC or hiprtc, with its resources and occupancy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hw4cli.device.compilerlog import VERBOSE, Usage, entry_points, first_error, missing_symbol, usage
from hw4cli.device.hip import hiprtc
from hw4cli.device.hip.codeobject import CodeResources, kernels_of
from hw4cli.device.hip.hiprtc import HipCompiler
from hw4cli.device.machinecode import OPTIONS
from hw4cli.device.nvrtc import CUDA13_CC, NEWEST, Compiler, find
from hw4cli.device.occupancy import occupancy
from hw4cli.errors import CompileError, MachineError
from hw4cli.plans.plan import DeviceProperties, Plan, Variant
from hw4cli.problem.workload import Workload
from hw4cli.resources import kernel_source


@dataclass(frozen=True)
class CheckedLaunch:
    """One launch of a kernel on an architecture; or, if there is none, the problem.

    Bytes spilled and of shared memory (static and dynamic together), blocks that a multiprocessor holds and the share
    of its warps that they are.
    """

    kernel: str
    compute_capability: str  # or AMD's architecture
    symbol: str | None = None
    registers: int | None = None
    spilled_bytes: int | None = None
    shared_bytes: int | None = None
    threads: int | None = None
    blocks: int | None = None
    occupancy: float | None = None
    limited_by: tuple[str, ...] = ()
    problem: str | None = None
    accumulation_registers: int | None = None  # of `registers`, those of AMD's matrix cores
    wrong: bool = False  # the problem is the kernel's fault, not one of the architecture or of this machine


@dataclass(frozen=True)
class Compiled:
    """What a compiler made of a kernel for a GPU: a sentence on what is wrong with it, or what its launches use."""

    used: Mapping[str, Usage | CodeResources]
    wrong: str | None = None


def compiler_for(props: DeviceProperties) -> Compiler | HipCompiler:
    """The compiler for a GPU, which need not be here. MachineError, with what to install, if there is none."""
    return HipCompiler(hiprtc.find(), props.gfx) if props.gfx else _nvrtc_for(props.cc)


def _nvrtc_for(cc: int) -> Compiler:
    """The newest NVRTC here that may know a compute capability. MachineError, with what to install, if there is none.

    It needs no driver: nothing is run.
    """
    newest = 1000 * NEWEST
    package = "nvidia-cuda-nvrtc" if cc >= CUDA13_CC else "nvidia-cuda-nvrtc-cu12"
    try:
        compiler = Compiler(find(newest, cc), newest, cc)
    except MachineError:
        raise MachineError(
            f"there is no NVRTC, CUDA's compiler as a library, for compute capability {cc / 10}: pip install {package}"
        ) from None
    oldest = min(compiler.known())
    if cc < oldest:
        raise MachineError(
            f"NVRTC {compiler.version} knows compute capability {oldest / 10} and newer ones: pip install {package}"
        )
    return compiler


def check(
    variant: Variant, props: DeviceProperties, shape: Workload, compiler: Compiler | HipCompiler
) -> Iterator[CheckedLaunch]:
    """Each launch of a kernel on a GPU; or one result with the problem."""
    capability = props.gfx or f"{props.cc / 10:.1f}"

    def failed(problem: str, wrong: bool = True) -> Iterator[CheckedLaunch]:
        yield CheckedLaunch(variant.name, capability, problem=problem, wrong=wrong)

    if props.cc < variant.least_cc:
        return failed(f"needs compute capability {variant.least_cc / 10}", wrong=False)
    try:
        plan = variant.plan(shape, props)
    except MachineError as error:
        words = str(error).removeprefix(f"kernel {variant.name} ").replace("this GPU has", "there are")
        return failed(words, wrong=False)
    return check_plan(variant.name, plan, props, compiler)


def check_plan(
    name: str, plan: Plan, props: DeviceProperties, compiler: Compiler | HipCompiler
) -> Iterator[CheckedLaunch]:
    """Each launch of a plan of a kernel on a GPU; or one result with the problem."""
    capability = props.gfx or f"{props.cc / 10:.1f}"
    made = compiled(name, plan, props, compiler)
    if made.wrong:
        yield CheckedLaunch(name, capability, problem=made.wrong, wrong=True)
        return
    for launch in plan.launches:
        if launch.symbol not in made.used:  # it was compiled to PTX, of which another compiler makes the code
            too_old = f"compiles, but NVRTC {compiler.version} is too old to report more"
            yield CheckedLaunch(name, capability, launch.symbol, threads=launch.block, problem=too_old)
            continue
        mine = made.used[launch.symbol]
        shared = mine.shared + launch.shared
        found = occupancy(props, mine.registers, shared, launch.block)
        problem = None
        if not found.blocks:
            lacking = " and ".join(found.limited_by)
            problem = f"cannot start {launch.symbol}: one block needs more {lacking} than a multiprocessor has"
        yield CheckedLaunch(
            name,
            capability,
            launch.symbol,
            mine.registers,
            mine.spilled,
            shared,
            launch.block,
            found.blocks,
            found.share,
            found.limited_by,
            problem,
            mine.accumulation if isinstance(mine, CodeResources) else None,
            wrong=problem is not None,
        )


def compiled(name: str, plan: Plan, props: DeviceProperties, compiler: Compiler | HipCompiler) -> Compiled:
    """A plan's kernels, compiled."""
    source, symbols = kernel_source(plan.source, hip=bool(props.gfx)), [launch.symbol for launch in plan.launches]
    try:
        if isinstance(compiler, HipCompiler):
            code = compiler.compile(source, f"{Path(name).stem}.cu", (*hiprtc.OPTIONS, *plan.options))
            return Compiled(kernels_of(code), missing_symbol(entry_points(code), symbols))
        code, log = compiler.build(source, name, (*OPTIONS, *plan.options, VERBOSE), props.cc)
    except CompileError as error:
        return Compiled({}, f"does not compile: {first_error(str(error), name)}")
    return Compiled(usage(log), missing_symbol(entry_points(code), symbols))
