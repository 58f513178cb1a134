"""Measurements of arrays on a GPU that is made up: what is right is timed, all else gets its reason."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import fakecupy
import numpy as np
import pytest
from definitions import definition
from fakegpu import FakeTimer
from helpers import ROOT, fails, fits, hw4_env, on_a_terminal
from records import as_written
from slow import quick_of_each

from benchmarks.pages.arrays import arrays
from hw4cli.cli.bench import PEERS
from hw4cli.errors import InputError, MachineError
from hw4cli.lab.arrays.expected import BUDGET, expected_rows
from hw4cli.lab.arrays.inputs import from_words, to_words
from hw4cli.lab.arrays.named import workload
from hw4cli.lab.cases import ArrayCase
from hw4cli.lab.changes import compare
from hw4cli.lab.contender import Contender, measure
from hw4cli.lab.peers import WORDS
from hw4cli.lab.sampling import Sampling
from hw4cli.lab.session import bench
from hw4cli.lab.tables import array_table
from hw4cli.show.records import load

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
CASE = "B=1 H=4 KVH=2 N=33 Nk=40 d=16 causal"


@pytest.fixture
def timer():
    gpu = SimpleNamespace(cupy=fakecupy.cupy, wait=lambda: None, last="half", tile=None, name="no GPU")
    timer = FakeTimer(gpu)
    timer.sustained = lambda work, seconds: {"sustained_ms": 2.5, "watts": 600.0, "sm_mhz": 1500.0}
    return timer


class Answering(Contender):
    """Computes the definition, in the arrays' type; then `spoil` changes O."""

    def __init__(self, name, spoil=lambda o: None, ours=True, error=None):
        super().__init__(name, ours)
        self.spoil, self.error = spoil, error

    def prepare(self, data):
        case, self.arrays = data.case, data.arrays
        q, k, v = (from_words(np.array(x), case.work.dtype) for x in data.operands)
        o, _ = definition(q, k, v, case.work.scale, case.work.offset if case.work.causal else None)
        self.words = to_words(o.astype(np.float32), case.work.dtype)
        return {"registers": 168, "pairs_percent": 60.0}

    def run(self):
        if self.error:
            raise MachineError(self.error)
        self.arrays.o[...] = self.words
        self.spoil(self.arrays.o)

    def answer(self):
        return (self.arrays.o,)


def changes_each_time():
    count = iter(range(1000))

    def spoil(o):
        o[0, 0, 0, 0] += next(count) % 2

    return spoil


def leaves_out_a_head(o):
    o[:, 1] = 0


def has_a_nan(o):
    o[0, 3, 7, 1] = 0x7E00


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
def test_what_is_right_is_timed_with_every_figure(timer, dtype, layout):
    case = workload(f"{CASE} dtype={dtype} layout={layout}")
    (row,) = measure(timer, [Answering("half")], ArrayCase(case), Sampling(sustained=True))
    assert (row.status, row.reason, row.repeats) == ("ok", "", True)
    assert row.shape == (4, 33, 16)
    assert (row.heads, row.kv_heads, row.Nk, row.causal, row.layout) == (4, 2, 40, True, layout)
    assert row.fastest <= row.low <= row.median <= row.high <= row.slowest
    assert row.fastest < row.mean < row.slowest and row.standard_error > 0
    assert len(row.samples_ms) == row.samples and set(row.quantiles) == {"5%", "25%", "75%", "95%"}
    assert row.tflops == pytest.approx(2 * 4 * 33 * 40 * 16 / row.median / 1e9)
    assert 0 <= row.relative_error < 5e-3 and row.checked_rows == 4 * 33
    assert (row.sustained_ms, row.watts, row.sm_mhz) == (2.5, 600.0, 1500.0)


def test_v_of_another_number_of_columns_is_read_counted_and_named(timer):
    case = workload("B=2 H=4 KVH=2 N=33 Nk=40 d=16 dv=24")
    assert str(case) == "(2, 4/2, 33/40, 16/24) fp16"
    (row,) = measure(timer, [Answering("half")], ArrayCase(case))
    assert (row.status, row.reason, row.dv, row.shape) == ("ok", "", 24, (8, 33, 16))
    assert row.tflops == pytest.approx(2 * 8 * 33 * 40 * (16 + 24) / row.median / 1e9)
    assert workload("N=9 d=16 dv=16").work == workload("N=9 d=16").work


def test_what_is_wrong_is_not_timed_and_gets_its_reason(timer):
    wrong = {
        "a head": (leaves_out_a_head, "of the answer's norm in 132 rows"),
        "NaN": (has_a_nan, "1 elements are NaN or Inf"),
        "other bits": (changes_each_time(), "a second run gave other bits"),
    }
    subjects = [Answering(name, spoil) for name, (spoil, _) in wrong.items()]
    rows = measure(
        timer, [*subjects, Answering("broken", error="no memory"), Answering("good")], ArrayCase(workload(CASE))
    )
    assert [row.status for row in rows] == ["wrong", "wrong", "wrong", "failed", "ok"]
    for row, (_, reason) in zip(rows, wrong.values(), strict=False):
        assert reason in row.reason
        assert row.median is None
    assert rows[3].reason == "no memory"


