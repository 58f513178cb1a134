"""The cases of a record, a process for each: they get ready together, and are timed alone."""

import multiprocessing
import threading
import time
from pathlib import Path

import pytest

from benchmarks.measure import turns
from hw4cli.errors import MachineError


def prepare(case):
    """A case that is ready once all three are, and that sees who else is being timed."""
    folder, name = case
    if name == "broken":
        raise RuntimeError("O of sequence 0 is off by 1\nand more")
    if name == "gone":
        raise SystemExit(3)
    (folder / name).touch()
    while len([*folder.glob("case *")]) < 3:
        time.sleep(0.01)

    def timed():
        (folder / "being timed").touch(exist_ok=False)
        (folder / "being timed").unlink()
        return [{"case": name}]

    return timed


def test_a_case_says_that_it_is_ready_and_waits_for_its_turn():
    way, childs = multiprocessing.Pipe()
    began = []
    ready = lambda case: lambda: [{"case": case, "began": began.append(1)}]  # noqa: E731
    process = threading.Thread(target=turns._case, args=(ready, "case 1", childs))
    process.start()
    assert turns._received(way, "case 1") is None and not began
    way.send("your turn")
    rows, versions = turns._received(way, "case 1")
    process.join()
    assert rows == [{"case": "case 1", "began": None}] and isinstance(versions, dict)
    turns._case(prepare, (None, "broken"), childs)
    with pytest.raises(MachineError, match=r"^case 2: O of sequence 0 is off by 1$"):
        turns._received(way, "case 2")
    childs.close()
    with pytest.raises(MachineError, match=r"^case 2: its process ended$"):
        turns._received(way, "case 2")


@pytest.mark.slow  # as the test above, with processes
def test_cases_get_ready_at_once_and_are_timed_one_after_the_other(tmp_path):
    names = ["case 1", "case 2", "case 3"]
    rows, _ = turns.in_turns(prepare, [(tmp_path, name) for name in names])
    assert [row["case"] for row in rows] == names


@pytest.mark.slow  # as the first one, with processes
def test_a_case_that_fails_ends_or_is_never_ready_is_named(tmp_path: Path, monkeypatch):
    for name, said in (("broken", "O of sequence 0 is off by 1$"), ("gone", "its process ended$")):
        with pytest.raises(MachineError, match=f"{name}.*: {said}"):
            turns.in_turns(prepare, [(tmp_path, name)])
    monkeypatch.setattr(turns, "PATIENCE", 0.1)
    with pytest.raises(MachineError, match=r"case 1.* is not ready after 0\.1 s"):
        turns.in_turns(prepare, [(tmp_path, "case 1")])
