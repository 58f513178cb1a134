"""Questions for a demonstration: what somebody can answer of his program who wrote it, and what the records say of it.

Each question is about a figure of these records or a line of this kernel; what is not there is not asked about. Below
it stands what the records have, for whoever asks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hw4cli.device.occupancy import occupancy
from hw4cli.errors import MachineError
from hw4cli.lab.measure.explanation import formula_tile
from hw4cli.plans.plan import Plan
from hw4cli.problem.rules import TOLERANCE
from hw4cli.problem.verdict import Verdict
from hw4cli.problem.workload import Workload
from hw4cli.show.records import Point
from hw4cli.show.report.document import missing
from hw4cli.show.report.kernelparts import no_kernel, sweeps
from hw4cli.show.report.material import Material, function_of
from hw4cli.show.report.profile import METRICS
from hw4cli.show.report.steps import Step, factor, steps
from hw4cli.text.tables import escaped
from hw4cli.text.words import counted, printable

BARRIER = re.compile(r"__syncthreads\w*\s*\(")
COMMENT = re.compile(r"//.*")
MOST_LINES, MOST_CASES = 4, 3  # lines of a kernel, and cases without AC, that are asked about
ERROR = 1e-8  # below which nothing is asked: an answer that is exact


@dataclass(frozen=True)
class Question:
    """What is asked, about which section of the assignment's report, and what the records say."""

    section: str
    asked: str
    known: str


def questions(material: Material) -> str:
    """The questions as a numbered list, each with what is known; what is missing where there is nothing to ask."""
    found = [*_of_launches(material), *_of_text(material), *_of_records(material), *_of_judging(material)]
    if not found:
        return no_kernel(material) or missing("no record is here of which a question could be made")
    lines = [
        f"{n}. **{one.section}** {one.asked}\n\n   *What is known:* {one.known}" for n, one in enumerate(found, start=1)
    ]
    return "\n\n".join(lines)


# ---- The launch


def _of_launches(material: Material) -> Iterator[Question]:
    shape = material.shape
    if not material.variant or not shape:
        return
    try:
        plan = material.plan(shape)
    except MachineError:
        return
    yield _of_a_block(material, plan, shape)
    yield from _of_shared_memory(material, plan, shape)
    yield from _of_occupancy(material, plan)
    yield _of_the_last_rows(plan, shape)


