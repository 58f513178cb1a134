"""`hw4 check` of whole CUDA programs: which words name one, and what is printed of an execution on the CPU."""

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.terminal.bar import Bar
from hw4cli.cli.terminal.params import has_main, has_main_without
from hw4cli.cli.terminal.sections import Sections
from hw4cli.errors import InputError
from hw4cli.problem.workload import Workload
from hw4cli.text.progress import Progress

if TYPE_CHECKING:
    from hw4cli.emulator.program.execute import Execution
    from hw4cli.plans.plan import DeviceProperties

ARGUMENTS = "hw4.arguments"  # of click's context: what stands behind --
BAR_DELAY = 1.0
MOST_STORIES = 2  # that are printed of a program; --json has all


class TakesArguments(Sections):
    """A command that hands what stands behind -- to a program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what is behind -- in the context, and parse the rest."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[ARGUMENTS] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


@dataclass(frozen=True)
class ProgramOptions:
    """What a program is compiled and run with."""

    include: tuple[Path, ...]
    define: tuple[str, ...]
    seconds: float
    arguments: tuple[str, ...] | None
    stdin: Path | None = None
    story: float = 0.0  # seconds for the search of the fewest switches


def programs_of(files: Sequence[str], define: Sequence[str] = ()) -> list[tuple[Path, ...]]:
    """Programs: all files as one, or, where several have a main, each of those alone; a main that the macros `define`
    leave out does not count beside another. Raises InputError if none has."""
    mains = [name for name in files if has_main(name)]
    for name in files:
        if not Path(name).is_file():
            raise InputError(f"there is no file {name}")
    if not mains:
        raise InputError(f"{files[0]} has no main: name the file that has, too")
    if len(mains) > 1:
        mains = [name for name in mains if has_main_without(name, define)] or mains
    if len(mains) == 1:
        return [(Path(mains[0]), *(Path(name) for name in files if name != mains[0]))]
    return [(Path(name),) for name in mains]


def check_program(
    files: tuple[Path, ...], gpu: "DeviceProperties", name: str, options: ProgramOptions, shape: Workload | None
) -> tuple[list[dict[str, Any]], list[str], bool]:
    """Execute a program on the CPU: records, lines for a terminal, and whether nothing is wrong with it."""
    from hw4cli.emulator.library import REVERSE, Schedule
    from hw4cli.emulator.program.attention import CASES, FAILED, ODD, check_attention, once, takes_a_case
    from hw4cli.emulator.program.build import Source, compile_program
    from hw4cli.emulator.program.execute import ENDED, TOO_SLOW, run_program
    from hw4cli.emulator.program.story import FROM_RUN_TO_RUN, with_stories, writes_else
    from hw4cli.emulator.report import Finding
    from hw4cli.emulator.story import story_of

    source = Source(files, options.include, options.define)
    program = str(files[0])
    progress = Progress(1)
    unused: list[str] = []

    def say(launches: int, done: int, blocks: int) -> None:
        progress.total, progress.done = max(blocks, 1), min(done, blocks)

    with Bar("running", progress, BAR_DELAY, wanted=True):
        if options.arguments is None and not options.stdin and (shape or takes_a_case(source)):
            cases = check_attention(
                source,
                gpu=gpu,
                gpu_name=name,
                shapes=[shape] if shape else (*CASES, *ODD),
                seconds=options.seconds,
                story=options.story,
                progress=say,
            )
            records, lines, right = [], [], True
            for case in cases:
                marked = " (N is no multiple of 128, which the course has none of)" if case.odd and not shape else ""
                lines.append(f"{program} on {case}{marked}")
                sizes = [*case.shape.sizes]
                records.append(
                    {
                        **{
                            "program": program,
                            "what": "case",
                            "shape": sizes,
                            "verdict": case.verdict,
                            "sentence": case.why,
                        },
                        **{
                            "lockstep": case.execution.lockstep,
                            "odd": case.odd,
                            "seconds": round(case.execution.seconds, 2),
                        },
                    }
                )
                right &= case.verdict == "AC" or (case.odd and not shape)
            confined = all(case.execution.confined for case in cases)
            late = any(case.execution.end == TOO_SLOW for case in cases)
            if not any(case.execution.launches for case in cases):
                failed = all(case.verdict == FAILED for case in cases)
                why = ", started as PROGRAM INPUT OUTPUT: other arguments stand behind --" if failed else ""
                unused = [f"{program}: no kernel ran{why}"]
            counted = [case for case in cases if shape or not case.odd] or cases
            seen: set[tuple[str, ...]] = set()
            for case in cases:
                own, its_lines = _found(program, case.findings, case.notes, seen, case in counted, case.shape)
                records += own
                lines += its_lines
                right &= not (case in counted and case.findings)
        else:
            arguments = options.arguments or ()
            compiled = compile_program(source, cc=gpu.cc or 80, lanes=64 if source.hip else gpu.lanes)
            how: dict[str, Any] = {"gpu": gpu, "gpu_name": name, "seconds": options.seconds, "stdin": options.stdin}

            def usual(words: Sequence[str], **more: Any) -> "Execution":
                return run_program(compiled, words, progress=say, **how, **more)

            execution = usual(arguments)
            findings, notes = list(execution.findings), list(execution.notes)
            if execution.end == ENDED:
                with tempfile.TemporaryDirectory(prefix="hw4-") as folder:  # what it writes is kept once
                    words = [str(Path(word).absolute()) if Path(word).exists() else word for word in arguments]
                    again = partial(usual, words, folder=Path(folder))
                    other = again(schedule=Schedule(REVERSE))

                    def replay(attempts: Sequence[Sequence[str]]) -> "Iterator[Execution]":
                        return (again(replay=switches) for switches in attempts)

                    findings += with_stories(execution, other, replay, options.story)
                    if writes_else(execution, other) and writes_else(execution, again()):
                        notes.append(FROM_RUN_TO_RUN)
                    elif writes_else(execution, other):
                        sentence = "what the program writes depends on the order in which threads take their turns"
                        lines_of_story = story_of(other, replay, partial(writes_else, execution), options.story)
                        findings.append(Finding("order", sentence, story=lines_of_story))
            lines = [*printed(execution), f"{program}: {ending(execution)}"]
            ended = {"end": execution.end, "status": execution.status, "sentence": execution.why}
            records = [{"program": program, "what": "run", **ended, "lockstep": execution.lockstep}]
            own, its_lines = _found(program, once(findings), once(notes), set(), True, None)
            records, lines = [*records, *own], [*lines, *its_lines]
            right, confined = execution.end == ENDED and not findings, execution.confined
            late = execution.end == TOO_SLOW
    if not any(record["what"] == "finding" for record in records):
        lines.append(f"{program}: no {'mistake' if right else 'race and no wrong access'} found")
    lines += unused
    if late:
        lines.append(f"{program}: --seconds gives it more of the processor's time")
    if not confined:
        lines.append(f"{program}: it ran without a sandbox, as bubblewrap is missing or does not work here")
    return records, lines, right


def _found(
    program: str,
    findings: Sequence[Any],
    notes: Sequence[Any],
    seen: set[tuple[str, ...]],
    counts: bool,
    shape: Workload | None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Findings and notes as records and lines, each once: by its kind and the lines that it names."""
    records, lines = [], []
    stories: list[Sequence[str]] = []
    for what, found in [("finding", one) for one in findings] + [("note", one) for one in notes]:
        key = (found.kind, *re.findall(r"[\w.-]+:\d+", found.sentence))
        if key in seen:
            continue
        seen.add(key)
        kind = what if counts else "note"
        where = f" on {shape}" if shape else ""
        records.append(
            {
                **{
                    "program": program,
                    "what": kind,
                    "kind": found.kind,
                    "sentence": found.sentence,
                    "times": found.times,
                    "story": [*found.story],
                },
                "shape": [*shape.sizes] if shape else None,
            }
        )
        lines.append(f"{program}{where}: {'note: ' if kind == 'note' else ''}{found}")
        stories.append(found.story)
    return records, [*with_story_below(zip(lines, stories, strict=True))]


def with_story_below(findings: Iterable[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Lines of findings, each with its story below it, but for those behind the first few stories."""
    stories = 0
    for line, story in findings:
        yield line
        if story and stories < MOST_STORIES:
            yield from (f"    {number}. {each}" for number, each in enumerate(story, 1))
            stories += 1


def printed(execution: "Execution") -> list[str]:
    """The end of what a program printed, as lines."""
    return [f"| {line}" for text in (execution.output, execution.errors) for line in text.splitlines()[-40:]]


def ending(execution: "Execution") -> str:
    """How a program ended, in words."""
    said = execution.why.startswith(execution.end)
    words = "it ends" if execution.end == "ended" else execution.why if said else f"{execution.end}: {execution.why}"
    if execution.end == "ended":
        words += f" with exit status {execution.status}, {sum(launch.times for launch in execution.launches)} launches"
        words += ", relies on warps in lockstep" if execution.lockstep else ""
    return words
