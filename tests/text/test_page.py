"""What the pages have in common."""

import base64
import hashlib
import re

import pytest

from hw4cli.resources import data_path
from hw4cli.text.page import PARTS, filled

COMMON = ["handout", "lab", "leaderboard", "report", "scoreboard", "similar"]


def made(name):
    """A page with all its parts left empty."""
    files = [data_path(f"templates/{file}.html") for file in PARTS.get(name, (name,))]
    markup = "".join(file.read_text() for file in files if file.exists())
    parts = {"title", *re.findall(r"\$(\w+)", markup)} - {"script"}
    return filled(name, **dict.fromkeys(parts, ""))


@pytest.mark.parametrize("name", COMMON)
def test_a_page_lets_in_its_own_style_and_script_and_nothing_else(name):
    page = made(name)
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    for tag in ("style", "script"):
        texts = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
        allowed = [f"'sha256-{digest}'" for digest in digests] or ["'none'"]
        assert f"{tag}-src {' '.join(allowed)};" in policy
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    assert not re.search(r"<[^>]+\s(style|on\w+)=", page)


@pytest.mark.parametrize("name", COMMON)
def test_these_pages_share_one_style(name):
    common = data_path("templates/common.css").read_text()
    assert common in made(name)
    own = data_path(f"templates/{name}.css").read_text()
    colours = re.findall(r"(--[\w-]+):", common)
    assert [colour for colour in colours if f"{colour}:" in own] == [], "a shared colour is set in one place"
