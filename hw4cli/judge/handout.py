"""A student's handout: the verdicts, their reasons, and the commands that reproduce each failure. It is an HTML page
and a Markdown text that only the owner can read, since they quote the program's and the compiler's output. So does the
judge's own board, which links to all handouts."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from hw4cli.judge import racecheck
from hw4cli.judge.scoring import scoreboard
from hw4cli.judge.scoring.figures import Private
from hw4cli.judge.scoring.reasons import case_names, groups, score_words
from hw4cli.judge.scoring.record import Result, Rules, Standing
from hw4cli.judge.scoring.results import RESULT_COLUMNS, result_cells
from hw4cli.judge.submission import BOARD, LOG
from hw4cli.problem import suite
from hw4cli.problem.rules import TOLERANCE
from hw4cli.problem.verdict import Verdict
from hw4cli.system.files import write_text
from hw4cli.text import tables
from hw4cli.text.dates import duration, local, now
from hw4cli.text.page import escaped, filled
from hw4cli.text.words import printable

NAMES = PAGE, TEXT = ("handout.html", "handout.md")
PRIVATE = 0o600
LOG_LINES, LOG_BYTES = 40, 16 << 10  # of a build's output
BOARD_LINES, BOARD_CHARACTERS = 12, 2000  # of it on the board
CLASSES = {Verdict.AC: "ac", Verdict.TLE: "tle", Verdict.TLE_PLUS: "plus", Verdict.NA: "na", Verdict.JE: "je"}
# Of the table's columns: what a phone shows before a value, and which is text.
MARKS = {name: f' data-name="{name}"' for name in ("time s", "limit", "max error")} | {"reason": ' class="words"'}
EXECUTED = "Executed on the CPU"
BUILD = "make clean; make hw4"  # the judge builds in a copy, without the files of earlier builds
ADVICE = {
    Verdict.NA: "",
    Verdict.TLE: "",
    Verdict.TLE_PLUS: "It was killed 10 s past the limit: look for a loop that never ends, then for speed.",
    Verdict.JE: "The judge failed, not your program: there is no penalty, and the case is judged again.",
}


def write(folder: Path, standings: Sequence[Standing], rules: Rules, names: Mapping[str, str]) -> None:
    """Write each user's handout into their folder in a class's folder of results, and the judge's own board beside
    them, readable by their owner only. `names` are the pseudonyms. Raises as NewFile does."""
    private = {standing.user: Private(pseudonym=names.get(standing.user, "")) for standing in standings}
    ranked, folders = sum(standing.rank > 0 for standing in standings), {path.name: path for path in folder.iterdir()}
    for standing in standings:
        own = folders.get(standing.user)  # the user's name in a journal may be anything, such as "../.."
        if own is None or not own.is_dir():
            continue
        pseudonym, log = names.get(standing.user, ""), _log(own / LOG)
        short = "\n".join(log.splitlines()[-BOARD_LINES:])[-BOARD_CHARACTERS:]
        private[standing.user] = Private(f"{quote(os.fsencode(standing.user))}/{PAGE}", pseudonym, short)
        handout = Handout(standing, rules, ranked, pseudonym, log, racecheck.read(own))
        for name, text in ((PAGE, handout.page()), (TEXT, handout.markdown())):
            if (own / name).is_symlink():
                (own / name).unlink()
            write_text(own / name, text, PRIVATE)
    board = scoreboard.page(standings, rules, folder.resolve().name, now(), private)
    write_text(folder / BOARD, board, PRIVATE)


def _log(path: Path) -> str:
    """The last lines of a build's output, without control characters; empty if nothing was built."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(printable(line.expandtabs()) for line in lines[-LOG_LINES:]).strip("\n")


