"""The tables of suites of programs with known mistakes: what the emulator finds, beside compute-sanitizer's tools, and
what watching costs (benchmarks/measure/sanitizer.py)."""

from statistics import median

from benchmarks.measure.sanitizer import FOUND, NOT_RUN, TOOLS
from benchmarks.pages.table import Record, Table

BUGGY, RIGHT = "buggy", "right"
NAMES = {
    "gpuverify": "GPUVerify",
    "scor": "ScoR, small programs",
    "scor-applications": "ScoR, applications",
    "samples": "compute-sanitizer's samples",
    "indigo3": "Indigo3, a sample",
    "hecbench": "HeCBench's reported races",
    "hecbench-programs": "HeCBench, small programs",
    "llm.c": "llm.c, dev/cuda",
}
# Of these only races count, of the tools' findings, too: that some read what nobody has written is another matter.
RACES = ("scor", "scor-applications", "hecbench")
RACECHECK = TOOLS[0]
CLOCK = 1e-3  # seconds: what the processor's time is known to


def _of(record: Record, suite: str) -> list[Record]:
    return [row for row in record["rows"] if row["suite"] == suite]


def _found(row: Record, tool: str) -> bool:
    shown = row["tools"].get(tool, {}).get("outcome") == FOUND
    return bool(shown and (row["suite"] not in RACES or tool == RACECHECK))


def beside(record: Record) -> Table:
    """A line for each suite: of the programs that show a mistake how many are found, and of the right ones how many are
    flagged, by the emulator and by each tool on the same programs."""
    lines, missed = [], []
    for suite, name in NAMES.items():
        rows = [row for row in _of(record, suite) if len(row.get("tools", {})) == len(TOOLS)]
        buggy, right = ([row for row in rows if row["expected"] == what] for what in (BUGGY, RIGHT))
        if not rows:
            continue
        own = [row for row in buggy if row["hw4"] == FOUND]
        any_tool = [row for row in buggy if any(_found(row, tool) for tool in TOOLS)]
        wrong = sum(row["hw4"] == FOUND and not row["note"] for row in right)
        tools = [str(sum(_found(row, tool) for row in buggy)) for tool in TOOLS]
        flagged = [f"{sum(_found(row, tool) for row in right)}" for tool in TOOLS]
        lines.append(
            [
                name,
                str(len(buggy)),
                f"**{len(own)}**",
                *tools,
                str(len(any_tool)),
                str(len(right)),
                str(wrong),
                *flagged,
            ]
        )
        missed += [f"{name}: {row['program']}" for row in any_tool if row not in own]
    unended = sum(run["outcome"] == NOT_RUN for row in record["rows"] for run in row.get("tools", {}).values())
    unbuilt = sum("problem" in row for row in record["rows"])
    below = (
        f"On {record.get('gpu', '')}, {' '.join(record.get('sanitizer', []))}; {unbuilt} programs of the lists do not "
        f"compile for it, {unended} runs of a tool came to no end within {record.get('seconds', 0):g} s or failed.",
        f"Found by a tool and not by the emulator: {'; '.join(missed) or 'none'}.",
    )
    header = ["suite", "with a mistake", "hw4", *TOOLS, "any of the four", "right", "flagged by hw4", *TOOLS]
    return Table(header, lines, below if lines else ())


def recall(record: Record) -> Table:
    """A line for each suite: how many of the mistakes that show in one execution the emulator finds, and how many right
    programs it flags."""
    lines = []
    for suite, name in NAMES.items():
        rows = _of(record, suite)
        buggy, right = ([row for row in rows if row["expected"] == what] for what in (BUGGY, RIGHT))
        if not buggy:
            continue
        found = [row for row in buggy if row["hw4"] == FOUND]
        notes = sum(row["note"] for row in found)
        wrong = [row for row in right if row["hw4"] == FOUND]
        own = sum(not row["note"] for row in wrong)
        lines.append(
            [
                name,
                str(len(buggy)),
                f"{len(found)} ({100 * len(found) / len(buggy):.0f} %)",
                str(notes) if notes else "",
                str(len(right)),
                str(own),
                str(len(wrong) - own) if len(wrong) > own else "",
            ]
        )
    header = ["suite", "show a mistake", "found", "as a note alone", "right", "flagged", "with a note"]
    return Table(header, lines)


def cost(record: Record) -> Table:
    """A line for each suite: the processor's time of all programs, unwatched and watched, how many times as long one
    takes, and the memory."""
    lines = []
    for suite, name in NAMES.items():
        rows = [row for row in _of(record, suite) if "plain" in row]
        if not rows:
            continue
        plain, watched = (sum(row[key] for row in rows) for key in ("plain", "seconds"))
        slower = sorted(row["seconds"] / max(row["plain"], CLOCK) for row in rows)
        larger = [row["bytes"] / row["plain_bytes"] for row in rows if row["plain_bytes"]]
        lines.append(
            [
                name,
                str(len(rows)),
                f"{plain:.1f}",
                f"{watched:.1f}",
                f"{watched / plain:.1f}",
                f"{median(slower):.1f}",
                f"{slower[-1]:.0f}",
                f"{median(larger):.2f}",
                f"{max(row['bytes'] for row in rows) / 1e6:.0f}",
            ]
        )
    header = ["suite", "programs", "unwatched s", "watched s", "times as long", "median", "most", "times the memory"]
    return Table([*header, "most MB"], lines)
