"""A CUDA program executed on the CPU, in the sandbox where there is one: what it printed, and what was found."""

import hashlib
import math
import mmap
import os
import re
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hw4cli.emulator.build import Run
from hw4cli.emulator.counts import NUMBERS, TOTALS, Counts, Entry, Line, counts_of
from hw4cli.emulator.library import FORWARDS, ORDERS, RANDOM, REVERSE, Schedule
from hw4cli.emulator.program.build import Program, Source, compile_program, shared_arrays
from hw4cli.emulator.report import NO_BLOCK, Finding, Raw, findings_of
from hw4cli.errors import MachineError
from hw4cli.plans.plan import AMD_DEVICES, DEVICES, DeviceProperties
from hw4cli.sandbox import confine
from hw4cli.sandbox.confine import Confinement, Workspace
from hw4cli.sandbox.environment import environment
from hw4cli.sandbox.quota import Quota
from hw4cli.sandbox.staging import free_memory, private_folder
from hw4cli.system import exits
from hw4cli.system.exits import ProgramError

SECONDS = 30.0  # of the processor's time, by default
GPUS = 2  # that a program finds
AMD = "gfx90a"  # what a HIP program finds where no other is named
MOST_OUTPUT = 1 << 20  # bytes of what it prints that are kept
MAX_FILE, MAX_BYTES, MAX_FILES = 1 << 30, 2 << 30, 1000  # that it may write
MEMORY_SHARE = 4  # a GPU has this part of the memory that is free here
# What does not change an answer, or is right on every GPU that there is: said beside the findings.
NOTES = ("leak", "same value", "returned threads", "memory", "processes", "input")
ENDED, TOO_SLOW, HANGS, CRASHED, KILLED = "ended", "too slow", "hangs", "crash", "killed"
BETWEEN_LINES = "\x1f"  # of a story, in the report
_OWN = ".hw4"  # the folder of the report, in the program's own
_STATUS_BYTES = 4096
_FUNCTION = re.compile(r"<.*|^.*::(?=\w+(?:<|$))")  # what is not a kernel's name in how it is launched: ns::tiles<32>


@dataclass(frozen=True)
class LaunchCount:
    """Launches of a kernel that are alike: its name, the line, blocks and threads in three directions, bytes of dynamic
    and of static shared memory, and how many there were."""

    kernel: str
    place: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    times: int
    static_shared: int = 0


@dataclass(frozen=True)
class Execution:
    """How a program ran on the CPU.

    `end` is "ended", "too slow", "hangs", "crash" or "killed", and `why` a sentence unless it is "ended"; `status` is
    the exit status, -n for signal n. `output` and `errors` are the ends of what it printed. `findings` are mistakes,
    causes first; `notes` what is worth knowing and changes no answer. `seconds` are the processor's. `written`: the
    files in its folder at the end, with their SHA-256.

    `switches`: in what the order of turns differed from the usual one, if it was another (kernels/emulator/schedule.h).
    `exchanged`: of an order that was replayed, which accesses exchanged their order, in lines. `peak`: the most
    bytes of memory that it had, 0 where that is not known. `counts`: of each of
    `launches` what they did, in a program that counts.
    """

    end: str
    why: str
    status: int
    output: str
    errors: str
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    launches: tuple[LaunchCount, ...]
    seconds: float
    confined: bool
    written: tuple[tuple[str, str], ...] = ()
    switches: tuple[str, ...] = ()
    exchanged: tuple[str, ...] = ()
    peak: int = 0
    counts: tuple[Counts, ...] = ()

    @property
    def lockstep(self) -> bool:
        """Whether it relies on the lanes of a warp in lockstep: what one writes another reads with no __syncwarp()."""
        return any("__syncwarp() is missing" in finding.sentence for finding in self.findings)

    @property
    def right(self) -> bool:
        """Whether it came to its end with exit status 0 and without a finding."""
        return self.end == ENDED and self.status == 0 and not self.findings


