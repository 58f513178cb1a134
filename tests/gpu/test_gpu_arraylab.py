"""`hw4 bench --workload` on a GPU: our kernels and torch's backends, each by its name, in one record."""

import json

import pytest
from helpers import ROOT

import hw4cli
from hw4cli.lab.arrays.named import workload


@pytest.mark.alone
@pytest.mark.parametrize(
    ("kernels", "text", "peers"),
    [
        (["half"], "B=1 H=8 KVH=2 N=1024 d=64 dtype=bf16 causal", ["cuDNN", "FA2"]),
        (["half"], "B=2 H=4 N=500 d=128 dtype=fp16 layout=packed", ["cuDNN", "FA2", "efficient", "math"]),
        (["half"], "B=2 H=8 N=100 Nk=1000 d=64 dtype=fp16 causal", ["FA2"]),
        (["half", "half_mma"], "H=4 N=500 d=192 dv=128 dtype=bf16 causal", ["cuDNN"]),
        (["split", "flash"], "B=2 H=4 N=1024 d=64 dtype=fp32 causal dist=uniform", ["efficient", "math"]),
        (["exact", "flash"], "B=1 H=4 KVH=2 N=500 d=64 dtype=fp32 layout=BNHD", []),
    ],
)
def test_a_record_holds_ours_and_the_peers_each_checked(gpu, hw4, tmp_path, kernels, text, peers):
    pytest.importorskip("torch")
    if workload(text).work.dtype != "float32" and not gpu.props.warpgroups:
        pytest.skip("16-bit attention needs compute capability 9.0")
    path = tmp_path / "record.json"
    result = hw4("bench", *kernels, text, "--peers", "torch", "--sustained", "--samples", "20", "--output", path)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = {row["kernel"]: row for row in json.loads(path.read_text())["rows"]}
    for name in (*kernels, *peers):
        row = rows[name]
        assert row["status"] == "ok", row["reason"]
        assert 0 < row["fastest"] <= row["median"] <= row["slowest"]
        assert len(row["samples_ms"]) == row["samples"] >= 10
        assert 0 < row["relative_error"] < 5e-3
        assert row["tflops"] == pytest.approx(workload(text).work.flops / row["median"] / 1e9)
        assert row["sustained_ms"] is None or 0.5 * row["median"] < row["sustained_ms"] < 2 * row["median"]
    assert all(rows[name]["repeats"] and rows[name]["registers"] for name in kernels)


def test_measurements_from_python_are_the_same_record(gpu):
    record = hw4cli.bench("flash", "N=300 d=32 dtype=fp32")
    (row,) = record["rows"]
    assert (row["kernel"], row["status"], record["kind"]) == ("flash", "ok", "arrays")


@pytest.mark.parametrize("text", ["B=2 H=8 KVH=2 N=300 Nk=500 d=64 dtype=bf16 causal", "H=4 N=1000 d=128 dtype=fp16"])
def test_the_kernel_in_triton_is_a_peer_that_is_right(hw4, tmp_path, text):
    pytest.importorskip("triton")
    word, path = f"{ROOT}/benchmarks/measure/triton_attention.py:attention", tmp_path / "record.json"
    result = hw4("bench", "half_mma", text, "--peers", word, "--samples", "10", "--output", path)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = {row["kernel"]: row for row in json.loads(path.read_text())["rows"]}
    assert (rows[word]["status"], rows[word]["ours"]) == ("ok", False), rows[word]["reason"]


def test_three_tf32_products_are_as_exact_as_float32_in_triton(hw4, tmp_path):
    pytest.importorskip("triton")
    words = [f"{ROOT}/benchmarks/measure/triton_attention.py:{name}" for name in ("attention", "tf32x3")]
    path, text = tmp_path / "record.json", "B=2 H=4 KVH=2 N=500 d=64 dtype=fp32 causal"
    result = hw4("bench", "flash", text, "--peers", ",".join(words), "--samples", "10", "--output", path)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = {row["kernel"]: row for row in json.loads(path.read_text())["rows"]}
    for word in words:
        assert rows[word]["status"] == "ok", rows[word]["reason"]
        assert rows[word]["relative_error"] < 1e-5


@pytest.mark.parametrize("which", ["fwd", "bwd"])
def test_the_newest_peers_are_right_or_say_why_they_are_not_there(gpu, hw4, tmp_path, which):
    pytest.importorskip("triton")
    path, text = tmp_path / "record.json", "B=2 H=4 N=512 d=128 dtype=bf16"
    optional = ["flash-attn-4", "flash-attn-4-deterministic", "cudnn-frontend", "cudnn-frontend-deterministic"]
    optional += ["cudnn-blocks", "cudnn-flex", "tlx"]
    words = ",".join(["flex", *(f"{word}?" for word in optional)])
    result = hw4("bench", "--pass", which, text, "--peers", words, "--samples", "10", "--output", path)
    assert result.returncode == 0, result.stdout + result.stderr
    _, *peers = json.loads(path.read_text())["rows"]
    assert len(peers) == 8
    for row in peers:
        assert row["status"] == "ok" or (row["status"] == "failed" and row["reason"]), row
    assert next(row for row in peers if row["kernel"] == "FlexAttention")["status"] == "ok"


@pytest.mark.parametrize(("which", "factor"), [("bwd", 2.5), ("both", 3.5)])
@pytest.mark.parametrize(
    ("text", "peers"),
    [
        ("B=1 H=8 KVH=2 N=1000 d=64 dtype=bf16 causal", []),
        ("B=2 H=4 N=512 d=128 dtype=fp16 layout=packed", ["FA2", "efficient"]),
        ("B=2 H=4 N=512 d=64 dtype=fp32", ["efficient"]),
        ("B=2 H=4 N=500 d=192 dv=128 dtype=bf16 causal", ["cuDNN"]),
    ],
)
def test_gradients_are_checked_and_measured_beside_torchs(gpu, hw4, tmp_path, which, factor, text, peers):
    pytest.importorskip("torch")
    path = tmp_path / "record.json"
    options = ["--peers", "cudnn,fa2,efficient", "--samples", "10", "--output", path]
    result = hw4("bench", "--pass", which, text, *options)
    assert result.returncode == 0, result.stdout + result.stderr
    ours, *theirs = json.loads(path.read_text())["rows"]
    assert (ours["status"], ours["ours"], ours["repeats"]) == ("ok", True, True)
    found = {row["kernel"]: row for row in theirs}
    for row in (ours, *(found[name] for name in peers)):
        assert row["status"] == "ok", row["reason"]
        assert row["tflops"] == pytest.approx(factor * workload(text).work.flops / row["median"] / 1e9)
        assert 0 < row["relative_error"] < 1e-2
