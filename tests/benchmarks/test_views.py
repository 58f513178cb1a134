"""Tables that pages show of profiles, of tuning, of energy and of two builds."""

import json

from benchmarks.pages.facts import tuned_source
from benchmarks.pages.kernels import builds, energy, files, over_lengths, rung_limits, versus
from benchmarks.pages.profiles import assignment, counters, limits
from benchmarks.pages.table import kernels_measured, read, text
from benchmarks.pages.tuning import candidates, quickly, schedules, tuned
from hw4cli.lab.arrays.named import workload
from hw4cli.lab.candidates import ArraySpace, TunedRow
from hw4cli.lab.cases import ArrayCase
from hw4cli.plans.plan import DEVICES


def cells(table):
    """The lines of a table, each as its cells; the header first."""
    return [table.header, *table.lines]


def test_a_profile_shows_metrics_beside_the_models_ratio_and_the_limit():
    def metric(name, value, ratio=None):
        return {"name": name, "value": value, "ratio": ratio}

    launch = {
        "kernel": "flash",
        "metrics": [metric("duration", 1.5), metric("achieved_occupancy", 0.18), metric("dram_read", 50.25, 1.004)],
        "sentence": "nearest limit: the issue slots at 84 % of the peak, 16 % away; then the FMA units at 74 %",
    }
    facts = {"gpu": "NVIDIA H200", "tool": "Nsight Compute", "commit": "abc", "date": "2026-11-22"}
    table = counters({**facts, "of": "flash on (B, N, d) = (4, 16384, 64)", "launches": [launch]})
    assert cells(table)[1] == [
        "flash",
        "1.5",
        "0.18",
        "-",
        "-",
        "-",
        "-",
        "-",
        "50.25 (1.00)",
        "-",
        "-",
        "the issue slots, 84 %",
    ]
    assert "(B, N, d) = (4, 16384, 64); commit abc" in table.below[0]


def test_the_assignments_metrics_stand_in_a_line_for_each_launch_with_its_program():
    def launch(kernel, occupancy, **facts):
        return {"kernel": kernel, "metrics": [{"name": "achieved_occupancy", "value": occupancy}], **facts}

    facts = {"gpu": "NVIDIA H200", "tool": "Nsight Compute", "commit": "abc", "date": "2026-11-23"}
    both = [launch("flash", 0.2, program=""), launch("attention<64>", 0.9, program="./student")]
    table = assignment({**facts, "of": "flash, ./student on t20, (B, N, d) = (100, 2048, 64)", "launches": both})
    assert [line[::2] for line in cells(table)] == [
        ["launch", "occupancy", "shared load, GB/s", "global load, GB/s"],
        ["flash", "0.2", "-", "-"],
        ["./student: attention<64>", "0.9", "-", "-"],
    ]
    assert "; t20, (B, N, d) = (100, 2048, 64); commit abc" in table.below[0]
    alone = assignment({**facts, "of": "./hw4 on t28", "launches": [launch("split", 0.1)]})
    assert cells(alone)[1][0] == "split", "older profiles have one program, or none"


def row(kernel, tile, median, own=False, status="ok"):
    reason = "" if median else "does not fit"
    return TunedRow(kernel, tile, own, status, reason, median, median, median, 5).record()


def tuning(*rows, shape=(4, 16384, 64), **machine):
    machine = {"gpu": "NVIDIA H200", "driver": "580", "compute_capability": "9.0", **machine}
    one = {"case": "t28", "shape": [*shape], "causal": False, "rows": [*rows]}
    return {"date": "2026-11-22", "commit": "abc", "machine": machine, "workloads": [one]}


def test_tuning_shows_what_is_taken_before_and_after_and_whether_a_workload_became_slower():
    record = tuning(
        row("split", (128, 64), 0.8),
        row("flash", (128, 32), 0.9, own=True),
        row("split", (192, 64), 1.0, own=True),
        row("split", (256, 128), None, status="refused"),
    )
    table = tuned(record, 0.03)
    assert cells(table)[1][2:] == ["split 192x64", "1", "split 128x64", "0.8", "1.250", "split 128x64", "3 of 4"]
    assert table.below[0].startswith("Slower than before: 0. ")


