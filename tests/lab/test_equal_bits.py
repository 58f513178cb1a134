"""Whether two checkouts compute the same bits (benchmarks/measure/equal_bits.py): by checkouts of a few lines whose GPU
is NumPy."""

import subprocess
import sys
import time

import pytest
from helpers import ROOT
from slow import slow

from benchmarks.measure import equal_bits
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.kernels16 import KERNELS16
from hw4cli.plans.registry import VARIANTS

CUPY = "from numpy import asarray\nasnumpy = asarray\n"
HW4 = """
class Hw4Error(Exception): pass

class Gpu:
    def attention(self, block, kernel, causal):
        return block[:, 0] + FACTOR[kernel] if kernel in FACTOR else block[:, 0]

def attention(q, k, v, causal, kernel, return_lse):
    if kernel == "half":
        raise ValueError("there is no half here")
    return (q, q[..., 0]) if return_lse else q

def attention_backward(do, q, k, v, o, lse, causal, kernel):
    return (q + next(TURNS), k, v) if kernel == "backward_atomic" else (q, k, v)

def write_input(path, block):
    path.write_bytes(block.tobytes())

TURNS = iter(range(10**6))
FACTOR = {factor}
"""
MAIN = "import sys\nopen(sys.argv[2], 'wb').write(open(sys.argv[1], 'rb').read())\n"


def checkout(folder, factor):
    package = folder / "hw4cli"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(HW4.replace("{factor}", repr(factor)))
    (package / "__main__.py").write_text(MAIN)
    (folder / "cupy.py").write_text(CUPY)
    return folder


def compare(tmp_path, monkeypatch, capsys, **factors):
    """The exit status, and what is printed, of two checkouts whose kernels add such numbers."""
    old, new = (checkout(tmp_path / name, factor) for name, factor in factors.items())
    monkeypatch.setattr(equal_bits, "ROOT", new)
    monkeypatch.setattr(equal_bits, "WORK", 10**6)
    monkeypatch.setattr(equal_bits, "VARIANTS", {name: VARIANTS[name] for name in ("naive", "flash")})
    monkeypatch.setattr(equal_bits, "TORCH", False)
    monkeypatch.setattr(sys, "argv", ["equal_bits", str(old), "--shapes", "1", "--processes", "1"])
    return equal_bits.main(), capsys.readouterr().out


def test_all_kernels_are_asked_in_all_ways():
    jobs = equal_bits.drawn(200, 1)
    assert 200 <= len(jobs) <= 300
    assert jobs == equal_bits.drawn(200, 1) != equal_bits.drawn(200, 2)
    asked = {(job["kind"], job["kernel"]) for job in jobs}
    ways = {"file": VARIANTS, "ladder": VARIANTS, "arrays": [*VARIANTS, *KERNELS16], "gradients": GRADIENTS}
    assert asked == {(kind, name) for kind, names in ways.items() for name in names}


@slow
def test_equal_checkouts_are_equal_and_what_is_not_compared_is_counted(tmp_path, monkeypatch, capsys):
    code, said = compare(tmp_path, monkeypatch, capsys, old={}, new={})
    assert code == 0, said
    for words in ("file       equal", "ladder     equal", "arrays     equal", "gradients  equal"):
        assert words in said
    assert "refused" in said and "there is no half here" in said
    assert "gradients  does not repeat" in said


@slow
def test_a_kernel_whose_bits_differ_is_named_with_its_workload(tmp_path, monkeypatch, capsys):
    code, said = compare(tmp_path, monkeypatch, capsys, old={}, new={"flash": 2.0**-20})
    assert code == 1
    lines = [line for line in said.splitlines() if line.startswith(equal_bits.DIFFERENT)]
    assert lines and all("ladder by flash, float32, batch" in line for line in lines)


@pytest.mark.parametrize("old", ["no-such-commit", "/no/such/folder"])
def test_what_is_neither_a_commit_nor_a_checkout_is_refused(old):
    command = [sys.executable, "-m", "benchmarks.measure.equal_bits", old]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3
    assert "neither a folder with hw4cli in it nor a commit" in done.stderr


def test_a_checkout_that_computes_nothing_is_told_by_its_last_line_and_ends_the_other(tmp_path, monkeypatch, capsys):
    old, new = (checkout(tmp_path / name, {}) for name in ("old", "new"))
    (old / "cupy.py").write_text("raise ImportError('no cupy here')")
    monkeypatch.setattr(equal_bits, "ROOT", new)
    monkeypatch.setattr(sys, "argv", ["equal_bits", str(old), "--shapes", "1", "--processes", "1"])
    (new / "cupy.py").write_text("import time\ntime.sleep(300)")
    began = time.monotonic()
    assert equal_bits.main() == 3
    assert "no cupy here" in capsys.readouterr().err
    assert time.monotonic() - began < 150, "the other checkout was waited for"
