"""A student's handout: the verdicts, why, and how to see each failure again. A page and a Markdown text, for one pair
of eyes: it tells what the program and the compiler said. So does the judge's own board, which links to them all."""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from hw4cli.judge.submission import BOARD, LOG
from hw4cli.problem import suite
from hw4cli.problem.verdict import TOLERANCE, Verdict
from hw4cli.scoring import scoreboard
from hw4cli.scoring.figures import Private
from hw4cli.scoring.reasons import groups
from hw4cli.scoring.record import Result, Rules, Standing
from hw4cli.scoring.tables import RESULT_COLUMNS, result_cells
from hw4cli.system.files import write_text
from hw4cli.text import tables
from hw4cli.text.dates import span
from hw4cli.text.page import escaped, filled
from hw4cli.text.words import printable

NAMES = PAGE, TEXT = ("handout.html", "handout.md")
PRIVATE = 0o600
LOG_LINES, LOG_BYTES = 40, 16 << 10  # of a build's words
BOARD_LINES, BOARD_CHARACTERS = 12, 2000  # of them on the board
CLASSES = {Verdict.AC: "ac", Verdict.TLE: "tle", Verdict.TLE_PLUS: "plus", Verdict.NA: "na", Verdict.JE: "je"}
BUILD = "make clean; make hw4"  # as it was built: in a copy, without what was made before
ADVICE = {
    Verdict.NA: "",
    Verdict.TLE: "",
    Verdict.TLE_PLUS: "It was killed 10 s past the limit: look for a loop that never ends, then for speed.",
    Verdict.JE: "The judge failed, not your program: it costs nothing, and is judged again.",
}


def write(folder: Path, standings: Sequence[Standing], rules: Rules, names: Mapping[str, str]) -> None:
    """Write everyone's handout into their folders in a class's folder of results, and the judge's own board beside
    them, for the owner's eyes only. `names` are the pseudonyms. Raises as NewFile does."""
    private = {one.user: Private(pseudonym=names.get(one.user, "")) for one in standings}
    ranked, places = sum(one.rank > 0 for one in standings), {path.name: path for path in folder.iterdir()}
    for one in standings:
        place = places.get(one.user)  # a journal may call its user anything, "../.." too
        if place is None or not place.is_dir():
            continue
        log = _log(place / LOG)
        short = "\n".join(log.splitlines()[-BOARD_LINES:])[-BOARD_CHARACTERS:]
        private[one.user] = Private(f"{quote(os.fsencode(one.user))}/{PAGE}", names.get(one.user, ""), short)
        handout = Handout(one, rules, ranked, names.get(one.user, ""), log)
        for name, text in ((PAGE, handout.page()), (TEXT, handout.markdown())):
            if (place / name).is_symlink():
                (place / name).unlink()
            write_text(place / name, text, PRIVATE)
    board = scoreboard.page(standings, rules, folder.resolve().name, datetime.now().astimezone(), private)
    write_text(folder / BOARD, board, PRIVATE)


