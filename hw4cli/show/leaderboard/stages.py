"""A submission in three stages: its answer is tested, it is timed, and timed again under the conditions of the board.

The test and the benchmark have data that the user can have, too: those of the case's seed. The ranked run has a seed of
its own, a new process, and nothing of the data in a cache: a kernel's time is then that of a first use, whatever it
or its user have prepared.
"""

import json
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hw4cli import __version__
from hw4cli.device.float64 import best_oracle
from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import MachineError
from hw4cli.judge.identity import program_sha256
from hw4cli.lab import endtoend
from hw4cli.lab.arrays.named import NamedWorkload, workload
from hw4cli.lab.cases import ArrayCase, FileCase
from hw4cli.lab.contender import Contender, prepare
from hw4cli.lab.kernels import FileKernel, contender_named
from hw4cli.lab.peers import FUNCTION, SINGLE, peers_of_arrays, with_version
from hw4cli.lab.record import commit
from hw4cli.lab.sampling import Sampling, take_turns
from hw4cli.lab.times import Times
from hw4cli.problem.checksums import file_sha256
from hw4cli.problem.generate import GenerationTask, check_space, make
from hw4cli.problem.suite import Case
from hw4cli.problem.workload import Workload
from hw4cli.resources import is_own_kernel, kernel_path, python_command
from hw4cli.show.leaderboard.entries import FAILED, RANKED, Outcome, rounded
from hw4cli.system.exits import describe_exit
from hw4cli.system.machine import machine

SEEDS = 1 << 31
RUNS = 10  # of a program, for the benchmark and for the ranked run
STAGES = "test", "benchmark", "ranked"

Say = Callable[[str, str], None]  # gets the stage and its outcome


@dataclass(frozen=True)
class Run:
    """One stage of a kernel or program: whether it was right, its largest error, its samples in milliseconds."""

    status: str
    reason: str = ""
    max_error: float | None = None
    samples: tuple[float, ...] = ()


def kernel_stages(kernel: str, shape: Workload, seed: int, say: Say) -> Outcome:
    """Submit a kernel of the ladder, or in a file of the user's own. Raises Hw4Error if there is no GPU, or the file is
    not one that can be launched; what fails later is the outcome."""
    gpu = Gpu()
    timer = GpuTimer(gpu)
    job = {"kernel": kernel, "shape": [shape.B, shape.N, shape.d]}
    facts = {key: str(value) for key, value in {**machine(timer.machine()), **_software()}.items() if value}
    start = Outcome(machine=gpu.name, sha256=file_sha256(kernel_path(kernel)), facts=facts)
    own = kernel_path(kernel) if is_own_kernel(kernel) else None
    return _stages_of_a_job(timer, job, own, start, seed, say)


def array_stages(name: str, named: NamedWorkload, text: str, direction: str, say: Say) -> Outcome:
    """Submit a kernel of arrays, a function FILE.py:FUNCTION of torch's tensors, or a peer of `hw4 bench`, on a
    workload; `text` is as the workload was named. Raises Hw4Error if there is no GPU or no such function; what fails
    later is the outcome."""
    gpu = Gpu()
    timer = GpuTimer(gpu)
    others = is_peer(name)
    place = Path(name.rpartition(":")[0]) if others else kernel_path(name)
    own = place if others and place.is_file() else None
    job = {"kernel": name, "workload": text, "direction": direction}
    contender_of(timer, {**job, "seed": named.seed})  # or a wrong name would be the outcome of a test
    facts = {key: str(value) for key, value in {**machine(timer.machine(), others), **_software()}.items() if value}
    sha256 = file_sha256(place) if place.is_file() else ""
    return _stages_of_a_job(timer, job, own, Outcome(machine=gpu.name, sha256=sha256, facts=facts), named.seed, say)


def is_function(name: str) -> bool:
    """Whether an entry's name is of a Python function, as in mine.py:attention."""
    return FUNCTION.fullmatch(name) is not None


def is_peer(name: str) -> bool:
    """Whether an entry's name is of others' attention: of a function, or a peer of `hw4 bench`, as flash-attn-4."""
    return name in SINGLE or is_function(name)


def shown_name(name: str, facts: Mapping[str, str]) -> str:
    """An entry's name on its board: a peer's with the version that was measured."""
    return with_version(name, facts) if name in SINGLE else name


def _stages_of_a_job(
    timer: GpuTimer, job: Mapping[str, Any], own: Path | None, start: Outcome, seed: int, say: Say
) -> Outcome:
    """The stages of what runs on the GPU. `own`: the user's file, which must not change between them."""

    def test() -> Run:
        return timed_job(timer, {**job, "seed": seed}, cold=None)

    def benchmark() -> Run:
        return timed_job(timer, {**job, "seed": seed}, cold=False)

    def ranked(fresh: int) -> Run:
        if own and file_sha256(own) != start.sha256:
            return Run(FAILED, f"{own} has changed since it was tested")
        return _in_a_new_process({**job, "seed": fresh})

    conditions = f"data of seed {seed}, warm L2", "new process, new data, cold L2"
    return _stages(start, seed, test, benchmark, ranked, conditions, say)


