"""What a report is made of: the records, the judging and the profile in a folder, and the kernel that it is about."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hw4cli.device.ownkernel import kernel_named
from hw4cli.errors import Hw4Error, InputError
from hw4cli.judge.scoring import standings, storedrules
from hw4cli.judge.scoring.record import Rules, Standing
from hw4cli.judge.scoring.standings import UserJournal
from hw4cli.lab.tables import FORWARD
from hw4cli.plans.ladder import FALLBACK
from hw4cli.plans.plan import DEVICES, DeviceProperties, Plan, Variant
from hw4cli.problem import suite
from hw4cli.problem.workload import FLOAT32, Workload
from hw4cli.resources import is_own_kernel
from hw4cli.show.records import CHECK, Point, Record, is_ours, kind_of, latest, load
from hw4cli.show.report.profile import Counters, counters_of, read_profile
from hw4cli.show.stories import Story, story_of, texts
from hw4cli.system.reading import is_file_in, leads_out, read_json, read_regular
from hw4cli.text.words import printable


@dataclass(frozen=True)
class Source:
    """A record, and the machine and the commit as its file has them."""

    record: Record
    machine: dict[str, Any]
    commit: str
    programs: bool  # whether it is of whole programs, not of kernels


@dataclass(frozen=True)
class Material:
    """What a folder holds. `problems` are the sentences about files that cannot be used. `asked_kernel` and
    `asked_case` are what the report is to be about, or empty; with `named`, whoever runs hw4 asked for that kernel, so
    that its file may lie elsewhere. Of files that the folder's own contents name, only those in it are read."""

    folder: Path
    sources: tuple[Source, ...]
    judged: Standing | None
    tables: tuple[Counters, ...]
    problems: tuple[str, ...]
    asked_kernel: str = ""
    asked_case: str = ""
    named: bool = False

    @cached_property
    def profile(self) -> tuple[Counters, ...]:
        """What profilers counted: their own tables, then records of `hw4 profile`."""
        own = [one for source in self.sources for one in counters_of(source.record)]
        return (*self.tables, *own)

    @cached_property
    def roofs(self) -> Record | None:
        """What this GPU was measured to reach, in the newest record of it."""
        return next((record for record in reversed(self.records) if record.rates), None)

    @property
    def unused(self) -> list[str]:
        """A sentence for each record of which the report has nothing, with the reason."""
        found = []
        for record in (source.record for source in self.sources):
            said = f"{record.name} is not used: it holds {record.holds}"
            of_kernel = any(same_kernel(one.kernel, self.kernel) for one in record.compiled)
            if record.timelines:
                found.append(f"{said}, which `hw4 plot {record.name} -o lab.html` draws")
            elif record.rates and record is not self.roofs:
                newer = f"{self.roofs.name} is newer" if self.roofs else ""
                why = f"the report is of {self.gpu}" if record.gpu != self.gpu else newer
                found.append(f"{said}, and {why}")
            elif record.compiled and not of_kernel:
                found.append(f"{said} of {', '.join(sorted({one.kernel for one in record.compiled}))}")
            elif not (record.points or record.runs or record.profiles or record.rates or record.compiled):
                found.append(said)
        return found

    @cached_property
    def gpu(self) -> str:
        """The GPU that most was measured on, none of AMD's if there is another: sections 1 to 3 are about it. Empty
        without records."""
        counts = Counter[str]()
        for source in self.sources:
            if source.record.kind != CHECK:
                record = source.record
                counts[record.gpu] += len(record.points) + len(record.runs) + len(record.profiles) + len(record.rates)
        return max(counts, key=lambda gpu: (not is_amd(gpu), counts[gpu]), default="")

    @cached_property
    def records(self) -> list[Record]:
        """The records of this GPU."""
        return [source.record for source in self.sources if source.record.gpu == self.gpu]

    @cached_property
    def points(self) -> list[Point]:
        """The measurements of hw4's kernels and the author's on this GPU, each with its own best tile."""
        return comparable(self.records)

    @cached_property
    def case(self) -> str:
        """The case that kernels are compared on: the one asked for, else that of most kernels, with the most work."""
        kernels, work = Counter[str](), dict[str, int]()
        for p in self.points:
            kernels[p.case] += 1
            work[p.case] = p.B * p.N**2
        best = max(kernels, key=lambda case: (kernels[case], work[case]), default="")
        return self.asked_case or best

    @cached_property
    def kernel(self) -> str:
        """The kernel that the report is about: the one asked for, else the author's own, else the fastest on the case.
        Empty where none is known."""
        if self.asked_kernel:
            named = (p.kernel for p in self.points if same_kernel(p.kernel, self.asked_kernel))
            return next(named, self.asked_kernel)
        here = [p for p in self.points if p.case == self.case and p.kernel != FALLBACK]
        own = [p for p in here if is_own_kernel(p.kernel)]
        return min(own or here, key=lambda p: p.ms).kernel if here else ""

    @cached_property
    def point(self) -> Point | None:
        """The kernel's measurement on the case."""
        return next((p for p in self.points if (p.kernel, p.case) == (self.kernel, self.case)), None)

    @cached_property
    def props(self) -> DeviceProperties:
        """The GPU's properties, from what the records say of it."""
        machines = [source.machine for source in self.sources if source.record.gpu == self.gpu]
        counts = [machine.get("multiprocessors") for machine in machines]
        cc = next((r.cc for r in self.records if r.cc), None) or 90
        known = DEVICES.get(cc) or DEVICES[max(key for key in DEVICES if key <= max(cc, min(DEVICES)))]
        return replace(known, sms=next((count for count in counts if type(count) is int and count > 0), known.sms))

    def _file_of(self, kernel: str) -> str:
        """Where the file of a kernel of the author's own is: in the folder, or where it was named."""
        beside = self.folder / Path(kernel).name
        if is_file_in(self.folder, beside):
            return str(beside)
        if self.named and same_kernel(kernel, self.asked_kernel):
            return self.asked_kernel
        raise InputError(f"the file of {kernel} is not in {self.folder}: copy it there, or name it in the command")

    @cached_property
    def _entry(self) -> Variant | str:
        try:
            return kernel_named(self._file_of(self.kernel) if is_own_kernel(self.kernel) else self.kernel)
        except InputError as error:
            return str(error)

    @property
    def variant(self) -> Variant | None:
        """The kernel as data; None where no kernel is known, or its file is not here or does not say how it is
        launched."""
        return self._entry if self.kernel and isinstance(self._entry, Variant) else None

    @property
    def no_variant(self) -> str:
        """Why there is no variant of the kernel, as a sentence."""
        return self._entry if isinstance(self._entry, str) else ""

    def plan(self, shape: Workload, tile: dict[str, int] | None = None) -> Plan:
        """How the kernel computes a shape on the GPU. Raises MachineError if it cannot; there must be a variant."""
        assert self.variant is not None
        return self.variant.plan(shape, self.props, tile)

    @cached_property
    def shape(self) -> Workload | None:
        """The shape of the case."""
        found = next((p for p in self.points if p.case == self.case), None)
        if found:
            return Workload.one_head(found.B, found.N, found.setting.d)
        return suite.cases()[self.case].shape if self.case in suite.cases() else None

    def text(self, kernel: str) -> str | None:
        """The text of a kernel's file, the author's own or hw4's; None where there is none."""
        if not is_own_kernel(kernel):
            return texts().get(f"{kernel}.cu")
        try:
            return read_regular(Path(self._file_of(kernel))).decode()
        except (OSError, ValueError, InputError):
            return None

    def story(self, kernel: str) -> Story | None:
        """What the header of the author's own file says of its kernel; None of a kernel of hw4's, whose words are not
        the author's, and where there is no such file."""
        text = self.text(kernel) if is_own_kernel(kernel) else None
        if text is None:
            return None
        name = Path(kernel).stem
        return story_of(name, {**texts(), f"{name}.cu": text})


