"""`hw4 bench --calls`: by functions whose times are made up, and what is refused."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from helpers import run_here

from hw4cli.cli.benchcommand.calls import USUAL
from hw4cli.cli.benchcommand.shown import markdown, shown
from hw4cli.lab import calls
from hw4cli.lab.arrays.named import workload
from hw4cli.lab.calls import CALLS, WARM_UP
from hw4cli.text.tables import comma_separated


class Clock:
    """Time passes where a function is called, and where the GPU is waited for."""

    def __init__(self):
        self.now, self.busy_until = 0, 0

    def perf_counter_ns(self):
        return self.now

    def wait(self):
        self.now = max(self.now, self.busy_until)

    def function(self, host_us, gpu_us):
        def call():
            self.now += 1000 * host_us
            self.busy_until = max(self.now, self.busy_until) + 1000 * gpu_us

        return call


@pytest.fixture
def session(monkeypatch):
    clock = Clock()
    cuda = SimpleNamespace(synchronize=clock.wait, OutOfMemoryError=MemoryError)
    monkeypatch.setattr(calls, "torch_for", lambda option: SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(calls, "time", clock)
    timer = SimpleNamespace(clocks=lambda: {"sm_mhz": 1980}, machine=lambda: {"gpu": "no GPU"})
    made = calls.Session((), 5, timer)
    made.clock = clock
    return made


def test_the_hosts_time_is_apart_from_that_of_whole_calls(session):
    """Calls that cost more than what they compute, and calls that cost less."""
    small = calls._Function("small", session.clock.function(30, 2))
    large = calls._Function("large", session.clock.function(30, 500))
    session._sample([small, large])
    rows = [session._row(workload("gpt2"), "inference", one) for one in (small, large)]
    assert [row.host_us for row in rows] == [30, 30]
    assert rows[0].whole_us == pytest.approx(30 + 2 / CALLS)
    assert rows[1].whole_us == pytest.approx(500 + 30 / CALLS)
    assert len(rows[0].host_samples_us) == len(rows[0].whole_samples_us) == 5


def test_functions_are_called_in_turns_each_in_its_own_context_and_as_often(session):
    entered, called = [], []

    def context(name):
        return lambda: entered.append(name) or nullcontext()

    session._sample([calls._Function(x, lambda x=x: called.append(x), context(x)) for x in "ab"])
    assert entered[:6] == ["a", "b", "b", "a", "a", "b"]  # none is always the one behind another
    assert called[: 3 * CALLS] == ["a"] * CALLS + ["b"] * 2 * CALLS
    assert entered.count("a") == entered.count("b") == WARM_UP + 5 == called.count("a") // CALLS


def test_a_peer_that_cannot_compute_gets_a_line_that_says_so_and_the_others_go_on(session):
    def fails():
        raise RuntimeError("No available kernel.\nAborting execution.")

    one, other = calls._Function("cuDNN", fails), calls._Function("hw4", session.clock.function(1, 1))
    session._sample([one, other])
    row = session._row(workload("gpt2"), "training", one)
    assert (row.status, row.reason) == ("cannot run", "PyTorch: No available kernel.") and len(other.host) == 5


def test_a_record_is_shown_with_its_reasons_and_read_again(session):
    for name, status in (("hw4", ""), ("cuDNN", "PyTorch: no")):
        one = calls._Function(name, session.clock.function(10, 20), reason=status)
        session._sample([one])
        session.rows.append(session._row(workload("decode-1k"), "inference", one))
    record = json.loads(json.dumps(session.record()))
    assert record["kind"] == "calls" and record["machine"]["gpu"] == "no GPU"
    text = shown(record, 200)
    assert "decode-1k" in text and "(16, 32/8, 1/1024, 128) bf16" in text and "cuDNN on decode-1k cannot run" in text
    assert "| decode-1k |" in markdown(record) and "host_us" in comma_separated(record["rows"])


def test_the_usual_workloads_have_names_and_calls():
    for name in USUAL:
        calls.check_calls(workload(name))


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["gpt2"], 3),  # without PyTorch
        (["t28"], 2),
        (["half", "gpt2"], 2),
        (["gpt2", "--warm"], 2),
        (["chunk"], 2),  # of another mask than torch's
        (["nosuch"], 2),
        (["gpt2", "--peers", "flash-attn"], 2),
    ],
    ids=str,
)
def test_what_cannot_be_timed_is_refused_in_a_sentence(words, status, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    done = run_here("bench", "--calls", *words)
    assert done.returncode == status and done.stderr.startswith("hw4: ") and "Traceback" not in done.stderr
