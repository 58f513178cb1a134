"""What was compared, as rows of tables, a JSON document, and a page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hw4cli.judge.similarity.pairs import Extract, Pair, Usual
from hw4cli.judge.similarity.winnowing import GRAM
from hw4cli.judge.similarity.works import Work
from hw4cli.text import tables
from hw4cli.text.dates import local
from hw4cli.text.page import escaped, filled
from hw4cli.text.words import counted

SCHEMA = 1
COLUMNS = ("similar", "student", "with", "of its code", "of the other's", "tokens", "longest passage")
MEANING = (
    "The number is the share of the shorter program's tokens, without the starter code, that stand in the other in the "
    f"same order for {GRAM} or more in a row. It is no proof: read the lines, and ask the students."
)
MOST_SHOWN = 100  # pairs on a page
FOUND_MUCH = 0.5  # of all pairs: then something is common to all


@dataclass(frozen=True)
class Similarities:
    """The result for a class: its works, the pairs from the threshold on, what is usual, who is not compared and why.
    `sought`: the students whose pairs are wanted, whatever their similarity; () for all from the threshold on."""

    works: Sequence[Work]
    others: Sequence[Work]
    pairs: Sequence[Pair]
    usual: Usual
    missing: Mapping[str, str]
    threshold: float
    sought: Sequence[str] = ()

    def sentences(self) -> list[str]:
        """What was compared and found, in sentences."""
        usual, many = self.usual, counted(len(self.works), "submission")
        found = [f"{many} in {counted(usual.pairs, 'pair')} compared"]
        if self.others:
            own = [one.label for one in self.others if one.is_own]
            former = len(self.others) - len(own)
            words = [*([counted(former, "submission") + " of other folders"] if former else []), *map(_own_words, own)]
            found[0] += f", and with {' and '.join(words)}"
        if usual.pairs > 1:
            found.append(
                f"half of the class's pairs have at most {usual.median:.0f}% in common, 95 of 100 at most "
                f"{usual.high:.0f}%"
            )
        listed = [one for one in self.pairs if one.second in self.works]
        if not self.sought:
            found.append(
                f"{counted(len(self.pairs), 'pair')} from {self.threshold:g}% on"
                if self.pairs
                else f"no pair has {self.threshold:g}% or more in common"
            )
            if usual.pairs > 1 and len(listed) > FOUND_MUCH * usual.pairs:
                found.append("most pairs are similar: name the code that all were given by --exclude")
        return [f"{sentence[0].upper()}{sentence[1:]}." for sentence in found]

    def remarks(self) -> list[str]:
        """Who is not compared, and which files are not."""
        left_out = [f"{one.label}: {note}" for one in (*self.works, *self.others) for note in one.notes]
        return [*(f"{label} is not compared: {why}" for label, why in self.missing.items()), *left_out]


def _own_words(label: str) -> str:
    return f"{label}'s own programs"


def cells(pair: Pair) -> list[str]:
    """A pair's row of the table."""
    mine, theirs = pair.shares
    return [
        f"{pair.similarity:.0f}%",
        pair.first.label,
        pair.second_label,
        f"{mine:.0f}%",
        "-" if pair.second.is_own else f"{theirs:.0f}%",
        f"{pair.shared:,}",
        longest(pair),
    ]


def longest(pair: Pair) -> str:
    """Where the longest passage stands in the first program: hw4.cu:12-48; "-" for none."""
    if not pair.passages:
        return "-"
    passage = pair.passages[0]
    source, first = pair.first.place(passage.first)
    last = pair.first.lines[passage.first + passage.length - 1]
    return f"{pair.first.sources[source].name}:{first}-{last}"


def where(work: Work, extract: Extract) -> str:
    """A source and its lines: hw4.cu, lines 12 to 48."""
    name = work.sources[extract.source].name
    lines = f"lines {extract.first} to {extract.last}" if extract.last > extract.first else f"line {extract.first}"
    return f"{name}, {lines}"


def csv_text(found: Similarities) -> str:
    """The pairs as CSV, a row each."""
    rows = [
        {
            "similarity": round(pair.similarity, 1),
            "first": pair.first.label,
            "second": pair.second_label,
            "share_of_first": round(pair.shares[0], 1),
            "share_of_second": "" if pair.second.is_own else round(pair.shares[1], 1),
            "tokens": pair.shared,
            "longest": longest(pair),
        }
        for pair in found.pairs
    ]
    fields = ("similarity", "first", "second", "share_of_first", "share_of_second", "tokens", "longest")
    return tables.comma_separated(rows) if rows else ",".join(fields) + "\n"


