"""The peers of records of whole calls: each is checked, and what is missing or wrong is named."""

import time
from types import SimpleNamespace

from benchmarks.measure import peers
from benchmarks.measure.peers import Call, beside
from benchmarks.measure.sequences import shown
from hw4cli.errors import MachineError


def of_rows(rows, **asked):
    return Call(SimpleNamespace(shape=(2, rows, 4, 64)), None, None, None, **asked)


def test_a_peer_that_is_missing_wrong_or_broken_is_left_out_with_the_reason(monkeypatch):
    def missing(call):
        raise MachineError("needs the package of nobody, which is not installed here")

    def broken(call):
        raise AssertionError("d is too large\nand more")

    def slow(call):
        while True:
            time.sleep(0.01)

    made = {"right": lambda call: (lambda: 1.0, lambda: (1.0,)), "wrong": lambda call: (lambda: 2.0, lambda: (1.0,))}
    made |= {"missing": missing, "broken": broken, "slow": slow}
    monkeypatch.setattr(peers, "LIMIT", 0.05)

    def check(o, gradients):
        if o != 1.0:
            raise RuntimeError("O of rows from 0 on is off by 1")

    ways, absent = beside(of_rows(100, causal=True), check, made)
    assert list(ways) == ["right"] and ways["right"][0]() == 1.0
    assert absent == {
        "wrong": "O of rows from 0 on is off by 1",
        "missing": "needs the package of nobody, which is not installed here",
        "broken": "d is too large",
        "slow": "it is not compiled in the 0.05 s that all peers of a case have",
    }
    line = shown({"hw4": 1.0, "right": 1.5}, absent)
    assert line.startswith("hw4 1.000 ms, right 1.500 ms, no wrong: O of rows") and "no broken: d is too large" in line


def test_the_longest_sequence_and_a_windows_sides_are_those_that_peers_take():
    assert of_rows(100, causal=True).longest == 100
    assert of_rows(0, causal=True, starts=(0, 60, 75, 300)).longest == 225
    assert of_rows(1, causal=False).sides == (-1, -1)
    assert of_rows(1, causal=True).sides == (-1, -1), "a mask is not a window"
    assert of_rows(1, causal=False, window=(20, 30)).sides == (20, 30)
    assert of_rows(1, causal=True, window=(20, 30)).sides == (20, 0)