def test_a_peer_may_give_other_bits_each_time_and_the_row_says_so(timer):
    (row,) = measure(timer, [Answering("theirs", changes_each_time(), ours=False)], ArrayCase(workload(CASE)))
    assert (row.status, row.repeats) == ("ok", False)


def test_a_workload_that_does_not_fit_fails_for_all(timer, monkeypatch):
    monkeypatch.setattr(fakecupy.cupy, "ndarray", lambda *_: (_ for _ in ()).throw(MemoryError))
    rows = measure(timer, [Answering("a"), Answering("b")], ArrayCase(workload(CASE)))
    assert {row.reason for row in rows} == {"the GPU has not enough memory for (1, 4/2, 33/40, 16) fp16 causal"}


def test_of_a_large_workload_some_rows_of_some_heads_are_checked():
    case = workload("B=3 H=5 N=9000 d=8 causal")
    q = fakecupy.new((3, 5, 9000, 8), np.int16)
    q[...] = to_words(np.random.default_rng(0).standard_normal(q.shape, np.float32), "float16")
    found = expected_rows(case, SimpleNamespace(q=q, k=q, v=q))
    assert len(found) >= 4
    assert {(0, 0), (2, 4)} <= {(one.batch, one.head) for one in found}
    assert {0, 63, 64, 8998, 8999} <= set(found[0].rows.tolist())
    assert sum(len(one.rows) for one in found) * 9000 * 8 < 2 * BUDGET
    np.testing.assert_allclose(found[0].exact[0], from_words(np.array(q[0, 0, 0]), "float16"))


@pytest.fixture
def record(timer, tmp_path):
    """A record of two workloads, as a file."""
    from dataclasses import asdict

    from hw4cli.lab.record import benchmark_record

    subjects = [Answering("half"), Answering("cuDNN", ours=False), Answering("FA2", error="PyTorch: no", ours=False)]
    rows = [row for text in ("tiny", CASE) for row in measure(timer, subjects, ArrayCase(tiny(text)))]
    made = {**benchmark_record(timer, rows, 50.0, True, {}), "kind": "arrays"}
    path = tmp_path / "arrays.json"
    path.write_text(json.dumps(made))
    assert asdict(rows[0])["kernel"] == "half"
    return path


def tiny(text):
    return workload("H=2 N=20 d=8 dtype=bf16" if text == "tiny" else text)


def test_a_table_names_the_workload_and_how_the_others_compare(record):
    header, lines = array_table([row for row in json.loads(record.read_text())["rows"] if row["status"] == "ok"])
    shown = [dict(zip(header, line, strict=True)) for line in lines]
    assert [line["kernel"] for line in shown] == ["half", "cuDNN"] * 2
    assert shown[2]["(B, H, N, d)"] == "(1, 4/2, 33/40, 16) fp16 causal"
    assert shown[0]["×"] == "1.00" and shown[0]["pairs"] == "60.0%"
    assert "watts" not in header


def test_the_pages_table_has_a_line_a_workload_with_peers_and_what_others_published(record):
    found = json.loads(record.read_text())
    sizes = {"heads": 64, "kv_heads": 64, "shape": [256, 8192, 128], "Nk": 8192, "dtype": "float16"}
    found["rows"] += [{**row, "case": "tilelang", **sizes} for row in found["rows"][:3]]
    of_an_h100, of_an_h200 = (arrays({**found, "machine": {"gpu": f"NVIDIA {name}"}}) for name in ("H100", "H200"))
    shapes = ["(1, 2, 20, 8) bf16", "(1, 4/2, 33/40, 16) fp16 causal", "`tilelang` (4, 64, 8192, 128) fp16"]
    assert [line[0] for line in of_an_h100.lines] == shapes
    assert of_an_h100.lines[0][6].endswith(")"), "cuDNN's time, and how many times as fast ours is"
    assert of_an_h100.lines[0][7] == "-", "FA2 was not timed"
    assert of_an_h100.below[0].startswith(
        "Published, and not measured here: `tilelang` 13.4 ms (benchmark) and 13.617 ms (ranked) (TileLang: "
    )
    assert of_an_h200.below == ()


def test_plots_and_the_lab_take_a_record_of_arrays(record, hw4, tmp_path):
    settings = {point.setting.words for point in load(record).points}
    assert settings == {"d = 8, bfloat16", "d = 16, float16, 2 heads of K and V for 4, 40 keys, causal"}
    for kind in ("rate", "error"):
        assert hw4("plot", kind, record, "-o", tmp_path / f"{kind}.svg").returncode == 0
    result = hw4("plot", record, "-o", tmp_path / "lab.html")
    assert result.returncode == 0, result.stderr