def execute(
    files: Sequence[Path],
    arguments: Sequence[str] = (),
    *,
    gpu: DeviceProperties = DEVICES[80],
    gpu_name: str = "",
    watched: bool = True,
    seconds: float = SECONDS,
    schedule: Schedule = FORWARDS,
    gpus: int = GPUS,
    include: Sequence[Path] = (),
    define: Sequence[str] = (),
    folder: Path | None = None,
    stdin: Path | None = None,
    sandbox: bool = True,
    progress: Callable[[int, int, int], None] | None = None,
    run: Run = subprocess.run,
) -> Execution:
    """A program's files compiled for a GPU and run with these arguments, as `run_program` does.

    Raises InputError if it does not compile or needs what is not there on the CPU, MachineError if there is no compiler
    or a sandbox cannot be made.
    """
    source = Source(tuple(files), tuple(include), tuple(define))
    lanes = 64 if source.hip else gpu.lanes
    program = compile_program(source, cc=gpu.cc or 80, lanes=lanes, watched=watched, run=run)
    return run_program(
        program,
        arguments,
        gpu=gpu,
        gpu_name=gpu_name,
        seconds=seconds,
        schedule=schedule,
        gpus=gpus,
        folder=folder,
        stdin=stdin,
        sandbox=sandbox,
        progress=progress,
    )


def run_program(
    program: Program,
    arguments: Sequence[str] = (),
    *,
    gpu: DeviceProperties = DEVICES[80],
    gpu_name: str = "",
    seconds: float = SECONDS,
    schedule: Schedule = FORWARDS,
    gpus: int = GPUS,
    folder: Path | None = None,
    stdin: Path | None = None,
    replay: Sequence[str] | None = None,
    sandbox: bool = True,
    progress: Callable[[int, int, int], None] | None = None,
) -> Execution:
    """Run a compiled program with these arguments, of `folder` (the current one) where it names files.

    It runs in a folder of its own: an argument that is a file there is read where it lies, and what the program writes
    under an argument's name is put there at the end. `stdin` is the file that it reads as its standard input, which is
    empty without one. `replay`: switches of another execution, in place of a schedule.
    `seconds` are of the processor's time, 0: as many as it takes.
    `progress(launches, blocks done, blocks)` is called now and then. A HIP program finds an MI210 in place of a GPU of
    NVIDIA's. Raises MachineError if a sandbox is wanted and cannot be made.
    """
    if program.source.hip and not gpu.gfx:
        gpu = AMD_DEVICES[AMD]
    base = (folder or Path.cwd()).absolute()
    confined = sandbox and has_sandbox()
    with private_folder(Path(tempfile.gettempdir())) as root:
        work, scratch = root / "work", root / "tmp"
        own = work / _OWN
        for path in (work, scratch, own):
            path.mkdir(mode=0o700)
        (own / "status").write_bytes(bytes(_STATUS_BYTES))
        executable = own / program.source.files[0].stem
        shutil.copy(program.executable, executable)
        words, inputs, outputs = _arguments(arguments, base, work)
        if stdin:
            shutil.copyfile(stdin, own / "input")
        env = environment(os.environ, work, root / "answer")
        env["HW4_EMULATE"] = _settings(program, own, gpu, gpu_name, seconds, schedule, gpus)
        env["HW4_EMULATE"] += f"\ninput={own / 'input'}" if stdin else ""
        recorded = own / "switches"
        if replay is not None:
            (own / "replay").write_text("\n".join(replay), encoding="ascii")
            env["HW4_EMULATE"] += f"\nreplay={own / 'replay'}"
        elif schedule.order in (REVERSE, RANDOM):
            env["HW4_EMULATE"] += f"\nrecord={recorded}"
        confinement = Confinement("bwrap" if confined else "none", mounts=tuple(map(str, inputs)))
        workspace = Workspace(work, scratch, Quota((root,), MAX_BYTES, MAX_FILES), root)
        problem = ""
        with _Progress(own / "status", progress):
            try:
                # A program may wait for something without taking the processor's time.
                ended = confine.run(
                    [str(executable), *words], (), workspace, env, confinement, _wall_seconds(seconds), MAX_FILE
                )
            except ProgramError as error:
                problem, ended = str(error), None
        written = _written(work)
        for name, target in outputs:
            if (work / name).is_file() and not (work / name).is_symlink():
                shutil.copyfile(work / name, target)
        report = own / "report"
        lines = report.read_text(encoding="utf-8", errors="replace").splitlines() if report.is_file() else []
        output = _tail(own / "output")
        switches = tuple(recorded.read_text(encoding="ascii").splitlines()) if recorded.is_file() else ()
    findings, notes, launches, end, why, exchanged = _read(program.executable, lines)
    if ended is None:
        return Execution(KILLED, problem, 1, output, "", findings, notes, launches, 0.0, confined)
    took = ended.user + ended.system
    if ended.killed:
        end, why = HANGS, f"it has not ended after {ended.wall:.0f} s, and waits for something that does not come"
    elif ended.excess:
        end, why = KILLED, f"it was ended: {ended.excess}"
    elif not end:
        how = exits.describe_exit(ended.exit_code, MAX_FILE)
        how = how if how.startswith("ended") else f"ended with {how}"
        end, why = CRASHED, f"its process {how} before the report was written"
    return Execution(
        end,
        why,
        ended.exit_code,
        output,
        ended.stderr,
        findings,
        notes,
        launches,
        took,
        confined,
        written,
        switches,
        exchanged,
        ended.peak_rss or 0,
        _counted(program, lines, launches),
    )


