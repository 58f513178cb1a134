"""`hw4 plot -o FILE.html`: the page as a file, and the stories that it takes from the kernels' own files."""

import json
import re

from helpers import ROOT, fails, folder_is_clean
from records import COMMITTED, row, written
from slow import slow

from hw4cli.plans.ladder import VARIANTS
from hw4cli.show.labpage import page
from hw4cli.show.records import load
from hw4cli.show.stories import LABELS, stories, texts

ATTACK = "</script><script>alert(1)</script>"


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


@slow
def test_one_file_holds_every_record_and_asks_for_nothing(hw4, tmp_path):
    result = hw4("plot", *COMMITTED, "-o", tmp_path / "lab.html", "--title", "a <b> & c")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", f"wrote {tmp_path / 'lab.html'}\n")
    text = (tmp_path / "lab.html").read_text()
    assert len(text.encode()) < 2_000_000
    assert "<h1>a &lt;b&gt; &amp; c</h1>" in text
    assert re.findall(r"(?:src|href)=[\"']?(?!data:)[\w/]", text.partition('<script type="application/json"')[0]) == []
    data = data_of(text)
    rows = sum(len(json.loads(path.read_text())["rows"]) for path in COMMITTED)
    failures = sum(len(r["failures"]) for r in data["records"])
    assert len(data["points"]) + len(data["runs"]) + len(data["timelines"]) + failures == rows
    assert [record["name"] for record in data["records"]] == [path.name for path in COMMITTED]


def test_a_record_cannot_put_a_script_into_the_page(tmp_path):
    record = load(written(tmp_path / "a.json", row(ATTACK), machine={"gpu": ATTACK}))
    text = page([record], ATTACK)
    assert text.count("<script") == 2
    assert data_of(text)["gpus"][0]["name"] == ATTACK


def test_no_page_is_left_half_written(hw4_here, tmp_path):
    fails(hw4_here("plot", COMMITTED[0], ROOT / "README.md", "-o", "lab.html"), 2, "README.md is not a record")
    fails(hw4_here("plot", COMMITTED[0], "-o", "none/lab.html"), 2, "the folder")
    folder_is_clean(tmp_path)


def test_every_kernel_tells_its_story_and_the_rung_before_it():
    files = texts()
    found = {story.name: story for story in stories(files)}
    assert list(found) == list(VARIANTS)
    for story in found.values():
        assert list(story.labels) == list(LABELS)
        assert story.files[0] == f"{story.name}.cu"
        assert not any("//" in text or "  " in text for text in story.labels.values())
    assert (found["naive"].before, found["warp"].before, found["flash"].before) == (None, "shared", "float4")
    included = re.findall(r'^#include "(.*)"$', files["split.cu"], re.MULTILINE)
    assert found["split"].files[1 : 1 + len(included)] == tuple(included)
