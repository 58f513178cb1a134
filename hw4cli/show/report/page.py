"""A report's Markdown as a page: one file that loads nothing else, its pictures in it, for a screen and for paper."""

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from hw4cli.errors import InputError, MachineError
from hw4cli.show.report import document, figures
from hw4cli.system.reading import is_file_in, read_regular
from hw4cli.text.page import escaped, filled

if TYPE_CHECKING:
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token

MADE = "<!-- made by hw4 report -->"  # by which a page is known for one that may be replaced
KINDS = {".svg": "svg+xml", ".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"}
# How a note begins, and the class of its quote.
NOTES = {"FILL IN": "blank", "MISSING": "missing"}
LEAST_OF_BLOCKS = 4  # columns of a table that is blocks on a phone
LONGEST_OF_LINE = 24  # characters of a value that stands beside others there
SELF_EVIDENT = ("", "(B, N, d)", "verdict", "reason")  # columns whose values need no name
NOTE = re.compile(rf"^({'|'.join(NOTES)}):\s*")


def page(text: str, folder: Path) -> str:
    """The page of a report whose pictures' names are relative to a folder. MachineError without markdown-it-py."""
    titles = [one.words for one in document.headings(text)]
    return filled("report", title=escaped(titles[0] if titles else "Report"), body=_rendered(text, folder), made=MADE)


def is_ours(path: Path) -> bool:
    """Whether there is no file at a place, or one that hw4 made and may replace."""
    try:
        return MADE.encode() in read_regular(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def _rendered(text: str, folder: Path) -> str:
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        raise MachineError(
            "a report's page needs markdown-it-py, which is not installed (pip install markdown-it-py)"
        ) from None
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    for rule, render in RULES.items():
        parser.add_render_rule(rule, render)
    tokens = parser.parse(text)
    _mark_up(tokens)
    rendered: str = parser.renderer.render(tokens, parser.options, {"folder": folder})
    return rendered


def _mark_up(tokens: "Sequence[Token]") -> None:
    """Give headings their anchors, blanks their look, and cells their side: a style of its own the policy forbids."""
    for place, token in enumerate(tokens):
        if token.type == "table_open":
            _mark_table(tokens, place)
        style = token.attrs.pop("style", None)
        if style:
            token.attrSet("class", "end" if "right" in str(style) else "middle" if "center" in str(style) else "start")
        inside = tokens[place + 1] if place + 1 < len(tokens) else None
        if token.type == "heading_open" and inside and (number := document.number_of(inside.content)):
            token.attrSet("id", f"s{number}")
        if token.type == "blockquote_open":
            _mark_blank(token, tokens[place + 1 : place + 3])
        if token.type == "paragraph_open" and inside and (picture := _only_picture(inside)):
            picture.meta["alone"] = token.hidden = tokens[place + 2].hidden = True


def _mark_table(tokens: "Sequence[Token]", at: int) -> None:
    """Give headings their scope. On a phone the rows of a table of several columns become blocks: there each value has
    its column's name with it, but for what needs none, and what is longer than a number has a line of its own."""
    end = next(place for place in range(at, len(tokens)) if tokens[place].type == "table_close")
    inside = range(at, end)
    heads = [tokens[place + 1].content for place in inside if tokens[place].type == "th_open"]
    for place in inside:
        if tokens[place].type == "th_open":
            tokens[place].attrSet("scope", "col")
    if len(heads) < LEAST_OF_BLOCKS:
        return
    tokens[at].attrSet("class", "stack")
    cells = [place for place in inside if tokens[place].type == "td_open"]
    for number, place in enumerate(cells):
        head, text = heads[number % len(heads)].replace("`", ""), tokens[place + 1].content
        if number % len(heads) and text and head not in SELF_EVIDENT:
            tokens[place].attrSet("data-name", head)
        if len(text) > LONGEST_OF_LINE:
            tokens[place].attrJoin("class", "words")


def _mark_blank(quote: "Token", inside: "Sequence[Token]") -> None:
    """A quote that begins with FILL IN or MISSING becomes a note of that kind."""
    text = inside[-1] if inside and inside[-1].type == "inline" else None
    match = NOTE.match(text.content) if text else None
    if text and match and text.children:
        quote.attrSet("class", NOTES[match[1]])
        first = text.children[0]
        first.content = NOTE.sub("", first.content)


def _only_picture(inline: "Token") -> "Token | None":
    """The picture of a paragraph that is one picture and nothing else."""
    children = inline.children or []
    return children[0] if [child.type for child in children] == ["image"] else None


def _html(self: "RendererHTML", tokens: "Sequence[Token]", place: int, options: Any, env: Any) -> str:
    """HTML in the text: comments are left out, all else is shown as it was typed."""
    return escaped(re.sub(r"<!--.*?-->\s*", "", tokens[place].content, flags=re.DOTALL))


def _table_open(self: "RendererHTML", tokens: "Sequence[Token]", place: int, options: Any, env: Any) -> str:
    look = f' class="{tokens[place].attrs["class"]}"' if "class" in tokens[place].attrs else ""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="table">\n<table{look}>\n'


def _table_close(self: "RendererHTML", tokens: "Sequence[Token]", place: int, options: Any, env: Any) -> str:
    return "</table>\n</div>\n"


def _image(self: "RendererHTML", tokens: "Sequence[Token]", place: int, options: Any, env: Any) -> str:
    """A picture, its file's bytes in the page; as a figure with a caption where a paragraph is nothing else."""
    name = unquote(str(tokens[place].attrs["src"]))
    words = self.renderInlineAsText(tokens[place].children or [], options, env)
    path = Path(env["folder"]) / name
    kind = KINDS.get(path.suffix.lower())
    try:
        data = base64.b64encode(read_regular(path)).decode() if kind and is_file_in(env["folder"], path) else ""
    except (OSError, ValueError):
        data = ""
    shown = f'<span class="missing">There is no picture {escaped(name)}.</span>'
    if data:
        shown = f'<img src="data:image/{kind};base64,{data}" alt="{escaped(words)}">'
    if not tokens[place].meta.get("alone"):
        return shown
    look = "chart" if f"{figures.FOLDER}/" in name and kind == KINDS[".svg"] else "photo"
    frame = f'<div class="scroll" tabindex="0" role="region" aria-label="picture">{shown}</div>'
    return f'<figure class="{look}">{frame}{_caption(words)}</figure>\n'


def _caption(words: str) -> str:
    return f"<figcaption>{escaped(words)}</figcaption>" if words else ""


RULES = {
    "html_block": _html,
    "html_inline": _html,
    "table_open": _table_open,
    "table_close": _table_close,
    "image": _image,
}