@cache
def has_sandbox() -> bool:
    """Whether programs can be confined here: bubblewrap is installed and works."""
    try:
        Confinement("bwrap").check()
    except MachineError:
        return False
    return True


def _wall_seconds(seconds: float) -> float:
    return 10 * seconds + 60 if seconds else 24 * 3600.0


def _arguments(given: Sequence[str], base: Path, work: Path) -> tuple[list[str], list[Path], list[tuple[str, Path]]]:
    """A program's arguments as it gets them; the files among them that it reads; and those that it may write, by their
    names in its own folder, with where they are wanted."""
    words, inputs, outputs = [], [], []
    for word in given:
        path = base / word
        if word and path.exists() and not (path.is_file() or path.is_dir()):
            words.append(str(path))  # a device, such as /dev/null: the sandbox has its own
        elif word and path.exists():
            inputs.append(path)
            words.append(str(path))
            if path.is_file() and os.access(path, os.W_OK) and word == given[-1] and len(given) > 1:
                # The last of several is written by most programs: it gets a new one.
                words[-1] = path.name
                inputs.pop()
                outputs.append((path.name, path))
        elif word and not word.startswith("-") and path.parent.is_dir() and ("/" in word or "." in word):
            words.append(path.name)
            outputs.append((path.name, path))
        else:
            words.append(word)
            if word and not word.startswith("-") and "/" not in word:
                outputs.append((word, path))
    return words, inputs, outputs