class Handout:
    """The content of a user's handout, and its two forms."""

    def __init__(
        self,
        standing: Standing,
        rules: Rules,
        ranked: int,
        pseudonym: str,
        log: str,
        executed: racecheck.Report | None = None,
    ) -> None:
        self.executed = executed
        self.standing, self.rules, self.ranked, self.pseudonym, self.log = standing, rules, ranked, pseudonym, log
        self.groups = groups(standing)
        settings = standing.session.get("settings") or {}
        self.repeat = int(settings.get("repeat", 1))
        self.secret_seeds = settings.get("seeds") == "secret"
        self.causal, self.own_suite = settings.get("causal") is True, bool(settings.get("suite"))

    def facts(self) -> list[str]:
        """Score, rank, hand-in and machine, a sentence each."""
        standing = self.standing
        rank = f"rank {standing.rank} of {self.ranked}" if standing.rank else "no rank yet"
        seconds = standing.time + standing.penalty
        total = f"Time {standing.time:.2f} s + Penalty {standing.penalty:g} s = {seconds:.2f} s"
        sentences = [f"{standing.passed} of {len(standing.cases)} cases AC, {rank}, {score_words(standing)}. {total}."]
        if standing.handed_in:
            late = f", {duration(standing.late)} late" if standing.late else ""
            sentences.append(f"Handed in {local(standing.handed_in):%Y-%m-%d %H:%M %Z}{late}.")
        if notes := (standing.session.get("settings") or {}).get("notes"):
            sentences.append(f"Your submission: {'; '.join(notes)}.")
        gpu = standing.session.get("gpu") or {}
        where = f" on {gpu['name']}" if gpu.get("name") else ""
        sentences.append(f"Judged {str(standing.session.get('started', ''))[:16].replace('T', ' ')} UTC{where}.")
        if self.pseudonym:
            sentences.append(f"On a board with pseudonyms you are “{self.pseudonym}”.")
        return sentences

    def problem(self) -> str:
        """Why nothing was judged; empty if something was."""
        return self.standing.note

    def advice(self, verdict: Verdict) -> str:
        """Advice for a verdict; may be empty."""
        return ADVICE[verdict]

    def commands(self, results: Iterable[Result]) -> list[str]:
        """The commands that reproduce these results in the folder of the program."""
        known = suite.cases()
        results = [result for result in results if result.case in known]
        if not results:
            return []
        names = suite.ranges(known[result.case] for result in results)
        mask = ["--causal"] if self.causal else []
        judge = [f"hw4 judge {names} --program ./hw4", *mask]
        by_limit: dict[float, list[str]] = {}
        for result in results:
            if result.limit != known[result.case].limit:
                by_limit.setdefault(result.limit, []).append(result.case)
        judge += [f"--limit {case_names(cases).replace(' ', ',')}={seconds:g}" for seconds, cases in by_limit.items()]
        judge += [f"--tolerance {self.rules.tolerance:g}"] if self.rules.tolerance != TOLERANCE else []
        judge += [f"--repeat {self.repeat}"] if self.repeat > 1 else []
        return [" ".join([f"hw4 gen {names}", *mask]), " ".join(judge)]

    def hint(self) -> str:
        """A note about the commands; may be empty."""
        notes = []
        if self.secret_seeds:
            notes.append(
                "You were judged by inputs of the same shapes with secret seeds; these commands run the public ones."
            )
        if self.own_suite:
            notes.append(
                "You were judged by other cases than the assignment's: give these commands --suite and the course's "
                "file or folder of cases."
            )
        return " ".join(notes)

    def rows(self) -> list[list[str]]:
        """All cases as rows of the table, those without a result included."""
        blank = ["", "not judged", "-", "-", "-", ""]
        return [
            result_cells(self.standing.results[case]) if case in self.standing.results else [case, *blank]
            for case in self.standing.cases
        ]

    def markdown(self) -> str:
        """The handout as Markdown."""
        parts = [
            f"# {tables.escaped(self.standing.user)}",
            "\n".join(f"{tables.escaped(fact)}  " for fact in self.facts()),
        ]
        if self.problem():
            parts += ["## Not judged", tables.escaped(self.problem())]
            parts += [_fenced(BUILD, "sh")] if self.log else []
        if self.groups:
            parts.append("## What to look at")
            parts += [self.hint()] if self.hint() else []
        for group in self.groups:
            parts.append(f"### {group.verdict}: {group.cases}")
            parts += filter(None, (tables.escaped(group.reason), self.advice(group.verdict)))
            parts += [_fenced("\n".join(self.commands(group.results)), "sh")] if self.commands(group.results) else []
        if self.executed:
            parts += [f"## {EXECUTED}", *map(tables.escaped, self.executed_words())]
            parts += [
                "\n".join(f"- {tables.escaped(line)}" for line in lines) for lines in self.executed_lists() if lines
            ]
        if self.log:
            parts += ["## The end of the build", _fenced(self.log)]
        if self.standing.results:
            cells = [list(map(tables.escaped, row)) for row in self.rows()]
            parts += ["## All cases", tables.markdown(RESULT_COLUMNS, cells).strip()]
        return "\n\n".join(parts) + "\n"

    def page(self) -> str:
        """The handout as a page: one file that loads nothing else."""
        return filled(
            "handout",
            title=escaped(self.standing.user),
            tab=f"{escaped(self.standing.user)}: handout",
            facts="".join(f"<p>{escaped(fact)}</p>\n" for fact in self.facts()),
            sections="\n".join(
                filter(None, (self._problem(), self._groups(), self._executed(), self._build(), self._table()))
            ),
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
            options = re.sub(
                r"--\S+( [^-\s]\S*)?", r"<span>\g<0></span>", escaped(commands)
            )  # a line breaks between them
            parts += [f"<pre>{options}</pre>"] if commands else []
            parts.append("</section>")
        return "\n".join(filter(None, parts))

    def executed_words(self) -> list[str]:
        """What is said about the execution on the CPU, in sentences."""
        assert self.executed
        names = ", ".join(self.executed.sources)
        if self.executed.problem:
            return [f"{names}: {self.executed.problem}" if names else self.executed.problem]
        found = self.executed.findings
        end = "these mistakes were found" if found else "no mistake was found"
        return [
            f"{names} was executed on the CPU on small cases, with every load and store watched: {end}. A GPU may hide "
            "such mistakes most of the time. This decides nothing: the verdicts are those of the GPU."
        ]

    def executed_lists(self) -> list[tuple[str, ...]]:
        """Its cases, findings and notes."""
        assert self.executed
        notes = tuple(f"note: {line}" for line in self.executed.notes)
        return [self.executed.findings, notes, self.executed.cases]

    def _executed(self) -> str:
        if not self.executed:
            return ""
        words = "".join(f"<p>{escaped(sentence)}</p>\n" for sentence in self.executed_words())
        lists = "".join(
            f"<ul>{''.join(f'<li>{escaped(line)}</li>' for line in lines)}</ul>\n"
            for lines in self.executed_lists()
            if lines
        )
        return f"<h2>{EXECUTED}</h2>\n<section>\n{words}{lists}</section>"

    def _build(self) -> str:
        return f"<h2>The end of the build</h2>\n<pre>{escaped(self.log)}</pre>" if self.log else ""

    def _table(self) -> str:
        if not self.standing.results:
            return ""
        head = "".join(f'<th scope="col">{escaped(name or "verdict")}</th>' for name in RESULT_COLUMNS)
        rows = ""
        for case, row in zip(self.standing.cases, self.rows(), strict=True):
            result = self.standing.results.get(case)
            style = f"v {CLASSES[result.verdict]}" if result else "none"
            named = zip(RESULT_COLUMNS, row, strict=True)
            cells = [f"<td{MARKS.get(name, '')}>{escaped(cell)}</td>" for name, cell in named]
            cells[0] = f'<th scope="row">{escaped(case)}</th>'
            cells[2] = f'<td><span class="{style}">{escaped(row[2])}</span></td>'
            rows += f"<tr>{''.join(cells)}</tr>\n"
        return (
            '<h2>All cases</h2>\n<div class="scroll" tabindex="0" role="region" aria-label="All cases">\n'
            '<table class="stack">\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>"
        )


def _fenced(text: str, language: str = "") -> str:
    """A block of code in Markdown, with a fence that does not occur in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