def test_workloads_in_which_tuning_finds_nothing_faster_are_counted_and_not_listed():
    found = tuning(row("split", (192, 64), 0.8, own=True), row("split", (128, 64), 1.0), shape=(4, 1024, 64))
    gained = tuning(row("split", (128, 64), 0.8), row("split", (192, 64), 1.0, own=True), shape=(4, 1024, 64))
    nothing = tuned(found, 0.03)
    assert nothing.lines == []
    assert text(tuned, found) == f"{nothing.otherwise}\n"
    assert nothing.otherwise.startswith("In all 1 workload, what `auto` takes by itself is the fastest that was timed.")
    both = tuned({**found, "workloads": found["workloads"] + gained["workloads"]}, 0.03)
    assert len(both.lines) == 1
    assert both.below[0].startswith("In the other 1, what `auto` takes")


def test_before_tuning_long_rows_take_the_kernel_that_is_for_them():
    rows = row("split", (192, 64), 0.9, own=True), row("split8", (192, 64), 1.0, own=True)
    assert cells(tuned(tuning(*rows), 0.0))[1][2:5] == ["split8 192x64", "1", "split 192x64"]
    short = tuning(rows[0], row("exact", (256, 64), 2.0, own=True), shape=(4, 1024, 64))
    assert tuned(short, 0.0).lines == [], "split is what short rows take"


def test_of_one_kernel_tuning_shows_how_much_faster_another_tile_is():
    record = tuning(row("flash", (128, 64), 5.0), row("flash", (128, 32), 5.5, own=True))
    assert cells(tuned(record, 0.03))[1][2:8] == ["flash 128x32", "5.5", "flash 128x64", "5", "1.100", "flash 128x64"]
    assert "flash" not in tuned_source([record], 0.03), "auto does not go by what has one kernel alone"


def test_quick_tuning_is_shown_beside_the_fastest_of_every_tile(tmp_path):
    quick = tuning(row("split8", (192, 64), 0.99, own=True), row("split", (192, 64), 1.0, own=True))
    full = tuning(
        row("split", (128, 64), 0.8),
        row("split", (192, 64), 0.82, own=True),
        row("split8", (192, 64), 0.824, own=True),
    )
    (tmp_path / "h200-full.json").write_text(json.dumps(full))
    (tmp_path / "h200.json").write_text(json.dumps(quick))
    table = quickly(read(tmp_path / "h200-full.json"))
    assert cells(table)[1][2:] == ["split8 192x64", "0.824", "split 128x64", "0.8", "3.0%", "3"]
    assert "Slower than the fastest by at most 3.0%." in table.below[0]
    (tmp_path / "h200.json").write_text(json.dumps(tuning(*quick["workloads"][0]["rows"], shape=(1, 128, 64))))
    assert quickly(read(tmp_path / "h200-full.json")).lines == []


def test_candidates_are_those_of_the_fastest_kernel_with_those_that_dropped_out():
    rows = [row("flash", (128, 64), 5.0), row("flash", (128, 32), 5.5, own=True), row("split", (128, 64), 6.0)]
    table = candidates(tuning(*rows, row("flash", (32, 16), 7.0, status="dropped")))
    assert [line[2:6] for line in table.lines] == [
        ["flash 128x64", "5", "0.0%", "1.000"],
        ["flash 128x32 (its own)", "5.5", "0.0%", "1.100"],
        ["flash 32x16 (dropped)", "7", "0.0%", "1.400"],
    ]


RUN = {"low": 9.9, "high": 10.1, "samples": 20, "tflops": 40.0, "max_error": 1e-6, "sgemm_percent": 80.0}
RUN |= {"gb_per_s": None, "registers": 128, "shared_bytes": 0, "occupancy": 0.5}


def test_a_ladder_shows_how_near_each_kernel_comes_to_its_limit():
    machine = {"gpu": "NVIDIA H200", "compute_capability": "9.0"}
    rows = [
        {"kernel": name, "case": "t28", "shape": [4, 16384, 64], "status": status, "median": 10.0, **RUN}
        for name, status in (("flash", "ok"), ("warp", "ok"), ("shared", "wrong"), ("torch math", "ok"))
    ]
    flash, warp = cells(rung_limits({"machine": machine, "rows": rows}))[1:]
    assert flash[:3] + flash[-4:] == ["flash", "10", "40.00", "4.108", "41%", "FFMA", "shared memory, 66% of that"]
    assert (warp[0], warp[-2]) == ("warp", "shared memory")


