"""`hw4 report --check`: what a report still lacks, and what in it does not agree."""

import json
import re

import pytest
from helpers import ROOT
from records import row
from slow import slow
from student import GPU, answered, judged, record, student


@pytest.fixture
def check(hw4_here, mine):
    """Checks the folder `mine`: the exit status and the lines."""

    def run(*args):
        result = hw4_here("report", mine, "--check", *args)
        return result.returncode, result.stdout.splitlines()

    return run


@pytest.fixture
def done(mine):
    """The folder, with every question of the report answered."""
    answered(mine / "report.md")
    return mine


@slow
def test_a_new_report_lacks_exactly_its_answers_and_nothing_is_written(check, mine):
    before = {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()}
    status, lines = check()
    assert status == 1
    text = (mine / "report.md").read_text()
    assert len(lines) == text.count("> FILL IN:")
    assert all(re.match(r"line \d+ \(.+\): still to fill in: \S", line) for line in lines)
    number = text[: text.index("> FILL IN: What limits the kernel")].count("\n") + 1
    assert f"line {number} (2): still to fill in: What limits the kernel, by these figures." in lines
    assert {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()} == before


def test_a_report_with_all_answers_lacks_nothing(check, done):
    assert check() == (0, [])


def test_the_work_log_is_checked_too(check, mine):
    assert check("--form", "worklog")[0] == 1
    answered(mine / "worklog.md")
    assert check("--form", "worklog") == (0, [])


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


EDITS = {
    "a section that was deleted": ("### 5.b Feedback\n\nAnswered.", "", "“5.b Feedback” is missing"),
    "a section without words": ("### 5.b Feedback\n\nAnswered.", "### 5.b Feedback\n", "has no words of yours"),
    "a figure that was changed": ("29 of 30 cases AC", "30 of 30 cases AC", "“judged” was changed by hand"),
    "half a block": ("<!-- hw4: end -->", "", "a mark of hw4's has lost its other half"),
    "a picture without a file": (
        "### 5.b Feedback",
        "![ms over N, from ladder.json](a.png)\n### 5.b",
        "there is no file a.png",
    ),
    "a picture of the web": ("### 5.b Feedback", "![ms](http://x/a.png)\n### 5.b", "is not a file beside the report"),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_was_done_to_the_text_is_found(check, done, name):
    old, new, words = EDITS[name]
    change(done / "report.md", old, new)
    status, lines = check()
    assert status == 1
    assert any(words in line for line in lines), lines


def test_a_picture_of_the_authors_own_names_its_axes_and_its_record(check, done):
    (done / "own.png").write_bytes(b"\x89PNG")
    for caption, lacking in (
        ("A chart", ["names no axes with their units", "names no file of this folder"]),
        ("Time, ms over N", ["names no file of this folder"]),
        ("Time, ms over N, from ladder.json", []),
    ):
        kept = (done / "report.md").read_text()
        change(done / "report.md", "### 5.b Feedback", f"![{caption}](own.png)\n\n### 5.b Feedback")
        lines = check()[1]
        assert len(lines) == len(lacking)
        assert all(words in line for words, line in zip(lacking, lines, strict=True))
        (done / "report.md").write_text(kept)


def test_figures_older_than_the_records_are_found(check, done, hw4_here):
    (done / "thirty.json").unlink()
    lines = check()[1]
    assert any("“ladder” is not what the records hold now: run `hw4 report` again" in line for line in lines)
    assert any("figures/ladder.svg is not what the records hold now" in line for line in lines)
    assert hw4_here("report", done).returncode == 0
    lines = check()[1]
    assert [line for line in lines if "hold now" in line] == []


def test_what_has_no_record_is_found(hw4_here, tmp_path):
    folder = student(tmp_path / "mine", "h200-ladder")
    assert hw4_here("report", folder).returncode == 0
    answered(folder / "report.md")
    result = hw4_here("report", folder, "--check")
    assert result.returncode == 1
    lacking = [line.partition("without a record: ")[2] for line in result.stdout.splitlines()]
    assert [words.partition(":")[0] for words in lacking] == [
        "no record holds a sweep of tiles",
        "no profile is here",
        "no judging is here",
    ]


def with_records(folder, kind):
    if kind == "two GPUs":
        record(folder, "h100-split")
    elif kind == "another GPU in the journal":
        judged(folder / "judged", "NVIDIA GeForce GTX 1080")
    elif kind == "two commits":
        record(folder, "h200-tiles", commit="abcdef0")
    elif kind == "no commit":
        record(folder, "h200-tiles", commit="4f5e727-dirty")
    elif kind == "a failed row":
        path = record(folder, "h200-tiles")
        content = json.loads(path.read_text())
        failed = row("flash 8x8", status="failed", reason="no such tile")
        path.write_text(json.dumps({**content, "rows": [*content["rows"], failed]}))
    elif kind == "a damaged record":
        (folder / "tiles.json").write_text('{"rows": [')
    elif kind == "another schema":
        record(folder, "h200-tiles", schema=9)
    elif kind == "two journals":
        judged(folder / "again")
    else:
        path = folder / "judged/journal.jsonl"
        path.write_text(path.read_text() + "broken\n")


RECORDS = {
    "two GPUs": "of 2 GPUs: NVIDIA H200 (end-to-end.json, ladder.json",
    "another GPU in the journal": "NVIDIA GeForce GTX 1080 (the journal)",
    "two commits": "of 2 commits: 4f5e727 (",
    "no commit": "of code that no commit has: 4f5e727-dirty (tiles.json)",
    "a failed row": "tiles.json: 1 row without a time: flash 8x8",
    "a damaged record": "tiles.json cannot be read as JSON",
    "another schema": "tiles.json is a record of schema 9",
    "two journals": "there are 2 journals here",
    "a damaged journal": "the journal of sam is damaged",
}


@pytest.mark.parametrize("kind", RECORDS)
def test_records_that_do_not_belong_together_are_found(check, done, kind):
    with_records(done, kind)
    status, lines = check()
    assert status == 1
    assert any(RECORDS[kind] in line for line in lines), lines


def test_files_that_are_no_records_are_passed_over(check, done):
    (done / ".vscode").mkdir()
    (done / ".vscode/settings.json").write_text("{} // an editor's")
    (done / "package.json").write_text('{"name": "mine"}')
    (done / "times.csv").write_text("case,seconds\nt01,0.3\n")
    assert check() == (0, [])


def test_a_folder_without_a_report_is_told_how_to_begin_one(hw4_here, tmp_path):
    folder = student(tmp_path / "mine", "h200-ladder")
    result = hw4_here("report", folder, "--check")
    assert result.returncode == 1
    assert "report.md: not begun: `hw4 report " in result.stdout
    assert not (folder / "report.md").exists()


def test_the_committed_records_are_of_two_gpus_and_several_commits(hw4_here):
    """As they are: nobody would hand in such a report."""
    lines = hw4_here("report", ROOT / "benchmarks", "--check").stdout
    assert "of 2 GPUs: " in lines
    assert GPU in lines
    assert re.search(r"of \d+ commits: ", lines)
