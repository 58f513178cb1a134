"""The script that makes the records of arrays, and the pages' tables of them."""

import json

import pytest
from helpers import ROOT, run_script

from benchmarks import decoding, ofarrays, results
from hw4cli.cli.bench import bench
from hw4cli.lab.arrays.named import workload
from hw4cli.lab.arrays.tune import candidates
from hw4cli.plans.plan import DEVICES


def cells(text):
    """A table's lines as dictionaries; of columns with the same name, the last."""
    header, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    return [dict(zip(header, line, strict=True)) for line in lines]


@pytest.fixture
def calls(tmp_path):
    """Calls a script of benchmarks/; the commands that it asks Python for, by the records that they write."""

    def run(script, **env):
        result, asked = run_script(script, tmp_path, "h100", **env)
        assert result.returncode == 0, result.stderr
        return {call[call.index("--output") + 1].removeprefix(f"{tmp_path}/h100-"): call for call in asked}

    return run


def as_bench(call):
    """A command's options as click understands them."""
    assert call[:3] == ["-m", "hw4cli", "bench"]
    params = bench.make_context("bench", call[3:]).params
    return {**params, **vars(params["what"])}


def test_the_script_asks_for_workloads_that_there_are_and_for_every_peer(calls):
    commands = calls("arrays.sh")
    assert commands.pop("decode.json")[:2] == ["-m", "benchmarks.decoding"]
    assert min(workload(text).work.Nk for text in decoding.WORKLOADS) > 4000
    asked = {name: as_bench(call) for name, call in commands.items()}
    names = ("arrays", "mma", "masks", "shared", "exactness")
    arrays, mma, masks, shared, exactness = (asked[f"{name}.json"] for name in names)
    cases = {
        name: [workload(text) for text in call["workloads"]] for name, call in zip("abcde", asked.values(), strict=True)
    }
    assert {"tilelang-causal", "lm16k", "t11-half", "t12-half"} <= {case.name for case in cases["a"]}
    assert arrays["kernels"] == () and arrays["peers"] == ("cudnn", "fa2") and arrays["sustained"]
    assert mma["kernels"] == ("half_mma",) and {case.work.d for case in cases["b"]} == {32, 64, 128}
    assert masks["kernels"] == ("split", "exact", "flash")
    assert shared["kernels"] == () and {case.work.Nq for case in cases["d"]} == {64, 128, 512, 8192}
    assert exactness["kernels"][:3] == ("half", "half_mma", "half_split") and exactness["peers"] == ("cudnn", "fa2")
    assert len({(case.work.dtype, case.work.d, case.distribution) for case in cases["e"]}) == 8
    works = [case.work for case in cases["c"]]
    assert len(works) == 2 * len({(work.batch, work.Nq, work.d) for work in works}), "each with and without a mask"


