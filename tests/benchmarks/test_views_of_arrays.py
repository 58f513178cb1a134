"""Tables that pages show of attention of arrays."""

from benchmarks.measure.windows import CASES
from benchmarks.pages.arrays import arrays, decoding, exactness, others, sequences, windows
from benchmarks.pages.kernels import masks


def cells(table):
    """A table's lines as dictionaries; of columns with the same name, the last."""
    return [dict(zip(table.header, line, strict=True)) for line in table.lines]


def row(case, kernel, median, **more):
    facts = {"status": "ok", "ours": kernel in ("half", "split", "flash"), "causal": False, "shape": [4, 64, 32]}
    facts |= {"tflops": 100.0, "sustained_ms": 2 * median, "watts": 650.4, "sm_mhz": 1500.0}
    return {"case": case, "kernel": kernel, "median": median, **facts, **more}


SIZES = {"dtype": "bfloat16", "heads": 32, "kv_heads": 8, "Nk": 8192, "shape": [32, 1, 128]}


def test_workloads_of_several_records_stand_beside_peers_rested_and_without_rest():
    facts = {**SIZES, "relative_error": 2e-3, "gb_per_s": 1000.0}
    rows = [row("a", "half", 1.0, **facts), row("a", "cuDNN", 1.5, **facts)]
    rows += [row("a", "FA2", 2.0, sustained_ms=None, **facts), row("wrong", "half", 1.0, status="wrong", **facts)]
    one = {"machine": {"gpu": "NVIDIA H200"}, "copy_gb_per_s": 4000.0, "rows": rows}
    short = [row("short", "half", 0.02, **{**facts, "sustained_ms": None})]
    other = {**one, "memory": {"short": {"bytes": 1, "read": 0.015, "copy": 0.014}}, "rows": short}
    rested, short = arrays(one, other).lines
    assert rested[:6] == ["`a` (1, 32/8, 1/8192, 128) bf16", "half", "1", "100", "25%", "2.0e-03"]
    assert rested[6:] == ["1.5 (1.50)", "2 (2.00)", "2, 650 W", "3 (1.50)", "-"]
    assert short[0].startswith("`short`") and short[4:] == ["70%", "2.0e-03", "-", "-", "-", "-", "-"]


def test_peers_have_their_energy_and_what_they_do_not_compute_is_said_with_the_reason():
    facts = {**SIZES, "relative_error": 2e-3, "gflop_per_joule": 800.4}
    absent = {**SIZES, "status": "failed", "reason": "needs the package flash-attn-4, which is not installed here"}
    unnamed = "(1, 32/8, 1/8192, 128) bf16"
    rows = [row("a", "half", 1.0, **facts), row("a", "cuDNN", 1.5, **{**facts, "gflop_per_joule": None, "watts": None})]
    rows += [row("a", "flash-attn 4", 0.0, **absent), row("a", "TLX", 0.0, **{**absent, "reason": "has no mask"})]
    rows += [row(unnamed, "half", 1.0, **facts), row(unnamed, "flash-attn 4", 0.0, **absent)]
    table = others({"rows": rows})
    assert table.header == ["workload", "kernel", "ms", "TFLOP/s", "W", "GFLOP/J", "error"]
    assert table.lines == [
        ["`a` (1, 32/8, 1/8192, 128) bf16", "half", "1", "100", "650", "800", "2.0e-03"],
        ["`a` (1, 32/8, 1/8192, 128) bf16", "cuDNN", "1.5 (1.50)", "100", "-", "-", "2.0e-03"],
        [unnamed, "half", "1", "100", "650", "800", "2.0e-03"],
    ]
    energy, missing = table.below
    assert energy.startswith("W and GFLOP/J: of the whole board")
    why = "needs the package flash-attn-4, which is not installed here"
    assert missing == f"Not computed: flash-attn 4 (all): {why}; TLX (`a`): has no mask."
    plain = others({"rows": [row("a", "half", 1.0, **SIZES, relative_error=2e-3, reason="")]})
    assert plain.header[-2:] == ["TFLOP/s", "error"] and plain.below == ("",)


def test_causal_times_are_shown_beside_those_without_a_mask():
    rows = [row("a", kernel, time) for kernel, time in (("split", 4.0), ("flash", 9.0))]
    rows += [row("b", "split", 2.0, causal=True), row("b", "flash", 0.0, causal=True, status="failed")]
    (line,) = cells(masks({"rows": rows}))
    assert line == {"(B, N, d)": "(4, 64, 32)", "split causal ms": "2", "×": "-", "flash causal ms": "-"}
    assert masks({"rows": rows}).lines == [["(4, 64, 32)", "2", "2.00", "-", "-"]]


