"""`hw4 plot`: a picture from records, or a page of them."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.terminal.grammar import CASE, SHAPE, as_shape
from hw4cli.cli.terminal.options import FILE, output_option, shared
from hw4cli.cli.terminal.params import OneOf, items
from hw4cli.system.importing import Importing
from hw4cli.text.words import print_message, printable

if TYPE_CHECKING:
    from hw4cli.cli.terminal.params import Items

# What a kind shows, and what it takes beside records.
KINDS: dict[str, tuple[str, ...]] = {
    "latency": ("over",),
    "rate": ("over",),
    "speedup": ("base", "over", "dense_base"),
    "ladder": ("case",),
    "occupancy": ("case",),
    "tiles": (),
    "error": (),
    "accuracy": (),
    "programs": (),
    "roofline": (),
    "traffic": ("shape",),
    "energy": ("over",),
    "scaling": (),
}
PAGE = ".html"


class Word(click.ParamType[Any]):
    """One plain argument: a kind of picture, a case, a shape, or a record's file; its kind and its value."""

    name = "word"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Any other word than a kind, a shape or a case is a file's name, which reading it finds to be right or not."""
        word = str(value)
        if word in KINDS:
            return "kind", word
        if SHAPE.fullmatch(word):
            return "shape", as_shape(word)
        if CASE.fullmatch(word) and not Path(word).exists():
            return "case", word
        close = [] if "." in word or Path(word).exists() else get_close_matches(word, KINDS, n=1)
        if close:
            raise click.UsageError(f"there is no file and no kind of picture {word!r}. Did you mean {close[0]!r}?", ctx)
        return "record", FILE.convert(word, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "Items":
        """The kinds that begin so; else files."""
        found = [kind for kind in KINDS if kind.startswith(incomplete)] if incomplete else []
        return items(found) if found else items([incomplete], "file")


@click.command()
@click.argument("words", nargs=-1, type=Word(), metavar="[KIND | CASE | B,N,d] [RECORD ...]")
@output_option(".svg", ".png", ".pdf", PAGE)
@click.option("--base", metavar="KERNEL", help="speedup: the kernel to compare with.")
@click.option(
    "--over",
    type=OneOf(["N", "cases"]),
    help="latency, rate, speedup, energy: over N, or case by case.  [default: N where one B, or one B·N, has three]",
)
@click.option(
    "--dense-base", is_flag=True, help="speedup: compare causal kernels, too, with that kernel without a mask."
)
@shared("title", metavar="TEXT")
@click.pass_context
def plot(
    ctx: click.Context,
    /,
    words: Sequence[tuple[str, Any]],
    outputs: tuple[Path, ...],
    title: str | None,
    **options: Any,
) -> None:
    """Draw records as a picture, or as a page to choose in.

    \b
    hw4 plot ladder ladder.json t28 -o ladder.svg
    hw4 plot traffic ncu.csv 16,4096,64 -o traffic.png
    hw4 plot benchmarks/*.json -o lab.html   all, in a browser
    hw4 plot -o lab.html                     kernels and their steps alone

    \b
    KIND is
    latency   time of each kernel, over N or by case
    rate      TFLOP/s of each kernel, over N or by case
    speedup   how many times as fast as --base
    ladder    all kernels on one case, against the first
    occupancy the rate of each kernel on one case over its occupancy
    tiles     TFLOP/s by a tile's rows and keys
    error     largest error of each kernel, and its bound
    accuracy  largest error of each kernel over its rate
    programs  whole programs, from file to file
    roofline  rates below roofs: of records, or of hw4 bench roofs
    traffic   bytes of the GPU's memory, measured and modelled
    energy    GFLOP per joule, over N or by case
    scaling   times as fast as one GPU, over GPUs

    RECORDS are what `hw4 bench` wrote by -o (docs/plots.md).
    """
    found: dict[str, list[Any]] = {kind: [value for one, value in words if one == kind] for kind, _ in words}
    records = found.get("record", [])
    pages = bool(outputs) and all(path.suffix == PAGE for path in outputs)
    if not records and not (pages and not words):
        raise click.UsageError(
            f"name records, which `hw4 bench -o FILE.json` writes; without any, -o FILE{PAGE} alone makes a page of "
            "the kernels and their steps",
            ctx,
        )
    if not outputs:
        raise click.UsageError("name what to write: -o FILE.svg, FILE.png, FILE.pdf, or FILE.html for a page", ctx)
    for kind, values in found.items():
        if kind != "record" and len(values) > 1:
            raise click.UsageError(f"one {kind} is enough, and these are {len(values)}", ctx)
    kind, shape, case = (found.get(name, [None])[0] for name in ("kind", "shape", "case"))
    options |= {"shape": shape, "case": case}
    pictures = [path for path in outputs if path.suffix != PAGE]
    _check_options(ctx, kind, options, pictures, title, records)
    from hw4cli.system.files import check_place

    for path in outputs:
        check_place(path, *records)
    if pictures:
        _draw(str(kind), records, pictures, options)
    for path in outputs:
        if path not in pictures:
            _write_page(path, records, title or "hw4 lab")
        click.echo(printable(f"wrote {path}"), err=True)


def _check_options(
    ctx: click.Context,
    kind: str | None,
    options: dict[str, Any],
    pictures: Sequence[Path],
    title: str | None,
    records: Sequence[Path],
) -> None:
    """Raise UsageError for what does not go together."""
    if pictures and title is not None:
        raise click.UsageError(f"--title goes with a page, FILE{PAGE}", ctx)
    if pictures and kind is None:
        raise click.UsageError(f"name the kind of picture: {', '.join(KINDS)}", ctx)
    if not pictures and kind is not None:
        raise click.UsageError(f"a page shows all kinds: leave out {kind}", ctx)
    if (
        "case" in KINDS.get(kind or "", ()) and options["shape"] and not options["case"]
    ):  # a case that is named after its shape
        options |= {"case": "x".join(map(str, options["shape"].sizes)), "shape": None}
    for name, value in options.items():
        if value not in (None, False) and name not in KINDS.get(kind or "", ()):
            word = f"--{name.replace('_', '-')}" if name in ("base", "over", "dense_base") else f"a {name}"
            raise click.UsageError(f"{word} does not go with {kind or 'a page'}", ctx)
    if kind == "speedup" and not options["base"]:
        raise click.UsageError("speedup needs --base KERNEL, the kernel to compare with", ctx)
    if kind == "traffic" and not options["shape"] and any(path.suffix == ".csv" for path in records):
        raise click.UsageError("traffic needs the shape that was profiled, as in 16,4096,64", ctx)


def _draw(kind: str, paths: Sequence[Path], pictures: Sequence[Path], options: dict[str, Any]) -> None:
    with Importing():
        from hw4cli.show.draw import render
        from hw4cli.show.kinds import KINDS as DRAWN
        from hw4cli.show.kinds import unused
        from hw4cli.show.records import load
        from hw4cli.show.scaling import load_scaling
        from hw4cli.show.traffic import load_profile
        from hw4cli.system.files import NewFile

    chosen = {name: options[name] for name in KINDS[kind] if options.get(name) not in (None, False)}
    readers: dict[str, Callable[[Path], Any]] = {"traffic": load_profile, "scaling": load_scaling}
    records = [readers.get(kind, load)(path) for path in paths]
    picture = DRAWN[kind](records, **chosen)
    for path in pictures:
        content = render(picture, path.suffix.removeprefix("."))
        with NewFile(path) as file:
            file.write(memoryview(content))
    for sentence in unused(kind, picture, records):
        print_message(sentence)


def _write_page(path: Path, paths: Sequence[Path], title: str) -> None:
    with Importing():
        from hw4cli.errors import InputError
        from hw4cli.show.labpage import page
        from hw4cli.show.records import OtherRecordError, Record, load
        from hw4cli.system.files import write_text

    records, left_out = list[Record](), list[str]()
    for one in paths:
        try:
            records.append(load(one))
        except OtherRecordError as error:
            left_out.append(str(error))
    if left_out and not records:
        raise InputError(left_out[0])
    write_text(path, page(records, title, left_out))
    for sentence in left_out:
        print_message(f"not used: {sentence}")
