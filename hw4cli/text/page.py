"""What the pages have in common: text that stays text, one style, and a policy that lets nothing else in."""

import base64
import hashlib
import html
import re
import unicodedata
from string import Template

from hw4cli.resources import data_path


def escaped(text: object) -> str:
    """Escaped for an element or a quoted attribute. Marked is what is no character of a page (controls, halves), or is
    not seen itself and turns others round (U+202E), or makes two names look like one."""
    text = str(text)
    if text.replace("\n", "").isprintable():  # most texts are, and a board has many
        return html.escape(text)
    hidden = {"Cc", "Cs", "Cf", "Zl", "Zp"}
    joiners = "\n\u200c\u200d"  # two of them are part of letters, in Persian or in signs of several people
    kept = (c if c in joiners or unicodedata.category(c) not in hidden else "\ufffd" for c in text)
    return html.escape("".join(kept))


# The templates that a page is made of, one behind the other, where these are not the common ones and its own.
PARTS = {
    "scoreboard": ("common", "board", "scoreboard"),
    "leaderboard": ("common", "board", "leaderboard"),
    "lab": ("common", "lab", "stepper"),
}
PAIR = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")


def filled(name: str, title: str, tab: str = "", style: str = "", **parts: str) -> str:
    """A page: the head that all have, and the markup, style and script of its templates. The policy lets in just these.

    `title` and `parts` are HTML, put in where the markup has $title and so on; `tab` is what the browser's tab says, if
    that is not the title; `style` comes before the templates' own.
    """
    files = PARTS.get(name, ("common", name))
    markup, styles, script = ("".join(_text(f"{file}.{kind}") for file in files) for kind in ("html", "css", "js"))
    style += styles
    own = f"<style>{style}</style>" + (f"<script>{script}</script>" if script else "")
    page = Template(_text("head.html") + markup)
    return page.substitute(policy=policy(own), style=style, script=script, title=title, tab=tab or title, **parts)


def palette() -> dict[str, tuple[str, str]]:
    """The colours that all pages share, by name ("ink"), on light paper and on dark: "#rrggbb"."""
    return {name: (light, dark) for name, light, dark in PAIR.findall(_text("common.css"))}


def _text(name: str) -> str:
    """A file of the templates; empty if there is none."""
    path = data_path(f"templates/{name}")
    return path.read_text(encoding="utf-8") if path.exists() else ""


def policy(template: str) -> str:
    """A content security policy: the page's own style and scripts, nothing else, and no request at all."""

    def sources(tag: str) -> str:
        texts = re.findall(f"<{tag}>(.*?)</{tag}>", template, re.DOTALL)
        hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
        return " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"

    return (
        f"default-src 'none'; style-src {sources('style')}; script-src {sources('script')}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