def _settings(
    program: Program, own: Path, gpu: DeviceProperties, name: str, seconds: float, schedule: Schedule, gpus: int
) -> str:
    """What the runtime reads (kernels/emulator/program/session.cpp)."""
    memory = max(free_memory() // MEMORY_SHARE, 256 << 20)
    values = {
        "watch": int(program.watched or program.counted),
        "order": ORDERS.index(schedule.order),
        "seed": schedule.seed,
        "lanes": program.lanes,
        "gpus": gpus,
        "cc": gpu.cc,
        "multiprocessors": gpu.sms,
        "shared_limit": gpu.shared_limit,
        "shared_multiprocessor": gpu.shared_sm,
        "memory": memory,
        "seconds": seconds,
        "name": name or f"the CPU, as {gpu.architecture}",
        "architecture": gpu.gfx,
        "report": own / "report",
        "status": own / "status",
        "output": own / "output",
    }
    lines = [f"{key}={value}" for key, value in values.items()]
    kernels = program.source.kernels
    for offset, size, function, name in shared_arrays(program.executable):
        lines.append(f"shared={offset} {size} {function if function in kernels else '-'} {name}")
    return "\n".join(lines)


def _written(work: Path) -> tuple[tuple[str, str], ...]:
    """The files that a program has left in its folder, with their SHA-256."""
    found = []
    for path in sorted(work.iterdir())[:MAX_FILES]:
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                found.append((path.name, hashlib.file_digest(file, "sha256").hexdigest()))
    return tuple(found)


def _tail(path: Path) -> str:
    """The end of what a program printed."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MOST_OUTPUT))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _read(
    executable: Path, lines: Sequence[str]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...], tuple[LaunchCount, ...], str, str, tuple[str, ...]]:
    """The report's findings, notes and launches, how the program ended and why, and what a replay tells."""
    raws: list[Raw] = []
    launches: list[LaunchCount] = []
    static = [(function, size) for _, size, function, name in shared_arrays(executable) if name]
    end = why = ""
    exchanged: list[str] = []
    for line in lines:
        what, *fields = line.split("\t")
        if what == "finding":
            kind, first, second, times, block, text, lines_of_story = fields
            story = tuple(line for line in lines_of_story.split(BETWEEN_LINES) if line)
            raws.append(Raw(kind, text, (int(first, 16), int(second, 16)), int(times), int(block), story))
        elif what == "exchanged":
            exchanged += fields
        elif what == "launch":
            kernel, place, grid, block_size, shared, times = fields
            blocks, threads = (tuple(map(int, size.split())) for size in (grid, block_size))
            own = sum(size for function, size in static if function == _FUNCTION.sub("", kernel))
            launches.append(LaunchCount(kernel, place, blocks, threads, int(shared), int(times), own))
        elif what == "end":
            end, why = fields
    if why:  # it may name places, too
        raws.append(Raw("end", why, (0, 0), 1, NO_BLOCK))
    if exchanged:
        raws.append(Raw("exchanged", "", (0, 0), 1, NO_BLOCK, tuple(exchanged)))
    found = list(findings_of(executable, raws))
    if why:
        why = next(finding.sentence for finding in found if finding.kind == "end")
        found = [finding for finding in found if finding.kind != "end"]
    exchanged_lines = next((finding.story for finding in found if finding.kind == "exchanged"), ())
    found = [finding for finding in found if finding.kind != "exchanged"]
    notes = tuple(finding for finding in found if finding.kind in NOTES)
    return (
        tuple(finding for finding in found if finding not in notes),
        notes,
        tuple(launches),
        end,
        why,
        exchanged_lines,
    )


def _counted(program: Program, lines: Sequence[str], launches: Sequence[LaunchCount]) -> tuple[Counts, ...]:
    """What the report says that each launch, or those that are alike, did."""
    totals: dict[int, list[int]] = {}
    entries: dict[int, list[Entry]] = {}
    for line in lines:
        what, *fields = line.split("\t")
        if what == "totals":
            totals[int(fields[0])] = [int(number) for number in fields[1:]]
        elif what == "count":
            number, pc, kind, file, at, *numbers = fields
            sums = dict(zip(NUMBERS, map(int, numbers), strict=True))
            entries.setdefault(int(number), []).append(Entry(int(pc, 16), Line(f"{file}:{at}", kind, **sums)))
    none = [0] * TOTALS  # of a launch that did not come to its end
    return tuple(
        counts_of(
            program.executable,
            entries.get(number, []),
            totals.get(number, none),
            launch.kernel,
            math.prod(launch.grid),
            math.prod(launch.block),
        )
        for number, launch in enumerate(launches)
        if program.counted
    )


class _Progress:
    """Calls `say(launches, blocks done, blocks)` twice a second, from what the program counts in a file."""

    def __init__(self, path: Path, say: Callable[[int, int, int], None] | None) -> None:
        self._say, self._over = say, threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(path,), daemon=True)

    def __enter__(self) -> None:
        if self._say:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._say:
            self._thread.join()

    def _watch(self, path: Path) -> None:
        assert self._say
        with path.open("rb") as file, mmap.mmap(file.fileno(), _STATUS_BYTES, prot=mmap.PROT_READ) as counts:
            while not self._over.wait(0.5):
                done, blocks, launches = struct.unpack_from("<QQQ", counts)
                self._say(launches, done, blocks)
