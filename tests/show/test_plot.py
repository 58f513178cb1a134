"""`hw4 plot` as a user meets it: the file it writes, and what it says of mistakes."""

import sys
import xml.etree.ElementTree as ET

import pytest
from browser import COLOURS, opened, screen
from helpers import ROOT, fails, folder_is_clean
from records import KEPT, kept, row, written

from benchmarks.pages.pictures import PICTURES, outdated
from hw4cli.show.draw import render
from hw4cli.show.kinds import KINDS

LADDER = KEPT / "h200-ladder.json"


def test_the_same_record_makes_the_same_file_in_every_process(hw4, tmp_path):
    nowhere = {"MPLCONFIGDIR": "/proc/nowhere"}  # a folder that nobody can make
    result = hw4("plot", "ladder", LADDER, "-o", tmp_path / "a.svg", cwd=tmp_path, env=nowhere)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", f"wrote {tmp_path / 'a.svg'}\n")
    picture = KINDS["ladder"]([kept("h200-ladder")])
    drawn = (tmp_path / "a.svg").read_bytes()
    assert drawn == render(picture, "svg")
    assert all(words in drawn.decode() for words in (">flash</text>", "5.792 ms  ×30.3", "commit 4f5e727"))
    folder_is_clean(tmp_path, "a.svg")


def test_a_picture_is_read_out_by_its_title_and_what_it_was_made_of():
    root = ET.fromstring(render(KINDS["ladder"]([kept("h200-ladder")]), "svg"))
    svg = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    assert [child.tag for child in root][:2] == [f"{svg}title", f"{svg}desc"]
    assert root[0].text == "The ladder on t28 (4, 16384, 64)"
    assert "commit 4f5e727" in root[1].text


INKS = """
const svg = document.querySelector("svg"), paper = numbers(getComputedStyle(svg.querySelector("#patch_1 path")).fill);
const ink = one => contrast(numbers(getComputedStyle(one).fill), paper);
return [paper, [...svg.querySelectorAll("text")].map(one => [one.textContent, ink(one)])];
"""


@pytest.mark.parametrize("kind", ["ladder", "rate"])
def test_where_the_readers_system_is_dark_a_picture_is_dark_and_can_be_read(chromium, tmp_path, kind):
    (tmp_path / "a.svg").write_bytes(render(KINDS[kind]([kept("h200-ladder")]), "svg"))
    with opened(chromium, (tmp_path / "a.svg").as_uri()):
        papers = []
        for scheme in ("light", "dark"):
            screen(chromium, scheme=scheme)
            paper, inks = chromium.execute_script(COLOURS + INKS)
            papers.append(sum(paper))
            assert len(inks) > 15
            assert [(text, ratio) for text, ratio in inks if ratio < 4.5] == []
        assert papers[0] > 3 * 200 and papers[1] < 3 * 60


@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_a_picture_is_what_its_name_says(hw4_here, tmp_path, form, start):
    assert hw4_here("plot", "latency", LADDER, "-o", f"a.{form}").returncode == 0
    assert (tmp_path / f"a.{form}").read_bytes().startswith(start)


def test_a_name_is_shown_as_it_is_whatever_it_holds(hw4_here, tmp_path):
    name = "a$^b$<&>\u4e2d.cu"
    written(tmp_path / "a.json", row(name), row("naive", shape=(1, 128, 32)), machine={"gpu": "G$_$PU"})
    result = hw4_here("plot", "rate", "a.json", "-o", "a.svg")
    assert (result.returncode, result.stderr) == (0, "wrote a.svg\n")
    ET.parse(tmp_path / "a.svg")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["ratee", LADDER, "-o", "a.svg"], "Did you mean 'rate'?"),
        (
            ["rate", LADDER, "-o", "a.jpg"],
            "a.jpg does not say in which format: let it end in .svg",
        ),
        (["rate", LADDER, "-o", "none/a.svg"], "the folder"),
        (["rate", LADDER, "--base", "naive", "-o", "a.svg"], "--base does not go with rate"),
        (["speedup", LADDER, "-o", "a.svg"], "speedup needs --base KERNEL"),
        (["speedup", LADDER, "--base", "nave", "-o", "a.svg"], "no record here holds 'nave'"),
        (["rate", LADDER, "--over", "N", "-o", "a.svg"], "leave out --over N"),
        (["tiles", LADDER, "-o", "a.svg"], "make one with `hw4 bench --tile"),
        (["rate", ROOT / "README.md", "-o", "a.svg"], "README.md is not a record of hw4: it is not JSON"),
        (["rate", "-o", "a.svg"], "name records"),
        (["rate", "-o", "a.html"], "name records"),
        (["-o", "a.svg"], "name records"),
        ([], "name records"),
    ],
)
def test_a_mistake_is_reported_and_nothing_is_written(hw4_here, tmp_path, args, words):
    fails(hw4_here("plot", *args), 2, words)
    folder_is_clean(tmp_path)


def test_without_matplotlib_the_command_tells_how_to_get_it(hw4_here, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    fails(hw4_here("plot", "rate", LADDER, "-o", "a.svg"), 3, "pip install matplotlib")
    folder_is_clean(tmp_path)


def test_a_matplotlib_that_does_not_load_is_reported(hw4_started, tmp_path):
    result = hw4_started("plot", "rate", LADDER, "-o", tmp_path / "a.svg", env={"MPLBACKEND": "nonsense"})
    fails(result, 3, "pictures need matplotlib, which does not load: ", "'nonsense'")
    folder_is_clean(tmp_path)


def test_the_pictures_in_the_docs_are_those_of_the_records():
    assert outdated() == [], "run make results"


def test_the_docs_show_every_picture_that_is_made():
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert [name for name in PICTURES if f"(pictures/{name}.svg)" not in pages] == []
    others = {"architecture"}  # docs/architecture.py
    assert {path.stem for path in (ROOT / "docs/pictures").iterdir()} == {*PICTURES, *others}