def is_amd(gpu: str) -> bool:
    """Whether a GPU is one of AMD's, by its name."""
    return "AMD" in gpu or "Radeon" in gpu or re.search(r"\bMI\d{2,}", gpu) is not None


def function_of(kernel: str) -> str:
    """What a profiler calls a kernel: its main function has the name of its file."""
    return Path(kernel).name.removesuffix(".cu")


def same_kernel(one: str, other: str) -> bool:
    """Whether two names are of one kernel: of files, whatever their folders."""
    own = is_own_kernel(one) and is_own_kernel(other)
    return Path(one).name == Path(other).name if own else one == other


def comparable(records: Sequence[Record]) -> list[Point]:
    """The measurements, in records of one GPU, that the assignment is about: of hw4's kernels and the author's, with
    their own best tiles, in float32, forward, without a mask."""
    settled = (FLOAT32, FORWARD, False)
    found = [p for p in latest(records) if p.tile is None and is_ours(p.kernel)]
    return [p for p in found if (p.setting.dtype, p.setting.direction, p.setting.causal) == settled]


def gathered(folder: Path, kernel: str = "", case: str = "", named: bool = False) -> Material:
    """What a folder holds, and the folders in it. InputError if there is no such folder."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: name the one with your records")
    problems: list[str] = []
    sources = [source for path in _files(folder, "json", problems) if (source := _source(path, folder, problems))]
    sources.sort(key=lambda source: (source.record.date, source.record.name))
    profile = [one for path in _files(folder, "csv", problems) for one in _profile(path, folder, problems)]
    judged = _judged(folder, problems)
    found = Material(folder, tuple(sources), judged, tuple(profile), tuple(problems), kernel, case, named)
    _check_case(found)
    return found


def check_kernel(material: Material) -> None:
    """Raise InputError for a kernel of which neither a file is there nor a record tells anything: a slip of the pen."""
    name = material.asked_kernel
    if not name or not is_own_kernel(name) or material.text(name) is not None:
        return
    measured = {p.kernel for record in material.records for p in record.points}
    if not any(same_kernel(one, name) for one in measured):
        raise InputError(f"{name}: there is no such file, and no record in {material.folder} is of it")


def _check_case(material: Material) -> None:
    """Raise InputError if the case that is asked for is neither of the suite's nor in a record."""
    measured = {p.case for p in material.points} | {run.case for record in material.records for run in record.runs}
    if material.asked_case and material.asked_case not in {*measured, *suite.cases()}:
        known = f"the records hold {', '.join(sorted(measured))}" if measured else "there is no record here"
        raise InputError(f"there is no case {material.asked_case!r}: {known}")


