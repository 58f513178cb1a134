"""benchmarks/scaling.py, as far as it runs without a GPU: its files, and how it checks outputs."""

import importlib.util

from helpers import ROOT, read_output, run_hw4

from hw4cli.problem.shape import Shape

SPEC = importlib.util.spec_from_file_location("scaling", ROOT / "benchmarks/scaling.py")
scaling = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(scaling)


def test_outputs_are_compared_with_each_other_and_with_float64(tmp_path):
    shape = (3, 200, 32)
    scaling.make(tmp_path / "in", shape)
    for name, options in (("out", ()), ("causal", ("--causal",)), ("again", ())):
        assert run_hw4(tmp_path / "in", tmp_path / name, "--device", "cpu", *options).returncode == 0
    assert scaling.same(tmp_path / "out", tmp_path / "again")
    assert not scaling.same(tmp_path / "out", tmp_path / "causal")
    assert scaling.worst_error(tmp_path / "in", tmp_path / "out", shape) < 2e-5
    assert scaling.worst_error(tmp_path / "in", tmp_path / "causal", shape, causal=True) < 2e-5
    assert scaling.worst_error(tmp_path / "in", tmp_path / "causal", shape) > 0.1
    assert abs(read_output(tmp_path / "out", Shape(*shape))).max() < 3
