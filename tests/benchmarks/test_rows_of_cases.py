"""The rows of a record of whole calls: which way of each pass is timed, and what is written of it."""

import pytest

from benchmarks.measure import sequences


def test_a_row_for_each_pass_has_the_times_of_its_own_calls_and_the_facts_of_the_case(monkeypatch, capsys):
    times = {"hw4 forward": 2.0, "hw4 backward": 5.0, "fa2 forward": 3.0, "fa2 backward": 9.0}
    ways = {name: tuple(f"{name} {one}" for one in ("forward", "backward")) for name in ("hw4", "fa2")}
    monkeypatch.setattr(sequences, "milliseconds", lambda _, made: {name: times[way] for name, way in made.items()})
    rows = sequences.rows_of(None, ways, 4e9, {"window": 7}, {"fa4": "not installed"}, "a case")()
    assert [(row["window"], row["pass"], row["status"]) for row in rows] == [
        (7, "forward", "ok"),
        (7, "backward", "ok"),
    ]
    assert [row["ms"] for row in rows] == [{"hw4": 2.0, "fa2": 3.0}, {"hw4": 5.0, "fa2": 9.0}]
    assert [row["tflops"] for row in rows] == pytest.approx([2.0, 2.0])
    assert all(row["absent"] == {"fa4": "not installed"} for row in rows)
    said = capsys.readouterr()
    assert "a case, backward: hw4 5.000 ms, fa2 9.000 ms, no fa4: not installed" in said.out + said.err
