"""The notebook runs from its first cell to its last on the CPU, and prints what it shows."""

import io
import json
import sys
from contextlib import redirect_stdout

import pytest
from helpers import ROOT
from slow import slow

CELLS = json.loads((ROOT / "docs/attention.ipynb").read_text())["cells"]


@pytest.fixture
def without_a_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    for name in [name for name in sys.modules if name.split(".")[0] == "cupy"]:  # what other tests have put there
        monkeypatch.delitem(sys.modules, name)


@slow
def test_every_cell_runs_in_order_and_prints_what_it_shows(tmp_path, monkeypatch, without_a_gpu):
    monkeypatch.chdir(tmp_path)
    names = {}
    for cell in CELLS:
        if cell["cell_type"] == "code":
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec("".join(cell["source"]), names)
            shown = "".join(line for output in cell["outputs"] for line in output["text"])
            assert printed.getvalue() == shown, "".join(cell["source"])
    assert len(names) > 10
