"""Profilers and a GPU that there are not: programs on PATH that answer as the real ones did."""

import stat
import sys
from pathlib import Path

import pytest

# A profiler: it keeps its arguments, writes a table to where --log-file (or -d) says, and runs what it should profile.
TOOL = """#!{python}
import os, pathlib, subprocess, sys
words = sys.argv[1:]
if words == ["--version"]:
    print({printed!r})
    sys.exit(0)
pathlib.Path({seen!r}).write_text("\\n".join(words))
log = words[words.index("--log-file") + 1] if "--log-file" in words else None
path = pathlib.Path(log) if log else pathlib.Path(words[words.index("-d") + 1], "profile_counter_collection.csv")
path.parent.mkdir(parents=True, exist_ok=True)
of = next((one for word, one in {others!r}.items() if any(word in other for other in words)), {table!r})
path.write_text(pathlib.Path(of).read_text())
print({printed!r})
if {runs!r}:
    subprocess.run(words[words.index({runs!r}):], check=True)
sys.exit({status})
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Make programs on PATH: `tools(ncu=...)` a profiler with this table, `others=` with these where a word of its
    arguments has these letters, `gpu=` what nvidia-smi says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_PATH", "/nonexistent")
    monkeypatch.setenv("CUDA_HOME", "/nonexistent")

    def program(name, text):
        path = folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def make(gpu="NVIDIA H100 80GB HBM3, 9.0", printed="", status=0, runs="", others=None, **profilers):
        if gpu:
            program("nvidia-smi", f"#!/bin/sh\necho '{gpu}'\n")
        program("srun", '#!/bin/sh\nwhile [ "${1#-}" != "$1" ] || [ "$1" = nvidia ]; do shift; done\nexec "$@"\n')
        paths = {word: str(tmp_path / f"{number}.table") for number, word in enumerate(others or {})}
        for word, path in paths.items():
            Path(path).write_text(others[word])
        for name, text in profilers.items():
            table, seen = tmp_path / f"{name}.table", tmp_path / f"{name}.seen"
            table.write_text(text)
            facts = {
                "seen": str(seen),
                "table": str(table),
                "others": paths,
                "printed": printed,
                "status": status,
                "runs": runs,
            }
            program(name, TOOL.format(python=sys.executable, **facts))
        return tmp_path

    return make


@pytest.fixture
def hw4(hw4_in_process):
    return hw4_in_process
