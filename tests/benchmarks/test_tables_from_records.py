"""What pages and the package show of the records: up to date, whole, and told where a record is missing."""

import csv
import hashlib
import json
import subprocess

import pytest
from helpers import ROOT
from needs import needs
from slow import slow

from benchmarks.pages import results
from benchmarks.pages.rungs import with_measured
from hw4cli.lab.tables import read_record


@pytest.fixture
def whole_history():
    """Skips where the source tree has no git history, or not all of it."""
    shallow = subprocess.run(["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True).stdout
    if not (ROOT / ".git").exists() or shallow != b"false\n":
        pytest.skip("the whole git history is not here")


ROW = {"case": "a", "kernel": "half", "median": 1.0, "status": "ok", "ours": True, "causal": False, "samples": 10}
ROW |= {
    "shape": [4, 64, 32],
    "tflops": 100.0,
    "sustained_ms": 2.0,
    "watts": 650.4,
    "joules": 1.3,
    "gflop_per_joule": 77,
}


@slow
def test_the_pages_tables_and_the_programs_facts_are_those_of_the_records():
    for path, text in results.made().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: run `make results`"


def test_every_record_is_complete():
    for path in (ROOT / "benchmarks").glob("*.json"):
        found = read_record(path)
        assert found["commit"]
        assert "dirty" not in found["commit"], f"{path.name} was measured on changes that no commit has"
        assert found["machine"]["gpu"]
        assert found.get("kind") == "end-to-end" or found["clocks"]["before"]
        assert all(r["status"] in ("ok", "wrong", "failed") for r in found["rows"])


def launches_of(path):
    """The launches of a record of profiles, each with its metrics by their names."""
    found = json.loads(path.read_text())
    for one in found if isinstance(found, list) else [found]:
        for launch in one.get("launches", []):
            yield launch["kernel"], {metric["name"]: metric["value"] for metric in launch["metrics"]}


def test_hit_rates_that_cannot_be_are_those_that_are_told_of_and_no_page_shows_them():
    impossible = [
        (path.name, kernel, round(value))
        for path in sorted((ROOT / "benchmarks").rglob("*.json"))
        for kernel, metrics in launches_of(path)
        for name, value in metrics.items()
        if name.endswith("_hit_rate") and value is not None and value > 100
    ]
    assert impossible == [("h200-limits.json", "half_start", 172), ("h200-limits.json", "half_start", 206)]
    for page in ("benchmarks/README.md", "docs/profile.md"):
        assert "172" in (ROOT / page).read_text() and "206 %" in (ROOT / page).read_text(), f"{page} tells of them"
    for page in (ROOT / "docs").rglob("*.md"):
        assert "| half_start |" not in page.read_text(), f"a table of {page.name} has their launch"


def test_the_page_on_l1_hits_has_the_rates_of_the_records():
    page = (ROOT / "docs/profile.md").read_text()
    text = page.partition("## An L1 hit rate of 0 %")[2].partition("Two rules")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    figures = ROOT / "benchmarks/figures"
    found = {}
    for name in ("h200-rungs-profile", "h200-limits"):
        for kernel, metrics in launches_of(figures / f"{name}.json"):
            found.setdefault(kernel, []).append(metrics["l1_hit_rate"])
    seen = 0
    for names, _, shown, *_ in lines:
        rates = [rate for kernel in names.split("`")[1::2] for rate in found.get(kernel, [])]
        told = [float(word) for word in shown.replace(",", "").split() if word[0].isdigit()]
        seen += len(rates)
        assert [min(rates), max(rates)] == pytest.approx([min(told), max(told)], abs=0.6), names
    assert seen >= 15


def test_a_table_of_several_records_waits_for_all_of_them():
    begin, end = "<!-- results: h200-gradients.json nothing.json gradients -->\n", "<!-- end -->"
    assert results.filled(f"{begin}{end}") == f"{begin}*Not measured yet: nothing.json.*\n{end}"


def test_every_view_is_on_a_page():
    shown = {view for page in results.pages() for _, _, view, _ in results.MARKED.findall(page.read_text())}
    assert shown == {*results.VIEWS}


def filled(monkeypatch, tmp_path, **changes):
    """A page with a table of a record that has one row."""
    record = json.loads((ROOT / "benchmarks/h200-arrays.json").read_text())
    (tmp_path / "x.json").write_text(json.dumps({**record, "rows": [{**ROW, **changes}]}))
    monkeypatch.setattr(results, "HERE", tmp_path)
    return results.filled("<!-- results: x.json energy -->\nold\n<!-- end -->")


def test_a_view_for_which_a_record_has_no_line_is_a_sentence_and_no_header(monkeypatch, tmp_path):
    sentence = "<!-- results: x.json energy -->\n*Not measured yet: x.json.*\n<!-- end -->"
    assert filled(monkeypatch, tmp_path, joules=None) == sentence
    assert "| half | a | 2 |" in filled(monkeypatch, tmp_path)


@pytest.mark.parametrize("host_ms", [0.1, None])
def test_a_record_without_the_hosts_times_says_that_short_times_may_include_launches(monkeypatch, tmp_path, host_ms):
    text = filled(monkeypatch, tmp_path, host_ms=host_ms)
    assert ("less than 1 ms may include launches" in text) == (host_ms is None)


def test_a_page_may_wait_for_a_record_that_is_not_made_yet():
    begin, end = "<!-- results: nothing.json arrays -->\n", "<!-- end -->"
    assert results.filled(f"{begin}old\n{end}") == f"{begin}*Not measured yet: nothing.json.*\n{end}"


PAGE = """
# The ladder
## warp
*Measured* 15.45 ms, 17.8
TFLOP/s. *Note:* 3 ms. *Measured* 4 ms.
| `warp` | 20.4 | twice |
| other: `flash` | 1 |
## flash
*Measured* 47.5 TFLOP/s, *measured* 3.
## naive
*Measured* 1 ms.
"""


def test_the_ladders_figures_are_those_of_the_record():
    facts = {"status": "ok", "tflops": 18.26}
    rows = [{"kernel": "warp", "median": 14.888, **facts}, {"kernel": "flash", "median": 6.4, **facts}]
    failed = {"kernel": "naive", "median": None, "tflops": None, "status": "failed"}
    changed = {"15.45": "14.89", "17.8": "18.3", "20.4": "14.9", "| 1 |": "| 6 |", "47.5": "18.3"}
    expected = PAGE
    for old, new in changed.items():
        expected = expected.replace(old, new)
    assert with_measured(PAGE, [*rows, failed]) == expected


LOST = {"2e4b3b9", "4f8cdc6", "8e554c2"}  # of branches that were rewritten before they were merged


@needs("git")
def test_the_commit_that_a_record_names_is_in_the_history(whole_history):
    named = {}
    for path in (ROOT / "benchmarks").rglob("*.json"):
        found = json.loads(path.read_text())
        for record in found if isinstance(found, list) else [found]:
            named |= dict.fromkeys(record["builds"].values() if "builds" in record else [record["commit"]], path.name)
    for commit in named.keys() - LOST:
        done = subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], cwd=ROOT, capture_output=True)
        assert done.returncode == 0, f"{named[commit]} was measured on {commit}, which is not in the history"


@needs("git")
def test_a_record_that_left_the_tree_is_in_the_git_history_as_the_manifest_says(whole_history):
    with (ROOT / "benchmarks/manifest.csv").open(newline="") as file:
        lines = [*csv.DictReader(file)]
    assert lines
    for line in lines:
        assert not (ROOT / "benchmarks" / line["name"]).exists()
        place = f"{line['in_the_tree_at']}:benchmarks/{line['name']}"
        record = subprocess.run(["git", "show", place], cwd=ROOT, capture_output=True, check=True).stdout
        found = json.loads(record)
        assert hashlib.sha256(record).hexdigest() == line["sha256"]
        assert (found["commit"], found["machine"]["gpu"], found["date"]) == (line["commit"], line["gpu"], line["date"])
