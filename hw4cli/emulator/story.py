"""What an answer that depends on the order of turns depends on: the fewest switches that still change it, as a story.

An execution in another order than the usual one records its switches (kernels/emulator/schedule.h): who went before a
lower number. Any subset of them can be replayed, and delta debugging finds one of which none can be left out (A.
Zeller, R. Hildebrandt, "Simplifying and isolating failure-inducing input", 2002).
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

MOST_LINES = 8
_LEVELS = ("block", "warp", "lane")  # as schedule.h numbers them


class Ordered(Protocol):
    """An execution in some order of turns."""

    @property
    def switches(self) -> tuple[str, ...]:
        """In what the order differed from the usual one, if that was recorded."""

    @property
    def exchanged(self) -> tuple[str, ...]:
        """Which accesses exchanged their order, in lines, if it was replayed."""


T = TypeVar("T", bound=Ordered)


def processor_time() -> float:
    """Of this process and of those that it has waited for, in seconds."""
    return sum(os.times()[:4])


def fewest(
    switches: Sequence[str], first: Callable[[Sequence[list[str]]], int | None], until: float
) -> tuple[list[str], bool]:
    """Of switches with which something fails, some of which none can be left out; and whether that is sure, as the
    search ends at `until`, a time of the processor. `first` says which of several attempts is the first that
    fails, if one does.

    >>> def first(attempts):
    ...     return next((at for at, some in enumerate(attempts) if "c" in some and "f" in some), None)
    >>> fewest("abcdefgh", first, float("inf"))
    (['c', 'f'], True)
    """
    left, parts = list(switches), 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        pieces = [left[at : at + size] for at in range(0, len(left), size)]
        rests = [[x for other in pieces if other is not piece for x in other] for piece in pieces] if parts > 2 else []
        attempts = [*pieces, *rests]
        failing = first(attempts)
        if failing is not None:
            left, parts = attempts[failing], 2 if failing < len(pieces) else max(parts - 1, 2)
        elif processor_time() > until:
            return left, False
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(left))
    return left, True


def story_of(
    execution: T,
    replay: Callable[[Sequence[Sequence[str]]], Iterable[T]],
    fails: Callable[[T], bool],
    seconds: float,
    happens: Sequence[str] = (),
) -> tuple[str, ...]:
    """Lines that say what an execution in another order failed by; nothing if its switches show it no more, or if
    `seconds`, of the processor's time, are 0. `replay` executes the program with one list of switches after the other,
    and `fails` says whether an execution still shows it. `happens` is what happens, where the finding has lines for it;
    else the accesses that exchange their order."""
    switches = execution.switches
    if not switches or seconds <= 0:
        return ()
    until = processor_time() + seconds
    last: T | None = None

    def first(attempts: Sequence[Sequence[str]]) -> int | None:
        nonlocal last
        for at, done in enumerate(replay(attempts)):
            if fails(done):
                last = done
                return at
            if processor_time() > until:
                break
        return None

    if first([switches]) is None:
        return ()
    left: Sequence[str] = switches
    for level in (*"210",):  # most are of lanes, which seldom matter
        others = [switch for switch in left if switch.split()[1] != level]
        if len(others) < len(left) and processor_time() < until and first([others]) is not None:
            left = others
    needed, sure = fewest(left, first, until)
    words = f"{len(needed):,} of {len(switches):,} switches {'is' if len(needed) == 1 else 'are'} enough for it"
    if not sure:
        words += f", or fewer: the search ended after {seconds:g} s"
    shown = [_sentence(switch) for switch in needed[:3]]
    if len(needed) > len(shown):
        shown.append(f"and {len(needed) - len(shown):,} more")
    return (words, *shown, *(happens or (last.exchanged if last else ())))[:MOST_LINES]


def _sentence(switch: str) -> str:
    """A switch in words."""
    launch, level, block, round_, warp, _, which, before = map(int, switch.split())
    name = _LEVELS[level]
    where = {"block": "", "warp": f"block {block}, ", "lane": f"block {block}, warp {warp}, "}[name]
    when = "begins" if level == 0 else "goes"
    turn = "" if level == 0 else f", in turn {round_ + 1} of the block" if round_ else ""
    return f"launch {launch}: {where}{name} {which} {when} before {name} {before}{turn}"