def test_a_sweep_has_a_line_for_each_kernel_and_a_column_for_each_length():
    def rate(kernel, N, tflops):
        row = {"kernel": kernel, "shape": [1, N, 64], "status": "ok" if tflops else "failed", "tflops": tflops}
        return {**row, "median": 2.0, "low": 1.99, "high": 2.01}

    rows = [rate("warp", 256, 9.876), rate("paper", 128, 0.5), rate("warp", 128, 3.0), rate("paper", 256, None)]
    assert cells(over_lengths({"rows": rows})) == [
        ["TFLOP/s at N =", "128", "256"],
        ["paper", "0.5", "-"],
        ["warp", "3", "9.88"],
    ]


def test_causal_rates_of_another_record_stand_behind_those_without_a_mask():
    facts = {"status": "ok", "median": 2.0, "low": 1.99, "high": 2.01}
    full, causal = (
        {
            "rows": [
                {**facts, "kernel": "warp", "shape": [1, N, 64], "tflops": tflops, "causal": masked} for N in lengths
            ]
        }
        for masked, tflops, lengths in ((False, 3.0, (128, 256)), (True, 2.0, (256,)))
    )
    assert over_lengths(full, causal).lines == [["warp", "3 / -", "3 / 2"]]


def test_rates_whose_samples_differ_are_marked():
    row = {"kernel": "warp", "shape": [1, 128, 64], "status": "ok", "tflops": 3.0, "median": 1.0}
    steady = over_lengths({"rows": [{**row, "low": 0.96, "high": 1.04}]})
    assert (steady.lines, steady.below) == ([["warp", "3"]], ())
    differing = over_lengths({"rows": [{**row, "low": 0.94, "high": 1.06}]})
    assert differing.lines == [["warp", "3*"]] and differing.below[0].startswith("*: samples differ")


def test_energy_is_shown_of_what_ran_without_rest():
    one = {"kernel": "split", "case": "t28", "status": "ok", "sustained_ms": 0.88, "watts": 688.0}
    rows = [{**one, "joules": 0.6073, "gflop_per_joule": 452.6}, {**one, "kernel": "flash", "joules": None}]
    assert energy({"rows": rows}).lines == [["split", "t28", "0.88", "688", "0.607", "453"]]


def test_builds_are_shown_with_their_commits_and_the_verdict():
    one = {"kernel": "split", "case": "t22", "median": 2.0, "within": 0.001, "between": 0.002, "ratio": None}
    other = {**one, "build": "B", "ratio": 0.9, "least": 0.89, "most": 0.91, "verdict": "faster"}
    record = {
        **{"date": "2026-11-22", "processes": 6, "machine": {"gpu": "NVIDIA H200", "driver": "580"}},
        **{"builds": {"A": "abc", "B": "def"}, "rows": [{**one, "build": "A"}, other]},
    }
    lines = cells(builds(record))
    assert [line[2] for line in lines[1:]] == ["A (abc)", "B (def)"]
    assert lines[2][-3:] == ["0.9000", "0.8900 to 0.9100", "faster"]


def test_what_limits_a_kernel_is_that_of_its_longest_launch():
    sentence = "nearest limit: the tensor cores at 81 % of the peak, 19 % away; then DRAM at 4 %; "
    sentence += "largest stall: barrier, 30 % of all"
    launches = [
        {"kernel": kernel, "metrics": [{"name": "duration", "value": ms}], "sentence": text}
        for kernel, ms, text in (("half_start", 0.002, "?"), ("half", 0.7, sentence))
    ]
    profile = {"workload": "lm8k", "launches": launches, "gpu": "H", "tool": "N", "commit": "c", "date": "d"}
    table = limits(profile)
    line = dict(zip(*cells(table), strict=True))
    assert line["launch"] == "half" and line["busiest"] == "the tensor cores, 81 %"
    assert (line["then"], line["largest stall"]) == ("DRAM, 4 %", "barrier, 30 %")


def test_schedules_of_a_workload_stand_side_by_side():
    ways = {(1, 1): 1.0, (1, 0): 1.1, (0, 0): 1.2}
    case = workload("lm8k")
    rows = []
    for one in ArraySpace("half", ArrayCase(case), quick=True).candidates(DEVICES[90]):
        ms = ways[one.tiling.ahead, one.tiling.turns]
        rows.append(one.row("ok", median=ms).record())
    facts = {"machine": {"gpu": "H", "driver": "5"}, "commit": "c", "date": "d"}
    table = schedules({"workload": "lm8k", "workloads": [{"rows": rows}], **facts})
    (line,) = table.lines
    assert line == ["`lm8k`", "192x64", "1.2", "1.1", "1"]


