"""Make what shows the records: `make results`. Tables in README.md and docs/, the list in benchmarks/README.md,
pictures in docs/pictures/, and hw4cli/plans/measured.py and hw4cli/device/tuning/measured.py.

A table stands between `<!-- results: RECORD... VIEW -->` and `<!-- end -->`; VIEWS has the views, and each says what
its lines are. Instead of a record that is not made yet, or has no line for a view, there is a sentence. chosen.py makes
the tables of docs/which-kernel.md from the dispatch, features.py those of docs/api.md.
"""

import re
import sys
from pathlib import Path

from benchmarks import HERE, ROOT
from benchmarks.measure.recipes import GROUPS
from benchmarks.pages import (
    arrays,
    calls,
    gradients,
    kernels,
    pictures,
    predicted,
    profiles,
    rows,
    scaling,
    suites,
    table,
    tuning,
)
from benchmarks.pages.chosen import with_chosen
from benchmarks.pages.facts import run_spread, source, tuned_source
from benchmarks.pages.features import with_features
from benchmarks.pages.rungs import ladder
from hw4cli.lab.tables import read_record
from hw4cli.text.tables import markdown

MARKED = re.compile(r"(<!-- results: (\S+(?: \S+)*) (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
NAMED = re.compile(r"benchmarks/([\w/-]+\.(?:json|csv))")  # a record, in a page's words
GPUS = ("h100", "h200")
VIEWS: dict[str, table.View] = {
    "list": kernels.as_list,
    "versus": kernels.versus,
    "brief": kernels.brief,
    "files": kernels.files,
    "masks": kernels.masks,
    "lengths": kernels.over_lengths,
    "rungs": kernels.rung_limits,
    "energy": kernels.energy,
    "programs": kernels.programs,
    "builds": kernels.builds,
    "arrays": arrays.arrays,
    "others": arrays.others,
    "decoding": arrays.decoding,
    "sequences": arrays.sequences,
    "windows": arrays.windows,
    "scores": arrays.scores,
    "wide": arrays.wide,
    "exactness": arrays.exactness,
    "float32": arrays.float32,
    "calls": calls.calls,
    "tokens": calls.tokens,
    "gradients": gradients.gradients,
    "sweep": gradients.sweep,
    "designs": gradients.designs,
    "errors": gradients.errors,
    "counters": profiles.counters,
    "assignment": profiles.assignment,
    "limits": profiles.limits,
    "article": profiles.article,
    "asked": profiles.asked,
    "tuned": tuning.tuned,
    "quickly": tuning.quickly,
    "candidates": tuning.candidates,
    "schedules": tuning.schedules,
    "scaling": scaling.scaling,
    "shards": scaling.in_shards,
    "predictions": scaling.predictions,
    "nodes": scaling.over_nodes,
    "predicted": predicted.factors,
    "recall": suites.recall,
    "beside": suites.beside,
    "cost": suites.cost,
}


def filled(text: str) -> str:
    """A page's text with its marked tables made anew."""

    def shown(match: re.Match[str]) -> str:
        begin, names, view, end = match.groups()
        paths = [HERE / name for name in names.split()]
        missing = [name for name, path in zip(names.split(), paths, strict=True) if not path.exists()]
        found = "" if missing else table.text(VIEWS[view], *map(table.read, paths))
        return "".join((begin, found or f"*Not measured yet: {', '.join(missing) or names}.*\n", end))

    return MARKED.sub(shown, text)


def pages() -> list[Path]:
    """The pages that may hold tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def listed(text: str) -> str:
    """The text of benchmarks/README.md with its list of records made anew."""
    begin, end = "<!-- records -->\n", "<!-- end -->"
    return re.sub(f"(?s)(?<={begin}).*?(?={end})", lambda _: records(), text)


def records() -> str:
    """A table for each group of records: what is made, for which GPUs there is one, and where it is shown."""
    where: dict[str, list[str]] = {}
    for page in pages():
        text = page.read_text(encoding="utf-8")
        shown = [name for _, names, *_ in MARKED.findall(text) for name in names.split()]
        for name in (*shown, *NAMED.findall(text)):
            where.setdefault(name, []).append(f"[{page.name}](../{page.relative_to(ROOT)})")
    for picture, (_, names, _) in pictures.PICTURES.items():
        for name in names.split():
            where.setdefault(name, []).append(f"[{picture}.svg](../docs/pictures/{picture}.svg)")
    lists = ""
    for title, recipes in GROUPS.items():
        lines = []
        for name, recipe in recipes.items():
            found = {gpu: recipe.file.replace("GPU", gpu) for gpu in (GPUS if "GPU" in recipe.file else ("CPUs",))}
            here = [f"[{gpu}]({file})" for gpu, file in found.items() if (HERE / file).exists()]
            places = dict.fromkeys(place for file in found.values() for place in where.get(file, ()))
            lines.append([f"`{name}`", recipe.what, ", ".join(here) or "-", ", ".join(places) or "-"])
        lists += f"\n### {title}\n\n{markdown(['record', 'holds', 'of', 'shown in'], lines)}"
    return f"{lists}\n"


def tuned_records() -> list[table.Record]:
    """The records of `hw4 tune`."""
    return [table.read(path) for path in sorted((HERE / "tuned").glob("*.json"))]


def made_page(page: Path) -> str:
    """A page's text with all that is made in it."""
    return ladder(page, with_features(with_chosen(filled(page.read_text(encoding="utf-8")))), HERE)


def made() -> dict[Path, str]:
    """What each file that is made from the records must hold."""
    found = [read_record(path) for path in sorted(HERE.glob("*.json"))]
    texts = {page: made_page(page) for page in pages()}
    own = HERE / "README.md"
    return {
        **texts,
        own: listed(own.read_text(encoding="utf-8")),
        rows.PAGE: rows.page(rows.PAGE.read_text(encoding="utf-8")),
        ROOT / "hw4cli/plans/measured.py": source(found),
        ROOT / "hw4cli/device/tuning/measured.py": tuned_source(tuned_records(), run_spread(found)),
    }


if __name__ == "__main__":
    for path, text in made().items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(ROOT)} is up to date again", file=sys.stderr)
    for name in pictures.make():
        print(f"{name}.svg is up to date again", file=sys.stderr)
