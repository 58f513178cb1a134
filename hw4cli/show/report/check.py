"""What a report still lacks, and what in it does not agree: a line for each."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from hw4cli.show.picture import gpus
from hw4cli.show.report import document, figures
from hw4cli.show.report.material import Material, is_amd
from hw4cli.show.report.write import Contents, read, template
from hw4cli.system.reading import is_file_in
from hw4cli.text.words import counted

# A unit, as a caption of a chart of the author's own has to name one.
UNIT = re.compile(
    r"(?<![A-Za-z])(?:[mµun]?s|seconds?|[KMGT]i?B(?:/s)?|bytes?|[GMT]?FLOPS?(?:/s)?|%|[×W]|x|MHz|GHz)(?![A-Za-z])"
)
OTHERS = "Others"  # the end of the heading of a section that may stay empty
REMOTE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True)
class Lack:
    """Where something is lacking, and what."""

    where: str
    what: str


def lacks(path: Path, material: Material, form: str) -> list[Lack]:
    """Everything that a report lacks. Nothing is written."""
    text = read(path)
    if text is None:
        return [Lack(path.name, f"not begun: `hw4 report {quote(str(path.parent))}` writes it"), *_of_records(material)]
    if (document.settings(text) or {}).get("form") != form:
        return [Lack(path.name, "not a report that hw4 began"), *_of_records(material)]
    contents = Contents(material)
    found = [*_of_sections(text, form), *_of_blanks(text), *_of_blocks(text, contents)]
    found += _of_figures(text, path, contents)
    return [*found, *_of_records(material)]


def _of_sections(text: str, form: str) -> Iterator[Lack]:
    """The sections of the form that are not there, and those in which nobody has answered a question."""
    wanted = template(form)
    there = {document.number_of(one.words) for one in document.headings(text)}
    for heading in document.headings(wanted):
        number = document.number_of(heading.words)
        if number and number not in there:
            yield Lack("sections", f"“{heading.words}” is missing")
        elif not number or heading.words.endswith(OTHERS):
            continue
        elif document.own_words(wanted, number) and not document.own_words(text, number):
            yield Lack("sections", f"“{heading.words}” has no words of yours")


def _of_blanks(text: str) -> Iterator[Lack]:
    for blank in document.blanks(text):
        yield Lack(_at(text, blank.line), f"still to fill in: {blank.words}")


def _of_blocks(text: str, contents: Contents) -> Iterator[Lack]:
    """What has no record, was changed by hand, or is not what the records hold now."""
    now = contents.all()
    for mark in document.damaged_marks(text):
        yield Lack(_at(text, mark.line), "a mark of hw4's has lost its other half")
    for one in document.lacking(text):
        yield Lack(_at(text, one.line), f"without a record: {one.words}")
    for block in document.blocks(text):
        where = _at(text, block.line)
        if block.edited:
            yield Lack(where, f"the text between hw4's marks “{block.name}” was changed by hand")
        elif block.name not in now:
            yield Lack(where, f"no record holds “{block.name}” any more")
        elif document.refilled(text, {block.name: now[block.name]}) != text:
            yield Lack(where, f"“{block.name}” is not what the records hold now: run `hw4 report` again")


def _of_figures(text: str, path: Path, contents: Contents) -> Iterator[Lack]:
    """Charts without a file, out of date, or, of the author's own, without axes, unit and record in the caption."""
    own = {f"{figures.FOLDER}/{name}.svg": picture for name, picture in contents.figures.pictures.items()}
    files = {one.record.name for one in contents.material.sources} | {one.source for one in contents.material.profile}
    for caption, name in document.images(text):
        where = _at(text, caption.line)
        if REMOTE.match(name):
            yield Lack(where, f"the picture {name} is not a file beside the report")
        elif not is_file_in(path.parent, path.parent / name):
            yield Lack(where, f"there is no file {name} in the folder")
        elif name in own:
            if not figures.is_current(path.parent, Path(name).stem, own[name]):
                yield Lack(where, f"{name} is not what the records hold now: run `hw4 report` again")
        else:
            yield from _of_own_figure(where, name, caption.words, path.parent, files)


def _of_own_figure(where: str, name: str, caption: str, folder: Path, files: set[str]) -> Iterator[Lack]:
    if not UNIT.search(caption):
        yield Lack(where, f"the caption of {name} names no axes with their units, such as: time in ms over N")
    if not any(file in caption for file in files) and not _names_a_file(caption, folder):
        yield Lack(where, f"the caption of {name} names no file of this folder that it was made from")


def _names_a_file(caption: str, folder: Path) -> bool:
    words = (word.strip(".,;:()") for word in caption.split())
    return any("." in word and is_file_in(folder, folder / word) for word in words)


def _of_records(material: Material) -> Iterator[Lack]:
    """Files that cannot be used, rows that failed, and records that do not belong together."""
    for problem in (*material.problems, *material.unused):
        yield Lack("records", problem)
    for source in material.sources:
        if source.record.failures:
            count = counted(len(source.record.failures), "row")
            yield Lack(source.record.name, f"{count} without a time: {source.record.failures[0]}")
    yield from _mixed_gpus(material)
    commits: dict[str, list[str]] = {}
    for source in material.sources:
        if source.commit:
            commits.setdefault(source.commit, []).append(source.record.name)
    if len(commits) > 1:
        listed = "; ".join(f"{commit} ({', '.join(names)})" for commit, names in commits.items())
        yield Lack("records", f"of {len(commits)} commits: {listed}")
    for commit, names in commits.items():
        if commit.endswith("-dirty"):
            yield Lack("records", f"of code that no commit has: {commit} ({', '.join(names)})")


def _mixed_gpus(material: Material) -> Iterator[Lack]:
    """More than one GPU of NVIDIA's, or of AMD's: section 4 compares one of each."""
    records = [source.record for source in material.sources]
    judged = str(((material.judged.session.get("gpu") or {}).get("name") if material.judged else "") or "")
    names = list(dict.fromkeys([*gpus(records), *([judged] if judged else [])]))
    for vendor in (True, False):
        own = [name for name in names if is_amd(name) is vendor]
        if len(own) > 1:
            listed = [f"{name} ({', '.join(_of_gpu(material, name, judged))})" for name in own]
            yield Lack("records", f"of {len(own)} GPUs: {'; '.join(listed)}")


def _of_gpu(material: Material, gpu: str, judged: str) -> Sequence[str]:
    files = [source.record.name for source in material.sources if source.record.gpu == gpu]
    return [*files, *(["the journal"] if judged == gpu else [])]


def _at(text: str, line: int) -> str:
    """A line, and the section that it is in."""
    section = document.section_at(text, line)
    return f"line {line} ({section})" if section else f"line {line}"
