"""The report as a page and as a PDF, in a real browser."""

import re
import shutil

import pytest
from browser import PHONE, WIDTH, opened, screen
from helpers import run_hw4


@pytest.fixture(params=["report", "worklog"])
def report(request, chromium, finished):
    """A page, open; at the end nothing was asked for but the page itself, and nothing complained."""
    with opened(chromium, (finished / f"{request.param}.html").as_uri()):
        yield chromium


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDTH, PHONE])
def test_the_page_fits_its_screen_and_shows_every_chart(report, width, scheme):
    screen(report, width, scheme)
    assert report.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    drawn = report.execute_script(
        "return Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth > 300)))"
    )
    assert drawn
    assert all(drawn)
    assert report.execute_script("return [...document.images].every(i => i.alt.includes('From '))")
    number = "return getComputedStyle(document.querySelector('figcaption'), '::before').content"
    assert "Figure" in report.execute_script(number)


def test_blanks_stand_out_and_numbers_stand_to_the_right(report):
    colour = "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor"
    assert report.execute_script(colour, "blockquote.blank") != report.execute_script(colour, "body")
    assert report.execute_script("return getComputedStyle(document.querySelector('td.end')).textAlign") == "right"
    assert (
        report.execute_script("return [...document.querySelectorAll('p')].some(p => /hw4:|<!--/.test(p.textContent))")
        is False
    )


def test_the_pdf_is_printed_and_nothing_else_is_left_beside_it(chromium, finished, tmp_path):
    """The fixture is asked for so that the test is skipped where no browser is."""
    folder = shutil.copytree(finished, tmp_path / "mine")
    result = run_hw4("report", folder, "-o", tmp_path / "a.pdf")
    assert (result.returncode, result.stdout) == (0, "")
    content = (tmp_path / "a.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert 5 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 15
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
