"""Excerpts of kernels: what a step changed against the one before, and the author's own kernel, part by part."""

import difflib
import re

from hw4cli.show.report.material import Material
from hw4cli.show.report.steps import Step
from hw4cli.text.tables import escaped
from hw4cli.text.words import counted, printable

AROUND = 2  # unchanged lines that are shown beside a change
MOST = 60  # lines of code in one excerpt: a report is read, not compiled
HEADER = re.compile(r"\A(?://.*\n)+\n*")  # which the report has in words
KERNEL = re.compile(r"__global__")


def change(material: Material, step: Step) -> str:
    """The lines that a step's kernel has and the one before has not, and the other way round; nothing of a program, of
    the first step, and where a file is not here."""
    if not step.before:
        return ""
    texts = [material.text(one.name) for one in (step.before, step)]
    if None in texts:
        return ""
    before, own = (HEADER.sub("", text or "").splitlines() for text in texts)
    found = list(difflib.unified_diff(before, own, n=AROUND, lineterm=""))[2:]  # behind the names
    if not found:
        return ""
    added, removed = (sum(line.startswith(sign) for line in found) for sign in "+-")
    verb = "is" if added == 1 else "are"
    words = f"Against `{step.before.name}`, {counted(added, 'line')} {verb} new and {removed} gone"
    return f"{words}{_cut(found)}:\n\n{_fenced(found[:MOST], 'diff')}"


def listing(material: Material) -> str:
    """The kernels in the author's own file, each function with the comment above it; nothing of a kernel of hw4's."""
    text = material.text(material.kernel) if material.story(material.kernel) else None
    parts = [part.splitlines() for part in _parts(text or "") if KERNEL.search(part)]
    shown = []
    for part in parts:
        comment = [line.removeprefix("//").strip() for line in part if line.startswith("//")]
        code = part[len(comment) :]
        about = escaped(" ".join(comment)).rstrip(".") or f"From `{material.kernel}`"
        shown.append(f"{about}{_cut(code)}:\n\n{_fenced(code[:MOST], 'cpp')}")
    return "\n\n".join(shown)


def _parts(text: str) -> list[str]:
    """The functions of a file, and what else stands at its outermost level, each with the comment right above it."""
    parts, lines = [], list[str]()
    for line in [*HEADER.sub("", text).splitlines(), ""]:
        whole = "\n".join(lines)
        if line.strip() or whole.count("{") > whole.count("}"):
            lines.append(line)
        elif lines:
            parts.append(whole)
            lines = []
    return [*parts, *["\n".join(lines)] * bool(lines)]


def _cut(lines: list[str]) -> str:
    """What is said where an excerpt has not all lines."""
    return f" (the first {MOST} of {len(lines)} lines)" if len(lines) > MOST else ""


def _fenced(lines: list[str], language: str) -> str:
    """Lines of code in Markdown, which can neither end the block nor pass for a mark of the report."""
    code = "\n".join(printable(line.expandtabs(4)) for line in lines).replace("<!--", "<! --")
    fence = "~" * max(4, 1 + max(map(len, re.findall("~+", code)), default=0))
    return f"{fence}{language}\n{code}\n{fence}"
