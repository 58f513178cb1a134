"""The record of float32 numbers: what rounds may round, what is wrong is not timed; its table and its picture."""

import json

from records import row, written

from benchmarks.measure.float32 import KERNELS, PEERS, ROUNDED, WORKLOADS, RoundedData
from benchmarks.pages import arrays
from hw4cli.lab.arrays.expected import Errors
from hw4cli.lab.arrays.named import workload
from hw4cli.lab.peers import check_peers
from hw4cli.plans.ladder import VARIANTS
from hw4cli.show.bars import accuracy
from hw4cli.show.records import load


def test_every_kernel_and_peer_is_one_that_there_is_and_every_workload_is_of_float32():
    check_peers(PEERS)
    assert {*KERNELS} <= {*VARIANTS}
    assert {workload(text).work.dtype for text in WORKLOADS} == {"float32"}


def test_a_rounded_answer_is_timed_and_a_wrong_one_is_not():
    data = object.__new__(RoundedData)
    assert data.problem(Errors(0.01, 0.006, 24)) is None
    assert "allowed 0.02" in data.problem(Errors(0.1, 0.03, 24))
    assert data.problem(Errors(0.1, float("nan"), 24)), "NaN is wrong"
    assert ROUNDED == 4 * 0.005


ROWS = {
    "exact": (150.0, 1e-5),
    "split": (400.0, 8e-4),
    "torch efficient": (30.0, 9e-6),
    "benchmarks/measure/triton_attention.py:tf32": (190.0, 2e-3),
}


def record(tmp_path):
    rows = [
        row(kernel, (4, 16384, 64), 1.0, case="a", tflops=rate, max_error=error)
        for kernel, (rate, error) in ROWS.items()
    ]
    return written(tmp_path / "float32.json", *rows)


def test_the_picture_has_a_dot_for_each_at_its_rate_and_its_error_below_the_tolerance(tmp_path):
    picture = accuracy([load(record(tmp_path))])
    (panel,) = picture.panels
    assert panel.form == "scatter" and "N = 16,384" in panel.title
    assert {one.name: (one.marks[0].at, one.marks[0].value) for one in panel.series} == ROWS
    assert [(rule.label, rule.value) for rule in panel.rules] == [("tolerance", 5e-3)]
    assert "below and to the right is better" in picture.notes[0]


def test_the_table_has_the_most_exact_first(tmp_path):
    found = json.loads(record(tmp_path).read_text())
    more = {"ours": False, "relative_error": 1e-3, "distribution": "uniform", "dtype": "float32"}
    more |= {"heads": 1, "kv_heads": 1, "Nk": 16384, "reason": "", "causal": False}
    rows = [{**one, **more, "ours": one["kernel"] in KERNELS} for one in found["rows"]]
    rows.append({**rows[-1], "kernel": "FlexAttention", "status": "failed", "reason": "no Triton here"})
    table = arrays.float32({"rows": rows})
    assert [line[1] for line in table.lines] == [
        *("torch efficient", "exact", "split", "`benchmarks/measure/triton_attention.py:tf32`")
    ]
    assert table.lines[0][0].endswith("uniform in [-3, 3)")
    assert table.below == ("Not computed: FlexAttention (all): no Triton here.",)
