"""The table that a page shows of calls."""

from benchmarks.pages.calls import calls
from hw4cli.problem.workload import Workload

WORK = vars(Workload("bfloat16", 8, 12, 12, 1024, 1024, 64, True))


def row(kernel, direction, host, whole, **more):
    times = {"host_us": host, "whole_us": whole, "status": "ok"}
    return {"case": "gpt2", "work": WORK, "kernel": kernel, "direction": direction, **times, **more}


def test_a_pass_is_a_line_and_a_peers_whole_call_has_how_many_times_as_fast_ours_is():
    rows = [
        row("hw4cli.attention", "arrays", 12.0, 40.0),
        row("hw4", "inference", 20.4, 40.0),
        row("torch", "inference", 30.0, 50.0),
        row("cuDNN", "inference", 0.0, 0.0, status="cannot run"),
        row("empty", "backward", 60.0, 61.0),
        row("hw4", "backward", 100.0, 160.0),
        row("FA2", "backward", 120.0, 240.0),
    ]
    machine = {"gpu": "NVIDIA H100", "cpu": "a CPU", "torch": "2.11", "cudnn": "9.19"}
    table = calls(
        {"machine": machine, "commit": "abc", "date": "today", "method": {"calls": "12 of each"}, "rows": rows}
    )
    workload = "`gpt2` (8, 12, 1024, 64) bf16 causal"
    assert table.lines == [
        [workload, "inference", "20", "30", "-", "40", "50 (1.25)", "-", "-"],
        [workload, "backward", "100", "-", "60", "160", "-", "-", "240 (1.50)"],
    ]
    assert "commit abc" in table.below[0] and "12 of each" in table.below[0]