def test_rows_are_compared_with_those_of_the_same_workload_alone(timer, record):
    then = json.loads(record.read_text())
    now = measure(timer, [Answering("half")], ArrayCase(workload(CASE)))
    assert [change.case for change in compare(now, then)] == [workload(CASE).name]
    assert compare(measure(timer, [Answering("half")], ArrayCase(workload(f"{CASE} layout=BNHD"))), then) == []


def test_bad_requests_are_one_sentence(hw4):
    for args, words in (
        (["half"], "half computes arrays of 16 bits: name a workload, as in tilelang"),
        (["half", "t01"], "half computes arrays of 16 bits: name a workload"),
        (["half", "nothing=1"], "nothing=1"),
        (["half", "N=8 d=8", "t01"], "a case does not go with a workload"),
        (["half", "N=8 d=8", "--tile", "64x64"], "--tile does not go with a workload"),
        (["flash", "t01", "--pause", "1"], "--pause goes only with a workload"),
        (["flash", "t01", "--peers", "torch,xformers"], "'xformers' is none of torch, cudnn"),
        (["./mine.cu", "N=8 d=8"], "./mine.cu computes files"),
    ):
        fails(hw4("bench", *args, env=NO_GPU), 2, words)
    fails(hw4("bench", "half", "tilelang", env=NO_GPU), 3, "no GPU")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"kernels": 5}, "kernels is 5: give a text, or a list of texts"),
        ({"workloads": [5]}, "workloads is [5]: give a text, or a list of texts"),
        ({"peers": "cutlass"}, "'cutlass' is none of torch, cudnn"),
        ({"samples": 0}, "samples is 0: give an integer, 1 or more"),
        ({"pause": -1}, "pause is -1: give seconds, 0 or more"),
        ({"direction": ["bwd"]}, "direction is ['bwd']: give 'fwd', 'bwd', 'both'"),
    ],
)
def test_bad_requests_in_python_are_one_sentence_before_a_gpu_is_looked_for(asked, words):
    with pytest.raises(InputError, match=re.escape(words)):
        bench(**asked)
    assert PEERS == WORDS, "which the command's help has without importing them"


@quick_of_each(1)
@pytest.mark.parametrize("width", [60, 200])
def test_a_table_fits_the_terminal(width):
    args = ("bench", "half", "flash", CASE, "N=9 d=8 dtype=fp32", "--sustained")
    code, text = on_a_terminal(width, *args, start=("-c", FAKE))
    assert code == 0, text
    assert fits(text, width)
    assert "sustained ms" in " ".join(text.split())


FAKE = f"""
import sys
sys.path[:0] = [{str(ROOT / "tests/support")!r}, {str(ROOT / "tests/lab/arrays")!r}, {str(ROOT)!r}]
from types import SimpleNamespace
import fakecupy, hw4cli.lab.session as session
from fakegpu import FakeTimer
from test_measure import Answering
from hw4cli.plans.plan import DEVICES
from test_passes import GradientsOf
GPU = SimpleNamespace(cupy=fakecupy.cupy, wait=lambda: None, last="half", tile=None, name="no GPU", props=DEVICES[80])
session.Gpu = lambda: GPU
session.GpuTimer = FakeTimer
FakeTimer.sustained = lambda self, work, seconds: {{"sustained_ms": 2.5, "watts": 600.0, "sm_mhz": 1500.0}}
session.GradientKernel = lambda timer, case, name: GradientsOf(name)
session.ArrayKernel = lambda timer, name, case: Answering(name)
session.peers_of_arrays = lambda *_: [Answering("cuDNN", ours=False, error="PyTorch: none")]
from hw4cli.cli import run_command
sys.exit(run_command())
"""


def test_the_command_prints_a_record_and_a_peer_that_fails_is_no_failure(tmp_path):
    out = tmp_path / "record.json"
    args = ["bench", "half", "flash", CASE, "N=9 d=8 dtype=fp32", "--peers", "cudnn"]
    command = [sys.executable, "-c", FAKE, *args, "-o", out]
    result = subprocess.run(command, capture_output=True, text=True, env=hw4_env(COLUMNS="100"))
    assert result.returncode == 0, result.stderr
    rows = as_written(out.read_text())["rows"]
    assert [(row["kernel"], row["status"]) for row in rows] == [
        *(("half", "ok"), ("cuDNN", "failed"), ("flash", "ok"), ("cuDNN", "failed"))
    ]
    assert "cuDNN on (1, 1, 9, 8) fp32 failed: PyTorch: none" in result.stdout
    assert "by convention half of them" in " ".join(result.stdout.split())
