"""Findings of a whole program that depend on the order of turns, with the story of what they depend on."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hw4cli.emulator.program.execute import ENDED, Execution
from hw4cli.emulator.report import Finding
from hw4cli.emulator.story import story_of

Replay = Callable[[Sequence[Sequence[str]]], Iterable[Execution]]


# A note in place of a finding, where the usual order alone gives something else each time.
FROM_RUN_TO_RUN = Finding(
    "run to run",
    "what the program writes is something else each time, in one and the same order of threads, as by a clock or by "
    "random numbers: orders are not compared",
)


def writes_else(usual: Execution, other: Execution) -> bool:
    """Whether an execution that came to its end has written other files than the usual one."""
    return other.end == ENDED and other.written != usual.written


def with_stories(usual: Execution, other: Execution, replay: Replay, seconds: float) -> list[Finding]:
    """The findings of an execution in another order: the first that the usual order does not show has the story of the
    switches that it needs."""
    found, known = list(other.findings), {_key(finding) for finding in usual.findings}
    for at, finding in enumerate(found):
        key = _key(finding)
        if key in known or other.end != ENDED:
            continue

        def shows(done: Execution, key: tuple[str, ...] = key) -> bool:
            return key in map(_key, done.findings)

        if lines := story_of(other, replay, shows, seconds, finding.story):
            found[at] = replace(finding, story=lines)
        break
    return found


def _key(finding: Finding) -> tuple[str, ...]:
    return (finding.kind, *re.findall(r"[\w.-]+:\d+", finding.sentence))