def test_a_versus_table_puts_the_others_beside_the_first():
    facts = {"status": "ok", "shape": [4, 16384, 64], "low": 9.9, "high": 10.1, "samples": 20, "max_error": 1e-6}
    facts |= {"sgemm_percent": None, "gb_per_s": None, "registers": None, "shared_bytes": None, "occupancy": None}
    rows = [
        {"kernel": kernel, "case": case, "median": median, "tflops": 400 / median, **facts}
        for case in ("t28", "t30")
        for kernel, median in (("flash", 10.0), ("torch", 20.0))
    ]
    first, _ = versus({"rows": rows}).lines
    assert first == ["t28", "(4, 16384, 64)", "10", "40.00", "-", "1.0e-06", "20.00", "2.00"]


def test_a_case_has_the_time_of_each_kernel_and_the_rate_of_the_one_that_auto_takes():
    def run(case, N, kernel, median):
        return {**RUN, "case": case, "shape": [4, N, 64], "kernel": kernel, "median": median, "status": "ok"}

    rows = [
        run(case, N, kernel, median)
        for case, N in (("t18", 1024), ("t28", 16384))
        for kernel, median in (("split", 0.75), ("split8", 0.5), ("torch efficient", 7.5))
    ]
    short, long = files({"rows": rows}).lines
    assert short[2:] == ["0.75", "0.5", "-", "-", "7.5", "split", "40", "1.0e-06", "10.0"]
    assert long[7:] == ["split8", "40", "1.0e-06", "15.0"]


def test_records_of_one_table_state_what_they_have_in_common_once():
    facts = {"machine": {"gpu": "H", "driver": "5", "cuda": "13", "cupy": "14"}, "date": "2026-11-23"}
    facts |= {"method": {"timer": "events", "cache": "cold", "flops": "4*B*N*N*d"}, "copy_gb_per_s": 4000.0}
    one = {**facts, "commit": "abc", "sgemm_tflops": 51.1, "rows": [{**RUN, "host_ms": 0.1, "samples": 10}]}
    paused = {**facts["method"], "pause": "0.03 s of rest before each sample"}
    other = {**one, "commit": "def", "sgemm_tflops": 51.3, "rows": [{**RUN, "host_ms": 0.1}], "method": paused}
    assert kernels_measured(one, other) == (
        "H, driver 5, CUDA 13, cupy 14, cuBLAS SGEMM 51.1 to 51.3 TFLOP/s, copy 4,000 GB/s; commits abc, def, "
        "2026-11-23; medians of 10 to 20 samples, events, cold, 0.03 s of rest before each sample; FLOPs = 4·B·N·N·d."
    )
    peer = {**RUN, "host_ms": 0.1, "samples": 10, "ours": False}
    versions = {"torch": "2.11.0", "cudnn": "9.28.1", "flash_attn_4": "4.0.0b36"}
    named = {**one, "machine": {**one["machine"], **versions}, "rows": [peer]}
    assert "cupy 14, torch 2.11.0, cuDNN 9.28.1, flash-attn-4 4.0.0b36, cuBLAS" in kernels_measured(named)
    assert "cupy 14, torch's version not recorded, cuBLAS" in kernels_measured({**one, "rows": [peer]})
    late = {**one, "rows": [{**RUN, "host_ms": None}]}
    assert "; the host's times are not recorded: less than 1 ms may include launches; FLOPs" in kernels_measured(late)


def test_a_view_without_a_line_has_no_text_and_one_with_lines_says_how_it_was_measured():
    facts = {"kind": "builds", "date": "2026-11-22", "processes": 6, "machine": {"gpu": "H200", "driver": "580"}}
    assert text(builds, {**facts, "rows": []}) == ""
    one = {
        "kernel": "split",
        "case": "t22",
        "build": "A",
        "median": 2.0,
        "within": 0.001,
        "between": None,
        "ratio": None,
    }
    shown = text(builds, {**facts, "builds": {"A": "abc"}, "rows": [one]})
    assert shown.startswith("| kernel | case |") and shown.endswith(
        "\n\nH200, driver 580, 2026-11-22; 6 processes of each build in turns.\n"
    )