def _files(folder: Path, ending: str, problems: list[str]) -> list[Path]:
    """The files with an ending, in a folder and in the folders in it, but for hidden ones: an editor's, say; and for
    links out of the folder, each of which is a problem."""
    paths = (path for form in ("*", "*/*") for path in folder.glob(f"{form}.{ending}") if path.is_file())
    seen = sorted(path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts))
    problems += [_outside(path, folder) for path in seen if leads_out(folder, path)]
    return [path for path in seen if not leads_out(folder, path)]


def _outside(path: Path, folder: Path) -> str:
    return f"{path.relative_to(folder)} is a link that leads out of the folder: put a copy in its place"


def _source(path: Path, folder: Path, problems: list[str]) -> Source | None:
    """A record; None for JSON that is none, and for what the judge makes of its journal, which is read itself."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        problems.append(f"{path.relative_to(folder)} cannot be read as JSON")
        return None
    beside = path.with_name("journal.jsonl").exists()  # of which the judge makes its other files
    if beside and path.name in ("results.json", storedrules.NAME):
        return None
    if kind_of(found) is None:
        return None
    try:
        record = load(path)
    except Hw4Error as error:
        problems.append(str(error).replace(f"{path}", str(path.relative_to(folder))))
        return None
    record = replace(record, name=printable(path.relative_to(folder)))
    first = found[0] if isinstance(found, list) and found else found
    machine, commit = (first.get(key) if isinstance(first, dict) else None for key in ("machine", "commit"))
    return Source(record, machine or {}, printable(commit or ""), bool(record.runs))


def _profile(path: Path, folder: Path, problems: list[str]) -> Sequence[Counters]:
    try:
        return read_profile(path, str(path.relative_to(folder)))
    except InputError as error:
        problems.append(str(error))
        return ()


def _rules(folder: Path, paths: Sequence[Path], entries: Sequence[UserJournal], problems: list[str]) -> Rules:
    """The rules stored beside the newest of these journals, or in the folder; else those that a journal records."""
    newest = max(zip(paths, entries, strict=True), key=lambda pair: str(pair[1].journal.header.get("started", "")))[0]
    for path in dict.fromkeys((newest.with_name(storedrules.NAME), folder / storedrules.NAME)):
        try:
            if leads_out(folder, path):
                problems.append(_outside(path, folder))
            elif found := storedrules.read(path.parent):
                return found
        except InputError as error:
            problems.append(str(error))
    return standings.recorded_rules(entries)


def _judged(folder: Path, problems: list[str]) -> Standing | None:
    """The author's results; the newest where there are several."""
    paths = standings.find_journals(folder)
    problems += [_outside(path, folder) for path in paths if leads_out(folder, path)]
    inside = [path for path in paths if not leads_out(folder, path)]
    entries = [standings.read_one(path, str(path.relative_to(folder))) for path in inside]
    if not entries:
        return None
    found = standings.compute(entries, _rules(folder, inside, entries, problems))
    if len(found) > 1:
        users = ", ".join(sorted(one.user for one in found))
        problems.append(f"there are {len(found)} journals here (of {users}): keep that of the program that you hand in")
    newest = max(found, key=lambda one: str(one.session.get("started", "")))
    if newest.damaged or newest.lost:
        problems.append(f"the journal of {newest.user} is damaged: judge again with --resume")
    return newest