def _log(path: Path) -> str:
    """The end of what a build said, as lines that steer no terminal; empty if nothing was built."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(printable(line.expandtabs()) for line in lines[-LOG_LINES:]).strip("\n")


class Handout:
    """What there is to be told to a user, in the words that both forms share."""

    def __init__(self, one: Standing, rules: Rules, ranked: int, pseudonym: str, log: str) -> None:
        self.one, self.rules, self.ranked, self.pseudonym, self.log = one, rules, ranked, pseudonym, log
        self.groups = groups(one)
        settings = one.session.get("settings") or {}
        self.repeat = int(settings.get("repeat", 1))
        self.fresh = settings.get("seeds") == "secret"

    def facts(self) -> list[str]:
        """Score, rank, hand-in and machine, a sentence each."""
        one = self.one
        rank = f"rank {one.rank} of {self.ranked}" if one.rank else "no rank yet"
        score = "score open" if one.score is None else f"score {one.score}"
        total = f"Time {one.time:.2f} s + Penalty {one.penalty:g} s = {one.time + one.penalty:.2f} s"
        told = [f"{one.passed} of {len(one.cases)} cases AC, {score}, {rank}. {total}."]
        if one.handed_in:
            late = f", {span(one.late)} late" if one.late else ""
            told.append(f"Handed in {one.handed_in.astimezone():%Y-%m-%d %H:%M %Z}{late}.")
        gpu = one.session.get("gpu") or {}
        where = f" on {gpu['name']}" if gpu.get("name") else ""
        told.append(f"Judged {str(one.session.get('started', ''))[:16].replace('T', ' ')} UTC{where}.")
        if self.pseudonym:
            told.append(f"On a board with pseudonyms you are “{self.pseudonym}”.")
        return told

    def problem(self) -> str:
        """Why nothing was judged, if nothing was."""
        return self.one.note

    def advice(self, verdict: Verdict) -> str:
        """What a verdict means for who gets it."""
        return ADVICE[verdict]

    def commands(self, results: Iterable[Result]) -> list[str]:
        """The commands that show these results again, to be typed where the program is."""
        known = suite.cases()
        results = [result for result in results if result.case in known]
        if not results:
            return []
        names = suite.names(known[result.case] for result in results)
        words = [f"hw4 judge {names} --program ./hw4"]
        by_limit: dict[float, list[str]] = {}
        for result in results:
            if result.limit != known[result.case].limit:
                by_limit.setdefault(result.limit, []).append(result.case)
        words += [f"--limit {','.join(cases)}={seconds:g}" for seconds, cases in by_limit.items()]
        words += [f"--tolerance {self.rules.tolerance:g}"] if self.rules.tolerance != TOLERANCE else []
        words += [f"--repeat {self.repeat}"] if self.repeat > 1 else []
        return [f"hw4 gen {names}", " ".join(words)]

    def hint(self) -> str:
        """What is to be known about the commands."""
        if self.fresh:
            return "You were judged by fresh inputs of the same shapes; these commands run the public ones."
        return ""

    def rows(self) -> list[list[str]]:
        """All cases, as they are shown in a table; those without a result, too."""
        blank = ["", "not judged", "-", "-", "-", ""]
        return [
            result_cells(self.one.results[case]) if case in self.one.results else [case, *blank]
            for case in self.one.cases
        ]

    def markdown(self) -> str:
        """The handout as Markdown."""
        parts = [f"# {tables.escaped(self.one.user)}", "\n".join(f"{tables.escaped(fact)}  " for fact in self.facts())]
        if self.problem():
            parts += ["## Not judged", tables.escaped(self.problem())]
            parts += [_fenced(BUILD, "sh")] if self.log else []
        if self.groups:
            parts.append("## What to look at")
            parts += [self.hint()] if self.hint() else []
        for group in self.groups:
            parts.append(f"### {group.verdict}: {group.cases}")
            parts += [words for words in (tables.escaped(group.reason), self.advice(group.verdict)) if words]
            parts += [_fenced("\n".join(self.commands(group.results)), "sh")] if self.commands(group.results) else []
        if self.log:
            parts += ["## The end of the build", _fenced(self.log)]
        if self.one.results:
            cells = [list(map(tables.escaped, row)) for row in self.rows()]
            parts += ["## All cases", tables.markdown(RESULT_COLUMNS, cells).strip()]
        return "\n\n".join(parts) + "\n"

    def page(self) -> str:
        """The handout as a page: one file that asks for nothing else."""
        return filled(
            "handout",
            title=escaped(self.one.user),
            facts="".join(f"<p>{escaped(fact)}</p>\n" for fact in self.facts()),
            sections="\n".join(filter(None, (self._problem(), self._groups(), self._build(), self._table()))),
        )

    def _problem(self) -> str:
        if not self.problem():
            return ""
        again = f"\n<pre>{BUILD}</pre>" if self.log else ""
        return f'<h2>Not judged</h2>\n<section>\n<p class="reason">{escaped(self.problem())}</p>{again}\n</section>'

    def _groups(self) -> str:
        if not self.groups:
            return ""
        parts = ["<h2>What to look at</h2>", f"<p>{self.hint()}</p>" if self.hint() else ""]
        for group in self.groups:
            verdict = f'<span class="v {CLASSES[group.verdict]}">{group.verdict}</span>'
            parts.append(f"<section>\n<h3>{verdict} {escaped(group.cases)}</h3>")
            parts += [f'<p class="reason">{escaped(group.reason)}</p>'] if group.reason else []
            parts += [f"<p>{self.advice(group.verdict)}</p>"] if self.advice(group.verdict) else []
            commands = "\n".join(self.commands(group.results))
            parts += [f"<pre>{escaped(commands)}</pre>"] if commands else []
            parts.append("</section>")
        return "\n".join(filter(None, parts))

    def _build(self) -> str:
        return f"<h2>The end of the build</h2>\n<pre>{escaped(self.log)}</pre>" if self.log else ""

    def _table(self) -> str:
        if not self.one.results:
            return ""
        head = "".join(f"<th>{escaped(name)}</th>" for name in RESULT_COLUMNS)
        rows = ""
        for case, row in zip(self.one.cases, self.rows(), strict=True):
            result = self.one.results.get(case)
            style = f"v {CLASSES[result.verdict]}" if result else "none"
            cells = [f"<td>{escaped(cell)}</td>" for cell in row]
            cells[2] = f'<td><span class="{style}">{escaped(row[2])}</span></td>'
            rows += f"<tr>{''.join(cells)}</tr>\n"
        return (
            f'<h2>All cases</h2>\n<div class="scroll" tabindex="0" role="region" aria-label="All cases">\n<table>\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>"
        )


def _fenced(text: str, language: str = "") -> str:
    """A block of code in Markdown, whatever is in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