def _of_a_block(material: Material, plan: Plan, shape: Workload) -> Question:
    main = plan.launches[plan.main]
    rows = plan.macros["BR"]
    each = -(-shape.Nq // rows)
    number = main.grid * 2 // 3
    known = f"a tile of {rows} rows, so {counted(each, 'block')} for a batch's rows"
    known += f", and each again for {plan.splits} parts of the keys" if plan.splits > 1 else ""
    if main.grid == shape.B * each:
        batch, row0 = number // each, number % each * rows
        last = min(row0 + rows, shape.Nq) - 1
        known += f": in the order of batches and rows, batch {batch}, rows {row0:,} to {last:,}"
    asked = (
        f"`{main.symbol}` starts {main.grid:,} blocks of {main.block} threads on {escaped(material.case)}, {shape}. "
        f"Which rows of which batch are block {number:,}'s, and which of them are thread {main.block // 2}'s?"
    )
    return Question("1.b", asked, f"{known}.")


def _of_shared_memory(material: Material, plan: Plan, shape: Workload) -> Iterator[Question]:
    assert material.variant is not None
    parts = {name: size for name, size in material.variant.regions(shape.d, plan.macros).items() if size}
    if not parts:
        return
    BR, BC = plan.macros["BR"], plan.macros["BC"]
    own, formula = sum(parts.values()), formula_tile(shape.d)
    asked = (
        f"A block takes {own / 1024:.1f} KB of shared memory with tiles of {BR}x{BC}. Which arrays are that, of how "
        f"many bytes? The assignment's formula gives {formula[0]}x{formula[1]} for 48 KB: why is yours another?"
    )
    listed = ", ".join(f"{name} {size:,}" for name, size in parts.items())
    share = 100 * own / material.props.shared_limit
    yield Question("1.c, 1.e", asked, f"{listed} bytes; {share:.0f} % of what a block may have.")


def _of_occupancy(material: Material, plan: Plan) -> Iterator[Question]:
    registers = material.point and material.point.figures.get("registers")
    if not registers:
        return
    main = plan.launches[plan.main]
    found = occupancy(material.props, int(registers), main.shared, main.block)
    if not found:
        return
    asked = (
        f"A thread has {registers:.0f} registers, and a multiprocessor holds {counted(found.blocks, 'block')} at once. "
        "What would you have to give up for one more, and would it be faster?"
    )
    limited = " and ".join(found.limited_by)
    yield Question("1.d", asked, f"{found.share:.0%} of its warps; the next block would lack {limited}.")


def _of_the_last_rows(plan: Plan, shape: Workload) -> Question:
    BR, BC = plan.macros["BR"], plan.macros["BC"]
    N = shape.N + 3
    asked = (
        f"What happens with N = {N:,}: which threads have no row, what stands in a tile behind the last key, and where "
        "is that in the code?"
    )
    rows, keys = N % BR or BR, N % BC or BC
    known = f"the last of {-(-N // BR):,} blocks has {rows} of {BR} rows, and the last tile {keys} of {BC} keys."
    return Question("1.b", asked, known)


# ---- The kernel's text


def _of_text(material: Material) -> Iterator[Question]:
    text = material.text(material.kernel) if material.kernel else None
    if text is None:
        return
    lines = [COMMENT.sub("", line) for line in text.splitlines()]
    barriers = [n for n, line in enumerate(lines, start=1) if BARRIER.search(line)]
    if barriers:
        name = escaped(material.kernel)
        asked = f"`{name}` waits at {_lines(barriers)} for all threads of a block. What goes wrong without each?"
        known = f"{counted(len(barriers), 'barrier')}; `hw4 check {name} --run` finds a race where one is missing."
        yield Question("1.b", asked, known)
    unrolled = [n for n, line in enumerate(lines, start=1) if "#pragma unroll" in line or "UNROLL " in line]
    if unrolled:
        asked = f"Why are the loops at {_lines(unrolled)} unrolled: what is in registers because of it?"
        yield Question("1.d", asked, "an array whose index is no constant lies in local memory, as in halfwarp_local.")


def _lines(numbers: list[int]) -> str:
    some = ", ".join(map(str, numbers[:MOST_LINES]))
    more = f" and {len(numbers) - MOST_LINES} more" if len(numbers) > MOST_LINES else ""
    return f"line{'s' * (len(numbers) > 1)} {some}{more}"


# ---- What was measured


def _of_records(material: Material) -> Iterator[Question]:
    linked = {step.name: step for step in steps(material) if step.before}
    by_gain = sorted(linked.values(), key=lambda step: step.before.time / step.time if step.before else 1)
    yield from (_of_a_step(linked[name]) for name in dict.fromkeys(step.name for step in (by_gain[-1:] + by_gain[:1])))
    swept = next((found for (kernel, _), found in sweeps(material).items() if kernel == material.kernel), [])
    if len(swept) > 1:
        yield _of_tiles(min(swept, key=lambda p: p.ms), max(swept, key=lambda p: p.ms))
    yield from _of_counters(material)
    error = material.point and material.point.figures.get("max_error")
    if error and error > ERROR:
        asked = (
            f"Your largest error on {escaped(material.case)} is {error:.1e}. Where does it come from, and for which "
            "inputs would it be larger?"
        )
        yield Question("3.a", asked, f"the tolerance is {TOLERANCE:g}, {TOLERANCE / error:,.3g} times as much.")


def _of_a_step(step: Step) -> Question:
    before = step.before
    assert before
    ratio = before.time / step.time
    words = f"{factor(ratio)} times as fast as" if ratio >= 1 else f"{factor(1 / ratio)} times as long as"
    verb = "is" if ratio >= 1 else "takes"
    asked = (
        f"`{escaped(step.name)}` {verb} {words} `{escaped(before.name)}`. What did you change, and by which figure did "
        "you know what it would do?"
    )
    times = f"{before.time:.4g} and {step.time:.4g} {step.unit} on {escaped(step.where)}"
    return Question("3.b", asked, f"{times}; {escaped(step.record.name)}.")


def _of_tiles(first: Point, last: Point) -> Question:
    names = ["{}x{}".format(*p.tile) for p in (first, last) if p.tile]
    asked = (
        f"Of the tiles of `{escaped(first.kernel)}`, {names[0]} takes {first.ms:.4g} ms and {names[1]} {last.ms:.4g} "
        "ms. Which resource makes the difference, and which counter would show it?"
    )
    return Question("3.b", asked, f"{last.ms / first.ms:.3g} times; `hw4 profile --tile {names[1]}` counts it.")


def _of_counters(material: Material) -> Iterator[Question]:
    own = next((one for one in material.profile if one.kernel == function_of(material.kernel)), None)
    for metric in METRICS:
        value = own.figures.get(metric.name) if own else None
        if own and value is not None:
            unit = f" {metric.unit}" if metric.unit else ""
            yield Question("2", f"{metric.name} is {value:.4g}{unit}. {_ASKED[metric.name]}", f"{escaped(own.source)}.")


_ASKED = {
    "achieved_occupancy": "Why is it not 1, and is that a loss?",
    "sm_efficiency": "When is a multiprocessor idle in your program?",
    "shared_load_throughput": "Which loads are these, and how many multiplications does each feed?",
    "shared_store_throughput": "Why is it so much less than what is loaded?",
    "gld_throughput": "How often is each byte of K and V loaded, by this and the time?",
    "gst_throughput": "What is stored, and how often?",
}


def _of_judging(material: Material) -> Iterator[Question]:
    standing = material.judged
    found = [standing.results[case] for case in standing.cases if case in standing.results] if standing else []
    failed = [result for result in found if result.verdict is not Verdict.AC]
    for result in failed[:MOST_CASES]:
        known = escaped(printable(result.reason)) or "the journal has no reason"
        yield Question("3.c", f"{result.case} is {result.verdict}. Why, and what would you do?", f"{known}.")
    slowest = max(found, key=lambda one: one.wall or 0.0, default=None)
    if slowest and slowest.wall and not failed:
        asked = f"{slowest.case} takes longest, {slowest.wall:.2f} s. Which part of that is your kernel's?"
        yield Question("3.c", asked, "`hw4 --timing` tells reading, copies, kernels and writing apart.")
