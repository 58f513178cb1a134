"""Processes that a profiler watches: of hw4's kernels, with their models, and of programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from hw4cli.device.ownkernel import kernel_named
from hw4cli.errors import MachineError
from hw4cli.lab import target
from hw4cli.lab.arrays.named import NamedWorkload, described
from hw4cli.lab.measure.counters import read_launches
from hw4cli.lab.measure.gpus import model_for
from hw4cli.lab.measure.model import launch_models, planned_arrays
from hw4cli.lab.measure.profile import Profiled, ProfiledLaunch, counters_of, profiled
from hw4cli.lab.measure.profilers import ClosedCountersError, ProfiledGpu, Profiler, profile_text
from hw4cli.plans.plan import LaunchModel, Plan, Tile, knobs_of
from hw4cli.problem.suite import Case
from hw4cli.problem.workload import Workload
from hw4cli.resources import python_command


@dataclass(frozen=True)
class Job:
    """A process: its command; the program that it is, "" where it runs hw4's kernels; their plans with their models."""

    target: list[str]
    program: str = ""
    planned: tuple[tuple[Plan, list[LaunchModel]], ...] = ()

    @property
    def models(self) -> tuple[LaunchModel, ...]:
        """Of all launches."""
        return tuple(model for _, models in self.planned for model in models)


@dataclass(frozen=True)
class Together:
    """What stands in one table: its heading, and the processes that are profiled for it."""

    what: str
    jobs: tuple[Job, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)  # what a record says of them: case, shape, tile or workload


def startable(
    kernels: Sequence[str], shapes: Sequence[Workload], gpu: ProfiledGpu
) -> tuple[list[str], list[MachineError]]:
    """Which kernels the GPU can start on all shapes, and why not the others."""
    found, reasons = [], []
    for name in kernels:
        try:
            for shape in shapes:
                kernel_named(name).plan(shape, model_for(gpu.name, gpu.cc).props)
            found.append(name)
        except MachineError as reason:
            reasons.append(reason)
    return found, reasons


def of_files(
    kernels: Sequence[str],
    programs: Sequence[Job],
    shapes: Sequence[Workload],
    case: Case | None,
    gpu: ProfiledGpu,
    tiles: Sequence[Tile | None] = (None,),
) -> list[Together]:
    """For each shape and tile a table: of all kernels, and of programs, which are run on the case that the one shape
    is of.

    Raises InputError for a wrong file, MachineError where the GPU cannot run a kernel.
    """
    names = ", ".join([*kernels, *(one.program for one in programs)])
    found = []
    for shape, tile in product(shapes, tiles):
        where = f"(B, N, d) = {shape}"
        if case and programs:
            where = f"{case.name}, {where}" if kernels else case.name
        seed = case.seed if case else 0
        own = [_kernel_job(kernels, shape, seed, gpu, tile)] if kernels else []
        facts: dict[str, Any] = {
            "case": case.name if case else "x".join(map(str, shape.sizes)),
            "shape": [*shape.sizes],
        }
        facts |= {"causal": shape.causal, "seed": seed, **_tile_facts(tile)}
        found.append(Together(f"{names}{_in_words(tile)} on {where}", (*own, *programs), facts))
    return found


def _tile_facts(tile: Tile | None) -> dict[str, str]:
    if not tile:
        return {}
    sizes = [str(tile[name]) for name in ("BR", "BC", "STAGES") if name in tile]
    return {"tile": " ".join(["x".join(sizes), *(knob for knob in knobs_of(tile) if not knob.startswith("STAGES="))])}


def _in_words(tile: Tile | None) -> str:
    return f" with {_tile_facts(tile)['tile']}" if tile else ""


def _kernel_job(kernels: Sequence[str], shape: Workload, seed: int, gpu: ProfiledGpu, tile: Tile | None) -> Job:
    model = model_for(gpu.name, gpu.cc)
    plans = [kernel_named(name).plan(shape, model.props, tile) for name in kernels]
    planned = tuple((plan, launch_models(plan, shape, model.props, model.cache)) for plan in plans)
    names = [str(Path(name).resolve()) if name.endswith(".cu") else name for name in kernels]
    return Job(_command(target.of_files(names, shape, seed, tile)), planned=planned)


def _command(asked: str) -> list[str]:
    """The process that runs kernels, with its argument."""
    return [*python_command("lab.target", "-P"), asked]


def program_jobs(programs: Sequence[Sequence[str]], case: Case, folder: Path, place: Path) -> list[Job]:
    """Programs, as commands, on a case's file; their outputs go to `place`. Raises MachineError if there is no file."""
    source = case.input_path(folder).resolve()
    if not source.is_file():
        raise MachineError(f"{folder} lacks {case.name}: run `hw4 gen {case.name} --no-answers`")
    output = str((place / "output").resolve())
    return [Job([*command, str(source), output], " ".join(command)) for command in programs]


def of_arrays(
    kernels: Sequence[str], arrays: NamedWorkload, text: str, gpu: ProfiledGpu, tile: Tile | None = None
) -> Together:
    """Kernels of arrays. Raises MachineError where the GPU cannot run one."""
    model = model_for(gpu.name, gpu.cc)
    planned = tuple(planned_arrays(name, arrays.work, model.props, model.cache, tile) for name in kernels)
    job = Job(_command(target.of_arrays(kernels, text, tile)), planned=planned)
    facts = {"case": arrays.name, "workload": text, "seed": arrays.seed, **_tile_facts(tile)}
    heading = f"{', '.join(kernels)}{_in_words(tile)} on (B, H, N, d) = {described(arrays.work)}"
    return Together(heading, (job,), facts)


def profile(table: Together, asked: Sequence[str], profiler: Profiler, version: str = "") -> tuple[Profiled, str]:
    """All launches of a table's processes with sets of metrics, and the profiler's own tables.

    Raises ClosedCountersError where counters are closed, MachineError if the profiler or a process fails.
    """
    launches, texts, commands = list[ProfiledLaunch](), list[str](), list[str]()
    for job in table.jobs:
        counters = counters_of(asked, profiler.tool, bool(job.models))
        try:
            text, command = profile_text(profiler, counters, job.target, from_start=bool(job.program))
            texts, commands = [*texts, text], [*commands, command]
        except ClosedCountersError:
            raise
        except MachineError as error:
            raise MachineError(f"{job.program}: {error}" if job.program else str(error)) from None
        found = profiled(profiler.tool, read_launches(texts[-1])[1], asked, job.models, job.program)
        if not found:
            what = job.program or table.what
            raise MachineError(f"{profiler.path} counted no kernel of {what}: does it run on the GPU?")
        launches += found
    found_all = Profiled(table.what, tuple(launches), profiler.tool, version, tuple(commands), table.facts)
    return found_all, "".join(texts)


def swept(shape: Workload, lengths: Sequence[int]) -> list[Workload]:
    """A shape for each of these N, or the shape alone. Raises InputError for one that cannot be computed."""
    found = [replace(shape, Nq=N, Nk=N) for N in lengths] or [shape]
    for one in found:
        one.check("--sweep" if lengths else "the shape")
    return found
