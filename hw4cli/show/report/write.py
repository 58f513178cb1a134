"""Writing a report: a new one from its template, or new figures into the blocks of an old one."""

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from string import Template

from hw4cli.errors import InputError, os_error
from hw4cli.resources import data_path
from hw4cli.show.draw import render
from hw4cli.show.report import amdparts, code, document, figures, kernelparts, measuredparts, questions
from hw4cli.show.report.figures import Figures
from hw4cli.show.report.material import Material
from hw4cli.show.report.page import is_ours
from hw4cli.show.report.steps import LEAST, Step, ladder_table, statistics, steps, structure
from hw4cli.system.files import write_text
from hw4cli.system.reading import leads_out, read_regular
from hw4cli.text.tables import escaped

FORMS = {"assignment": "report", "worklog": "worklog", "demo": "demo"}  # and their files' names


class Contents:
    """What every block of a report holds, by its name."""

    def __init__(self, material: Material) -> None:
        self.material, self.figures, self.steps = material, Figures(material), steps(material)

    def all(self) -> dict[str, str]:
        """The content of every block that this material has, the steps' included."""
        return {name: self.of(name) for name in (*NAMES, *self.of_steps)}

    @cached_property
    def of_steps(self) -> dict[str, Step]:
        """The names of the steps' blocks."""
        return {f"{part}:{document.key_of(step.name)}": step for part in PARTS for step in self.steps}

    def of(self, name: str) -> str:
        """The content of one block."""
        if name in self.of_steps:
            return PARTS[name.partition(":")[0]](self.material, self.of_steps[name])
        if name == "tiles":
            return kernelparts.tiles(self.material, self.figures)
        if name == "judged":
            return measuredparts.judged(self.material)
        if name == "ladder":
            shown = [self.figures.shown(name)] if len(self.steps) >= LEAST else []
            return "\n\n".join([*shown, ladder_table(self.steps)])
        return TEXTS[name](self.material) if name in TEXTS else self.figures.shown(name)


TEXTS = {
    "about": measuredparts.about,
    "idea": kernelparts.idea,
    "listing": code.listing,
    "geometry": kernelparts.geometry,
    "launch": kernelparts.launch,
    "sram": kernelparts.sram,
    "profile": measuredparts.profile,
    "system": measuredparts.system,
    "gpus": measuredparts.two_gpus,
    "amd": amdparts.experiments,
    "headroom": measuredparts.headroom,
    "questions": questions.questions,
}
PARTS = {"structure": structure, "code": code.change, "step": statistics}  # the blocks of a step
NAMES = ("judged", *TEXTS, *figures.MAKERS)


def template(form: str) -> str:
    """The text that a report of a form begins as."""
    return _template(FORMS[form])


def _template(name: str) -> str:
    return data_path(f"templates/{name}.md").read_text(encoding="utf-8")


def _step(step: Step) -> str:
    """The text of a new step, its block still empty."""
    return Template(_template("step")).substitute(name=escaped(step.name), key=document.key_of(step.name))


def check_places(folder: Path, *names: str) -> None:
    """Raise InputError if a file that is to be read and written in a folder is elsewhere, by a link in its place."""
    for name in (*names, figures.FOLDER, *(f"{figures.FOLDER}/{one}.svg" for one in figures.MAKERS)):
        if leads_out(folder, folder / name):
            raise InputError(f"{folder / name} is a link that leads out of {folder}: remove it")


def read(path: Path) -> str | None:
    """A report's text as its bytes are, line ends included; None if there is none. InputError if it is not text."""
    try:
        return read_regular(path).decode()
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise InputError(f"{path.parent} is not a folder: name the one with your records") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text at byte {error.start}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def settings_of(path: Path, form: str) -> Mapping[str, str]:
    """The kernel and the case that a report was begun for; nothing if there is none."""
    text = read(path)
    found = document.settings(text) if text is not None else None
    return found if found and found.get("form") == form else {}


def lost_words(path: Path, text: str, form: str) -> str | None:
    """Why writing into this text could lose what its author wrote, in a sentence; None if it cannot."""
    found, copy = document.settings(text), kept_name(path).name
    if found is None or found.get("form") != form:
        return f"{path} is not a report that hw4 began: --force renames it to {copy} and begins one"
    if marks := document.damaged_marks(text):
        return (
            f"{path}, line {marks[0].line}: a mark of hw4's has lost its other half: restore it, or --force "
            f"renames the file to {copy} and begins a new one"
        )
    if edited := [block for block in document.blocks(text) if block.edited]:
        return (
            f"{path}, line {edited[0].line}: the text between hw4's marks was changed and would be lost: move it below "
            f"<!-- hw4: end -->, or --force keeps a copy as {copy} and writes that block anew"
        )
    return None


def check_page(path: Path, force: bool) -> None:
    """Raise InputError if a page would replace one that hw4 did not make; with `force`, put that aside."""
    if is_ours(path):
        return
    if not force:
        raise InputError(f"{path} is not a page of hw4's, and would be replaced: rename it, or --force does")
    _put_aside(path)


def _put_aside(path: Path) -> None:
    try:
        path.rename(kept_name(path))
    except OSError as error:
        raise os_error(error, f"rename {path}") from None


def kept_name(path: Path) -> Path:
    """Where --force keeps the old file: report-1.md, or the next that is free."""
    number = 1
    while os.path.lexists(place := path.with_name(f"{path.stem}-{number}{path.suffix}")):
        number += 1
    return place


def write_report(path: Path, material: Material, form: str, force: bool) -> str:
    """Write the report and its charts beside it; the new text. Everything between marks is written anew, everything
    else stays. Raises InputError where text would be lost, unless `force`, which keeps a copy."""
    contents = Contents(material)
    old = read(path)
    foreign = figures.foreign(path.parent, list(contents.figures.pictures))
    lost = lost_words(path, old, form) if old is not None else None
    if lost and not force:
        raise InputError(lost)
    if foreign and not force:
        raise InputError(f"{foreign[0]} is not a chart of hw4's, and would be replaced: rename it, or --force does")
    if old is not None and lost:
        write_text(kept_name(path), old)
    for picture in foreign:
        _put_aside(picture)
    text = updated(old, contents, form)
    kept = {"form": form, "kernel": material.asked_kernel, "case": material.asked_case}
    text = document.with_settings(text, kept)
    shown = {name for _, name in document.images(text)}
    needed = {name: p for name, p in contents.figures.pictures.items() if f"{figures.FOLDER}/{name}.svg" in shown}
    outdated = {name: p for name, p in needed.items() if not figures.is_current(path.parent, name, p)}
    figures.write(path.parent, {name: render(picture, "svg") for name, picture in outdated.items()})
    write_text(path, text)
    return text


def updated(old: str | None, contents: Contents, form: str) -> str:
    """The text with what the records hold now: a new one, or the old one with new blocks and new steps."""
    usable = old is not None and (document.settings(old) or {}).get("form") == form and not document.damaged_marks(old)
    if old is None or not usable:
        text = document.begun(template(form), contents.of)
    else:
        text = document.refilled(old, contents.all())
    present = {block.name for block in document.blocks(text)}
    for step in contents.steps:
        if f"step:{document.key_of(step.name)}" not in present:
            text = document.with_new_step(text, document.begun(_step(step), contents.of))
    return text
