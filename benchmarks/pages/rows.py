"""The rows of the documents that the project grew from, with evidence for each: benchmarks/rows.csv as docs/rows.md.

A piece of evidence is a command ("$ hw4 bench half tilelang"), a test ("T file::name", of tests/), a record ("R
file[conditions]", of benchmarks/) or a text ("F file#words"). tests/test_rows_of_documents.py holds each to what is
there.
"""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import HERE, ROOT
from hw4cli.text.tables import escaped, markdown

DATA, PAGE = HERE / "rows.csv", ROOT / "docs/rows.md"
YES, PARTLY, NO, NOTHING = "yes", "partly", "no", "n/a"
STATUSES = {
    YES: "delivered, by a command, a record or a test that is named",
    PARTLY: "something is missing, and the row says what",
    NO: "not there",
    NOTHING: "the row asks for nothing",
}
DOCUMENTS = {
    "000": "a work log of a TileLang entry that leads a public GPU leaderboard",
    "001": "the assignment",
    "002": "a CUDA project from scratch with an interactive page",
    "003": "the report of a Triton entry, forward and backward",
    "004": "the course's best report, on a GTX 1080 and an MI210",
}
COMMAND, TEST, RECORD, TEXT = "$ ", "T ", "R ", "F "
BEGIN, END = "<!-- rows -->\n", "<!-- end -->"


@dataclass(frozen=True)
class Row:
    """A row: its document and number, its status, what it asks for, the evidence, and what is missing."""

    name: str
    status: str
    what: str
    evidence: tuple[str, ...]
    reason: str

    @property
    def document(self) -> str:
        """Which of DOCUMENTS it is from."""
        return self.name.partition("-")[0]


def rows() -> list[Row]:
    """All rows, in the order of the documents."""
    with DATA.open(encoding="utf-8", newline="") as file:
        lines = [*csv.DictReader(file)]
    return [
        Row(one["row"], one["status"], one["what"], tuple(filter(None, one["evidence"].split(" | "))), one["reason"])
        for one in lines
    ]


def parts(evidence: str) -> tuple[str, str, tuple[str, ...]]:
    """The kind of a piece of evidence, the file or command, and its conditions, function or words."""
    kind, rest = evidence[:2], evidence[2:]
    if kind == RECORD:
        path, _, conditions = rest.removesuffix("]").partition("[")
        return kind, path, tuple(filter(None, conditions.split(",")))
    if kind == TEST:
        path, _, name = rest.partition("::")
        return kind, path, (name,) if name else ()
    if kind == TEXT:
        path, _, words = rest.partition("#")
        return kind, path, (words,) if words else ()
    return kind, rest, ()


def shown(evidence: str) -> str:
    """A piece of evidence as the page has it."""
    kind, what, conditions = parts(evidence)
    if kind == COMMAND:
        return f"`{what}`"
    path = {TEST: f"tests/{what}", RECORD: f"benchmarks/{what}", TEXT: what}[kind]
    link = f"[{path.rpartition('/')[2]}](../{path})"
    if kind == RECORD and conditions:
        return f"{link} ({escaped(', '.join(conditions))})"
    if kind == TEST and conditions:
        return f"{link}: {escaped(conditions[0].removeprefix('test_').replace('_', ' '))}"
    return link


def table(found: Sequence[Row]) -> str:
    """The rows of one document."""
    lines = []
    for row in found:
        evidence = "; ".join(map(shown, row.evidence))
        lines.append([row.name, escaped(row.what), row.status, evidence or "-", escaped(row.reason) or "-"])
    return markdown(["row", "asks for", "status", "evidence", "what is missing"], lines)


def text() -> str:
    """What stands between BEGIN and END of the page."""
    found = rows()
    counts = Counter(row.status for row in found)
    listed = [[status, words, str(counts[status])] for status, words in STATUSES.items()]
    tables = "".join(
        f"\n## {number}: {words}\n\n{table([row for row in found if row.document == number])}"
        for number, words in DOCUMENTS.items()
    )
    return f"{markdown(['status', 'means', 'rows'], [*listed, ['all', '', str(len(found))]])}{tables}"


def page(old: str) -> str:
    """The page with its rows made anew."""
    head, _, rest = old.partition(BEGIN)
    return f"{head}{BEGIN}{text()}{END}{rest.partition(END)[2]}"