def contender_of(timer: GpuTimer, job: Mapping[str, Any]) -> tuple[Contender, FileCase | ArrayCase]:
    """What a job times, and its case, with the numbers of the job's seed. MachineError where there is no such
    function."""
    if "shape" in job:
        shape = Workload.one_head(*job["shape"])
        file_case = FileCase(str(shape), shape, job["seed"])
        return FileKernel(timer, job["kernel"], file_case), file_case
    case = ArrayCase(replace(workload(job["workload"]), seed=job["seed"]), job["direction"])
    if is_peer(job["kernel"]):
        peers = peers_of_arrays(timer.gpu, (job["kernel"],), case)
        if not peers:
            raise MachineError(f"{job['kernel']} has no attention of {case.work.dtype}")
        return peers[0], case
    return contender_named(timer, job["kernel"], case), case


def timed_job(timer: GpuTimer, job: Mapping[str, Any], cold: bool | None) -> Run:
    """Check what a job names on the data of its seed, and time it, with a cold L2 or a warm one; `cold` None: only
    check it."""
    try:
        contender, case = contender_of(timer, job)
        prepared = prepare(timer, [contender], case)
        if not prepared.measurements:
            (row,) = prepared.rows.values()
            return Run(row.status, row.reason)
        if cold is not None:
            take_turns(timer, prepared.measurements, Sampling(cold=cold))
    except MachineError as error:
        return Run(FAILED, str(error))
    (measurement,) = prepared.measurements
    return Run(RANKED, "", measurement.max_error, tuple(measurement.times))


def _in_a_new_process(job: Mapping[str, Any]) -> Run:
    """A ranked run, in a process that has seen nothing before."""
    command = python_command("show.leaderboard.ranked", "-P")
    try:
        process = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True)
        line = json.loads(process.stdout)
        return Run(line["status"], line["reason"], line["max_error"], tuple(line["samples"]))
    except OSError as error:
        return Run(FAILED, f"no new process could be started: {error.strerror}")
    except (ValueError, LookupError, TypeError):
        said = process.stderr.strip().splitlines()
        return Run(FAILED, f"its process {describe_exit(process.returncode)}{f': {said[-1]}' if said else ''}")


def program_stages(name: str, command: Sequence[str], case: Case, say: Say) -> Outcome:
    """Submit a program that takes INPUTFILE OUTPUTFILE: wall times of whole processes, on files made for it.

    Raises MachineError if these cannot be written; what the program does is the outcome.
    """
    here = machine()
    facts = {key: str(value) for key, value in {**here, **_software()}.items() if value}
    start = Outcome(machine=here["gpu"] or here["cpu"], sha256=program_sha256(command), facts=facts)
    program = endtoend.Program(name, command)
    with TemporaryDirectory(prefix="hw4-leaderboard-", ignore_cleanup_errors=True) as folder:
        known = _made(replace(case, sha256=""), Path(folder))

        def timed(case: Case, runs: int, cold: bool) -> Run:
            (row,) = endtoend.measure([program], case, Path(folder), runs, cold, lambda _: None)
            status = RANKED if row.status == "ok" else row.status
            return Run(status, row.reason, row.max_error, tuple(1000 * seconds for seconds in row.seconds))

        def ranked(fresh: int) -> Run:
            for path in (known.input_path(Path(folder)), known.answer_path(Path(folder))):
                path.unlink()
            return timed(_made(replace(case, name="ranked", seed=fresh, sha256=""), Path(folder)), RUNS, cold=True)

        conditions = f"data of seed {case.seed}, input in the page cache", "new data, input not in the page cache"
        return _stages(
            start,
            case.seed,
            lambda: timed(known, 1, cold=False),
            lambda: timed(known, RUNS, cold=False),
            ranked,
            conditions,
            say,
        )


def _made(case: Case, folder: Path) -> Case:
    """The case, its files made."""
    task = GenerationTask.of(case, folder, answers=True)
    task = replace(task, sha256=None)
    check_space([task])
    make(task, best_oracle()[0], lambda _: None)
    return case


def _stages(
    start: Outcome,
    seed: int,
    test: Callable[[], Run],
    benchmark: Callable[[], Run],
    ranked: Callable[[int], Run],
    conditions: tuple[str, str],
    say: Say,
) -> Outcome:
    """Run the stages one after the other; the first that is not right is the last."""
    outcome = start
    fresh = secrets.randbelow(SEEDS)
    runs: list[Callable[[], Run]] = [test, benchmark, lambda: ranked(fresh)]
    for stage, run in zip(STAGES, runs, strict=True):
        done = run()
        if done.status != RANKED:
            say(stage, f"{done.status}: {done.reason}")
            return replace(outcome, status=done.status, reason=f"{stage}: {done.reason}")
        if stage == "test":
            outcome = replace(outcome, max_error=done.max_error)
            say(stage, f"right, largest error {done.max_error:.1e}, data of seed {seed}")
        else:
            ranking = stage == "ranked"
            kept = rounded(done.samples)
            outcome = replace(outcome, ranked=kept) if ranking else replace(outcome, benchmark=kept)
            say(stage, f"{Times.of(done.samples)}; {conditions[ranking]}")
    return replace(outcome, status=RANKED, seed=fresh, max_error=max(outcome.max_error or 0, done.max_error or 0))


def _software() -> dict[str, Any]:
    return {"hw4": __version__, "commit": commit() or "unknown"}