def test_the_script_of_gradients_makes_all_records_or_those_that_are_named(calls, tmp_path):
    asked = calls("gradients.sh")
    errors = asked.pop(f"{tmp_path}/errors/h100.json")
    assert errors[:2] == ["-m", "benchmarks.gradient_errors"] and (ROOT / "benchmarks/gradient_errors.py").exists()
    found = {name: as_bench(call) for name, call in asked.items()}
    assert [(name, call["direction"]) for name, call in found.items()] == [
        ("gradients.json", "bwd"),
        ("training.json", "both"),
        ("designs.json", "bwd"),
    ]
    assert found["designs.json"]["kernels"] == ("backward_once", "backward_atomic", "backward_wgmma", "backward_mma")
    works = [workload(text).work for text in found["gradients.json"]["workloads"]]
    assert {work.heads // work.kv_heads for work in works} == {1, 4} and {work.d for work in works} == {64, 128}
    assert [*calls("gradients.sh", WHAT="designs sweep")] == ["designs.json", "gradients-sweep.json"]


def test_the_script_of_arrays_can_make_some_of_its_records(calls, tmp_path):
    assert [*calls("arrays.sh", WHAT="decode mma")] == ["mma.json", "decode.json"]
    for what, workloads in ofarrays.WORKLOADS.items():
        [(name, call)] = calls("arrays.sh", WHAT=what).items()
        assert name == f"{tmp_path}/figures/h100-{what}.json" and call[:3] == ["-m", "benchmarks.ofarrays", what]
        assert [workload(text) for text in workloads]


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


def test_errors_of_ours_and_of_peers_stand_in_a_line_for_each_kind_of_numbers():
    facts = {"dtype": "float16", "shape": [4, 256, 64], "max_error": 1.24e-3, "relative_error": 3.51e-4}
    rows = [row("a", kernel, 1.0, distribution="uniform", **facts) for kernel in ("half", "cuDNN")]
    rows += [row("b", "half", 1.0, distribution="normal", **facts), row("b", "cuDNN", 1.0, status="failed")]
    uniform, normal = cells(results.exactness(rows))
    name = "float16, d=64, uniform in [-3, 3)"
    assert uniform == {"numbers": name, "half": "1.2e-03, 3.5e-04", "cuDNN": "1.2e-03, 3.5e-04"}
    assert normal["numbers"] == "float16, d=64, normal" and normal["cuDNN"] == "-"


def test_decoding_is_shown_beside_a_copy_in_microseconds():
    facts = {"dtype": "bfloat16", "heads": 32, "kv_heads": 8, "Nk": 8192, "shape": [32, 1, 128]}
    rows = [row("a", "half_split", 0.02, **facts, ours=True), row("a", "cuDNN", 0.03, **facts)]
    memory = {"a": {"bytes": 33554432, "read": 0.015, "copy": 0.014}}
    (line,) = cells(results.decoding({"rows": rows, "memory": memory}))
    assert (line["K and V"], line["µs"], line["only read"], line["copy"]) == ("34 MB", "20.0", "15.0", "14.0")
    assert (line["of the copy's rate"], line["cuDNN"], line["× cuDNN"], line["FA2"]) == ("70%", "30.0", "1.50", "-")


def test_what_limits_a_kernel_is_that_of_its_longest_launch():
    sentence = "nearest limit: the tensor cores at 81 % of the peak, 19 % away; then DRAM at 4 %; "
    sentence += "largest stall: barrier, 30 % of all"
    launches = [
        {"kernel": kernel, "metrics": [{"name": "duration", "value": ms}], "sentence": text}
        for kernel, ms, text in (("half_start", 0.002, "?"), ("half", 0.7, sentence))
    ]
    profile = {"workload": "lm8k", "launches": launches, "gpu": "H", "tool": "N", "commit": "c", "date": "d"}
    (line,) = cells(results.limits([profile]))
    assert line["launch"] == "half" and line["busiest"] == "the tensor cores, 81 %"
    assert (line["then"], line["largest stall"]) == ("DRAM, 4 %", "barrier, 30 %")


def test_schedules_of_a_workload_stand_side_by_side():
    ways = {(1, 1): 1.0, (1, 0): 1.1, (0, 0): 1.2}
    case = workload("lm8k")
    rows = []
    for one in candidates("half", case.work, DEVICES[90], quick=True):
        ms = ways[one.tiling.ahead, one.tiling.turns]
        rows.append(one.row("ok", median=ms).record())
    facts = {"machine": {"gpu": "H", "driver": "5"}, "commit": "c", "date": "d"}
    (line,) = cells(results.schedules([{"workload": "lm8k", "workloads": [{"rows": rows}], **facts}]))
    assert [*line.values()] == ["`lm8k`", "192x80", "1.2", "1.1", "1"]


def record_of(monkeypatch, tmp_path, *rows):
    """Put a record of these rows where `make results` looks."""
    record = json.loads((ROOT / "benchmarks/h200-arrays.json").read_text())
    (tmp_path / "x.json").write_text(json.dumps({**record, "rows": rows}))
    monkeypatch.setattr(results, "HERE", tmp_path)


def test_a_view_for_which_a_record_has_no_line_is_a_sentence_and_no_header(monkeypatch, tmp_path):
    record_of(monkeypatch, tmp_path, row("a", "half", 1.0, sustained_ms=None, samples=10))
    page = "<!-- results: x.json sustained -->\n<!-- end -->"
    assert results.filled(page) == "<!-- results: x.json sustained -->\n*Not measured yet: x.json.*\n<!-- end -->"
    record_of(monkeypatch, tmp_path, row("a", "half", 1.0, samples=10))
    assert "| `a` | half | 2 |" in results.filled(page)


@pytest.mark.parametrize("host_ms", [0.1, None])
def test_a_record_without_the_hosts_times_says_that_short_times_may_include_launches(monkeypatch, tmp_path, host_ms):
    record_of(monkeypatch, tmp_path, row("a", "half", 1.0, samples=10, host_ms=host_ms))
    text = results.filled("<!-- results: x.json sustained -->\n<!-- end -->")
    assert ("less than 1 ms may include launches" in text) == (host_ms is None)


def test_a_page_may_wait_for_a_record_that_is_not_made_yet():
    page = "<!-- results: nothing.json arrays -->\nold\n<!-- end -->"
    assert (
        results.filled(page) == "<!-- results: nothing.json arrays -->\n*Not measured yet: nothing.json.*\n<!-- end -->"
    )
