"""Python's bytecode of what a run imports: what is not kept is found, kept, and then found no more."""

import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from hw4cli.cli import run_command
from hw4cli.doctor import bytecode, host, prepare
from hw4cli.doctor.bytecode import compile_sources, missing, sources_of_a_run


@pytest.fixture
def sources(tmp_path):
    """Three sources of which no bytecode is kept, as after an installation that compiled nothing."""
    found = {}
    for name in ("one", "two", "three"):
        path = tmp_path / f"{name}.py"
        path.write_text(f"{name} = 1\n")
        found[path] = tmp_path / "__pycache__" / Path(cache_from_source(str(path))).name
    return found


def test_a_run_imports_numpy_click_and_hw4_and_nothing_of_the_doctors():
    found = {str(path) for path in sources_of_a_run()}
    for part in ("numpy/__init__.py", "click/core.py", "hw4cli/stream/cudadevice.py", "hw4cli/cli/run.py"):
        assert any(path.endswith(part) for path in found), part
    assert not any(path.endswith("doctor/checks.py") or "/rich/" in path for path in found)


def test_what_is_not_kept_is_compiled_to_where_python_looks(sources, tmp_path, monkeypatch):
    assert missing(sources) == sources
    assert compile_sources(sources.items()) == 3
    assert missing(sources) == {}
    monkeypatch.syspath_prepend(tmp_path)
    import one

    assert sources[tmp_path / "one.py"].samefile(one.__cached__)
    del sys.modules["one"]


def test_a_source_that_has_changed_or_another_pythons_bytecode_is_compiled_again(sources):
    compile_sources(sources.items())
    first, second, _ = sources
    first.write_text("one = 22\n")
    sources[second].write_bytes(b"old!" + sources[second].read_bytes()[4:])
    assert set(missing(sources)) == {first, second}
    assert compile_sources(missing(sources).items()) == 2
    assert missing(sources) == {}


def test_a_folder_that_cannot_be_written_and_a_file_that_is_no_python_are_left_out(sources, tmp_path):
    first, second, _ = sources
    first.write_text("1 +\n")
    (tmp_path / "file").touch()
    sources[second] = tmp_path / "file" / "two.pyc"
    assert compile_sources(sources.items()) == 1


@pytest.fixture
def prepared(sources, monkeypatch):
    """`hw4 doctor --prepare` on a machine with no kernel to compile, whose Python keeps no bytecode."""
    monkeypatch.setattr(prepare, "prepare", lambda *_: [])
    monkeypatch.setattr(bytecode, "sources_of_a_run", lambda: sources)
    return sources


def test_preparing_a_machine_keeps_the_bytecode_too_and_the_doctor_sees_it(prepared, capsys):
    [line] = host.bytecode()
    assert (line.state, line.found) == ("warning", "3 modules of 3 that a run imports are compiled at each start")
    assert run_command(["doctor", "--prepare"]) == 0
    assert capsys.readouterr().out == "Python: bytecode of 3 modules kept\n"
    [line] = host.bytecode()
    assert (line.state, line.found) == ("ok", "kept of all 3 modules that a run imports")


def test_what_cannot_be_kept_is_said(prepared, tmp_path, capsys):
    (tmp_path / "__pycache__").touch()
    assert run_command(["doctor", "--prepare"]) == 0
    assert capsys.readouterr().out.startswith("Python: bytecode of 0 modules kept of 3; the others' folders cannot be")
