"""The script that makes the records of arrays, and the pages' tables of them."""

import json
import os
import subprocess
import sys

import pytest
from helpers import ROOT

from benchmarks import results
from hw4cli.arraylab.named import workload
from hw4cli.cli.bench import bench

NOTES = """#!{python}
import json, os, sys
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
"""


def cells(text):
    """A table's lines as dictionaries; of columns with the same name, the last."""
    header, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    return [dict(zip(header, line, strict=True)) for line in lines]


@pytest.fixture
def calls(tmp_path):
    """The benchmarks that benchmarks/arrays.sh asks for, as click understands them."""
    python = tmp_path / "python"
    python.write_text(NOTES.format(python=sys.executable))
    python.chmod(0o755)
    env = {**os.environ, "CALLS": str(tmp_path / "calls")}
    subprocess.run([ROOT / "benchmarks/arrays.sh", tmp_path, "h100", python], env=env, check=True)
    asked = map(json.loads, (tmp_path / "calls").read_text().splitlines())
    return {
        call[-1]: bench.make_context("bench", call[3:]).params
        for call in asked
        if call[:3] == ["-m", "hw4cli", "bench"]
    }


def test_the_script_asks_for_workloads_that_there_are_and_for_every_peer(calls, tmp_path):
    arrays, mma, masks, decode = (calls[f"{tmp_path}/h100-{x}.json"] for x in ("arrays", "mma", "masks", "decode"))
    cases = {
        name: [workload(text) for text in call["workloads"]] for name, call in zip("abcd", calls.values(), strict=True)
    }
    assert {"tilelang-causal", "lm16k", "t11-half", "t12-half"} <= {case.name for case in cases["a"]}
    assert arrays["kernels"] == () and arrays["peers"] == ("cudnn", "fa2") and arrays["sustained"]
    assert mma["kernels"] == ("half_mma",) and {case.work.d for case in cases["b"]} == {32, 64, 128}
    assert masks["kernels"] == ("split", "exact", "flash")
    assert decode["kernels"] == () and {case.work.Nq for case in cases["d"]} >= {1, 512}
    works = [case.work for case in cases["c"]]
    assert len(works) == 2 * len({(work.batch, work.Nq, work.d) for work in works}), "each with and without a mask"


def row(case, kernel, median, **more):
    facts = {"status": "ok", "ours": kernel in ("half", "split", "flash"), "causal": False, "shape": [4, 64, 32]}
    facts |= {"tflops": 100.0, "sustained_ms": 2 * median, "watts": 650.4, "sm_mhz": 1500.0}
    return {"case": case, "kernel": kernel, "median": median, **facts, **more}


def test_what_ran_without_rest_is_shown_beside_the_peers_with_watts_and_clocks():
    rows = [row("a", "half", 1.0), row("a", "cuDNN", 1.5), row("a", "FA2", 2.0, sustained_ms=None)]
    rows += [row("short", "half", 0.01, sustained_ms=None), row("wrong", "half", 1.0, status="wrong")]
    (line,) = cells(results.sustained(rows))
    assert line["workload"] == "`a`" and line["ms"] == "2" and line["TFLOP/s"] == "50"
    assert line["cuDNN ms"] == "3" and line["× cuDNN"] == "1.50" and line["FA2 ms"] == "-"
    assert "650 | 1500" in results.sustained(rows)


def test_causal_times_are_shown_beside_those_without_a_mask():
    rows = [row("a", kernel, time) for kernel, time in (("split", 4.0), ("flash", 9.0))]
    rows += [row("b", "split", 2.0, causal=True), row("b", "flash", 0.0, causal=True, status="failed")]
    (line,) = cells(results.masks(rows))
    assert line == {"(B, N, d)": "(4, 64, 32)", "split causal ms": "2", "×": "-", "flash causal ms": "-"}
    assert "| 2 | 2.00 |" in results.masks(rows)


def test_a_page_may_wait_for_a_record_that_is_not_made_yet():
    page = "<!-- results: nothing.json arrays -->\nold\n<!-- end -->"
    assert results.filled(page) == "<!-- results: nothing.json arrays -->\n*Not measured yet.*\n<!-- end -->"