def test_errors_of_ours_and_of_peers_stand_in_a_line_for_each_kind_of_numbers():
    facts = {"dtype": "float16", "shape": [4, 256, 64], "max_error": 1.24e-3, "relative_error": 3.51e-4}
    rows = [row("a", kernel, 1.0, distribution="uniform", **facts) for kernel in ("half", "cuDNN")]
    rows += [row("b", "half", 1.0, distribution="normal", **facts), row("b", "cuDNN", 1.0, status="failed")]
    uniform, normal = cells(exactness({"rows": rows}))
    name = "float16, d=64, uniform in [-3, 3)"
    assert uniform == {"numbers": name, "half": "1.2e-03, 3.5e-04", "cuDNN": "1.2e-03, 3.5e-04"}
    assert normal["numbers"] == "float16, d=64, normal" and normal["cuDNN"] == "-"
    worse = [{**one, "max_error": 2e-3} if one["kernel"] == "cuDNN" else one for one in rows]
    uniform, _ = cells(exactness({"rows": rows}, {"rows": worse}))
    assert uniform == {"numbers": name, "half": "1.2e-03, 3.5e-04", "cuDNN": "1.2e-03, 3.5e-04; 2.0e-03, 3.5e-04"}


def test_decoding_is_shown_beside_a_copy_in_microseconds():
    rows = [row("a", "half_split", 0.02, **SIZES, ours=True), row("a", "cuDNN", 0.03, **SIZES)]
    memory = {"a": {"bytes": 33554432, "read": 0.015, "copy": 0.014}}
    (line,) = cells(decoding({"rows": rows, "memory": memory}))
    assert (line["K and V"], line["µs"], line["only read"], line["copy"]) == ("34 MB", "20.0", "15.0", "14.0")
    assert (line["of the copy's rate"], line["cuDNN"], line["× cuDNN"], line["FA2"]) == ("70%", "30.0", "1.50", "-")


def test_a_window_stands_beside_all_keys_and_beside_the_peers():
    case = CASES[0]
    full = case.full.pairs
    assert case.work.pairs == 32 * sum(min(row + 1, 1024) for row in range(16384))
    ms = {"hw4": 0.25, "hw4 full": 2.0, "fa2": 0.5, "fa2 full": 4.0}
    row = {"sizes": case.sizes, "window": case.window, "causal": True, "pass": "forward", "status": "ok", "ms": ms}
    record = {"rows": [{**row, "tflops": 500.0, "share": case.work.pairs / full}], "method": {"windows": "medians"}}
    table = windows({**record, "machine": {"gpu": "H100", "torch": "2"}, "commit": "0" * 40, "date": "2026-11-27"})
    (line,) = cells(table)
    assert line["(batch, heads, N, d)"] == "(1, 32/8, 16384, 128)" and line["window"] == "1,023, 0, causal"
    assert (line["of the full time"], line["of its pairs"], line["FA2 ms"]) == ("12.5%", "12.1%", "0.5 (2.00)")


def test_packed_sequences_stand_beside_each_peer_that_there_is_and_the_others_are_named():
    row = {"mix": "requests", "sequences": 24, "shortest": 2, "longest": 90, "tokens": 1000, "heads": 32, "kv_heads": 8}
    row |= {"d": 128, "pass": "forward", "status": "ok", "tflops": 500.0, "causal": True}
    reason = "needs the package flash-attn-4, which is not installed here"
    rows = [{**row, "ms": {"hw4": 1.0, "fa2": 2.0, "cudnn": 1.5}, "absent": {"fa4": reason, "flex": "no"}}]
    rows += [{**row, "causal": False, "ms": {"hw4": 1.0, "fa2": 3.0}, "absent": {"fa4": reason, "cudnn": "is off"}}]
    machine = {"gpu": "H100", "torch": "2.11", "triton": "3.6", "cudnn": "9.19.0"}
    machine |= {"cudnn_frontend": "1.32.0", "frontends_cudnn": "9.28.1"}
    record = {"rows": rows, "machine": machine, "method": {"sequences": "medians"}, "commit": "c", "date": "d"}
    table = sequences(record)
    causal, full = cells(table)
    assert causal["sequences"] == "24 requests of 2 to 90 causal"
    assert (causal["FA2 ms"], causal["cuDNN ms"], full["cuDNN ms"]) == ("2 (2.00)", "1.5 (1.50)", "-")
    assert "flash-attn 4 ms" not in table.header
    missing, how = table.below
    assert f"flash-attn 4 (all): {reason}; FlexAttention (24 requests of 2 to 90 causal): no" in missing
    assert "cuDNN (24 requests of 2 to 90): is off" in missing
    assert how.startswith("H100, torch 2.11, cudnn-frontend 1.32.0, its cuDNN 9.28.1; commit c")