def json_text(found: Similarities) -> str:
    """The result as a document (docs/similar.md)."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "threshold": found.threshold,
        "submissions": [
            {"label": one.label, "tokens": one.total, "own": one.size, "notes": list(one.notes)} for one in found.works
        ],
        "not_compared": dict(found.missing),
        "usual": {
            "pairs": found.usual.pairs,
            "median": round(found.usual.median, 1),
            "p95": round(found.usual.high, 1),
        },
        "pairs": [
            {
                "similarity": round(pair.similarity, 1),
                "first": pair.first.label,
                "second": pair.second_label,
                "shares": [round(share, 1) for share in pair.shares],
                "tokens": pair.shared,
                "passages": [
                    [_document(pair.first, mine), _document(pair.second, theirs)] for mine, theirs in pair.extracts
                ],
            }
            for pair in found.pairs
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _document(work: Work, extract: Extract) -> dict[str, Any]:
    return {"file": work.sources[extract.source].name, "first": extract.first, "last": extract.last}


def page(found: Similarities, title: str, now: datetime) -> str:
    """The pairs as a page, with their lines side by side: one file that loads nothing else."""
    shown = found.pairs[:MOST_SHOWN]
    facts = [*found.sentences(), MEANING, f"{local(now):%Y-%m-%d %H:%M %Z}."]
    if len(found.pairs) > MOST_SHOWN:
        facts.append(f"The first {MOST_SHOWN} of {len(found.pairs):,} pairs are shown.")
    sections = [_table(shown), *(_section(number, pair) for number, pair in enumerate(shown, 1))]
    if remarks := found.remarks():
        items = "".join(f"<li>{escaped(remark)}</li>" for remark in remarks)
        sections.append(f"<h2>Not compared</h2>\n<ul>{items}</ul>")
    return filled(
        "similar",
        title=escaped(title),
        tab=f"{escaped(title)}: similar programs",
        facts="".join(f"<p>{escaped(fact)}</p>\n" for fact in facts),
        sections="\n".join(filter(None, sections)),
    )


def _table(pairs: Sequence[Pair]) -> str:
    if not pairs:
        return ""
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    rows = ""
    for number, pair in enumerate(pairs, 1):
        first, *rest = map(escaped, cells(pair))
        shown = "".join(
            f'<td data-name="{name}">{cell}</td>' if place else f"<td>{cell}</td>"  # a phone shows the names
            for place, (name, cell) in enumerate(zip(COLUMNS[1:], rest, strict=True))
        )
        rows += f'<tr><th scope="row"><a href="#pair-{number}">{first}</a></th>{shown}</tr>\n'
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="All pairs">\n<table class="stack">\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>"
    )


def _section(number: int, pair: Pair) -> str:
    """A pair: its number, and its lines side by side."""
    names = escaped(pair.first.label), escaped(pair.second.label)
    mine, theirs = pair.shares
    of = f"{mine:.0f}% of {names[0]}" + ("" if pair.second.is_own else f", {theirs:.0f}% of {names[1]}")
    parts = [
        f'<h2 id="pair-{number}">{names[0]} and {names[1]}: {pair.similarity:.0f}%</h2>',
        f"<p>{counted(pair.shared, 'common token')}: {of}.</p>",
    ]
    for one, other in pair.extracts:
        sides = ((pair.first, one), (pair.second, other))
        parts.append(f'<div class="sides">{"".join(_side(work, extract) for work, extract in sides)}</div>')
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def _side(work: Work, extract: Extract) -> str:
    """One program's lines; the common ones are marked."""
    lines = ""
    for number in range(extract.first, extract.last + 1):
        text = escaped(work.sources[extract.source].lines[number - 1].expandtabs(4))
        kind = "mark" if number in extract.common else "span"
        lines += f"<{kind}><b>{number}</b>{text}\n</{kind}>"
    label = f"{escaped(work.label)}: {escaped(where(work, extract))}"
    return f'<figure><figcaption>{label}</figcaption><pre tabindex="0">{lines}</pre></figure>'
