"""The public Python interface: what `import hw4cli` offers, and what its examples show."""

import ast
import doctest
import importlib
import json
import subprocess
import sys

import numpy as np
import pytest
from helpers import ROOT, definition, random_block
from needs import COMPILER, needs

import hw4cli
from hw4cli import InputError, Shape
from hw4cli.problem.workload import Workload

NAMES = [name for name in hw4cli.__all__ if name != "__version__"]


def run(statement):
    return subprocess.check_output([sys.executable, "-c", statement], cwd=ROOT, text=True)


def test_importing_it_imports_nothing_else():
    added = run("import sys; before = set(sys.modules); import hw4cli, json; print(json.dumps(sorted(sys.modules)))")
    plain = run("import sys; import json; print(json.dumps(sorted(sys.modules)))")
    assert set(json.loads(added)) - set(json.loads(plain)) == {"hw4cli"}


def test_a_name_imports_only_what_it_needs():
    found = run("import sys; from hw4cli import Shape; print(*sorted(sys.modules))").split()
    assert "hw4cli.problem.workload" in found
    assert not {"numpy", "click", "cupy"} & set(found)


def test_a_name_that_is_missing_is_named():
    with pytest.raises(AttributeError, match="'hw4cli' has no attribute 'atention'"):
        _ = hw4cli.atention


def test_type_checkers_see_the_same_names_in_the_same_modules():
    tree = ast.parse((ROOT / "hw4cli/__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module.startswith("hw4cli")]
    assert {alias.asname: node.module for node in imports for alias in node.names} == {
        name: f"hw4cli.{module}" for name, module in hw4cli._MODULES.items()
    }
    assert (ROOT / "hw4cli/py.typed").exists()


def test_it_lists_its_names():
    assert set(NAMES) <= set(dir(hw4cli))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(COMPILER)) if name == "emulate" else name for name in NAMES]
)
def test_every_public_name_has_an_example_that_holds(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subject = getattr(hw4cli, name)
    module = importlib.import_module(subject.__module__)
    finder = doctest.DocTestFinder(recurse=False)
    [test] = finder.find(subject, name, module, extraglobs={"np": np})
    if not test.examples:  # an error's example is that of the class of them all
        assert issubclass(subject, hw4cli.Hw4Error)
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0


@pytest.mark.parametrize("page", ["api", "scale", "gradients"])
def test_the_examples_in_its_pages_hold(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = str(ROOT / f"docs/{page}.md")
    failed, tried = doctest.testfile(path, module_relative=False, optionflags=doctest.ELLIPSIS)
    assert (failed, tried > 5) == (0, True)


def test_an_input_that_was_written_is_read_as_it_was(tmp_path):
    block = random_block(2, 5, 8)
    assert np.array_equal(hw4cli.read_input(hw4cli.write_input(tmp_path / "in", block)), block)


def test_a_random_input_is_the_one_that_gen_makes(tmp_path, hw4):
    hw4("gen", "2,128,32", "--seed", "7", "--no-answers", "-o", tmp_path / "in")
    assert np.array_equal(hw4cli.random_input(Shape(2, 128, 32), seed=7), hw4cli.read_input(tmp_path / "in"))


def test_both_cpu_functions_compute_the_definition(tmp_path):
    block = random_block(2, 40, 8)
    answer = definition(block).astype(np.float32)
    for function in (hw4cli.exact_attention, hw4cli.tiled_attention):
        comparison = hw4cli.compare(function(block), answer, tolerance=1e-5)
        assert comparison.right, comparison.reason()


@pytest.mark.parametrize("function", [hw4cli.exact_attention, hw4cli.tiled_attention, Workload.of_block])
@pytest.mark.parametrize("array", [np.zeros((2, 3, 4, 8)), np.zeros((3, 4, 8), "f"), np.zeros((2, 2, 4, 8), "f")])
def test_an_array_of_another_type_or_shape_is_refused(function, array):
    with pytest.raises(InputError, match=r"must be a float32 array \(B, 3, N, d\), but this is float"):
        function(array)


def test_files_and_arrays_that_do_not_fit_are_refused_in_a_sentence(tmp_path):
    path = hw4cli.write_output(tmp_path / "out", np.zeros((2, 4, 8), np.float32))
    with pytest.raises(InputError, match=r"out has 256 bytes, but an output of shape \(3, 4, 8\) has 384"):
        hw4cli.read_output(path, Shape(3, 4, 8))
    with pytest.raises(InputError, match="float64"):
        hw4cli.write_output(path, np.zeros((2, 4, 8)))
    with pytest.raises(InputError, match="d is 129"):
        hw4cli.write_input(path, np.zeros((2, 3, 4, 129), np.float32))
    with pytest.raises(InputError, match="the output has shape"):
        hw4cli.compare(np.zeros(3, np.float32), np.zeros(4, np.float32))


def test_arrays_with_heads_become_a_case_and_come_back(tmp_path):
    q, k, v = hw4cli.generate("B=2 H=3 N=20 d=8 dtype=fp32")
    path = hw4cli.write(tmp_path / "in", q, k, v)
    again = hw4cli.read(path)
    assert [x.shape for x in again] == [(6, 1, 20, 8)] * 3
    assert all(np.array_equal(x.reshape(y.shape), y) for x, y in zip(again, (q, k, v), strict=True))
    o = hw4cli.attention(q, k, v)
    answer = hw4cli.exact_attention(hw4cli.read_input(path))
    written = hw4cli.read_output(hw4cli.write(tmp_path / "out", o), Shape(6, 20, 8))
    assert hw4cli.compare(written, answer, tolerance=1e-5).right


@pytest.mark.parametrize("shapes", [[], [(2, 4, 8)] * 2, [(2, 4, 8), (2, 4, 8), (2, 5, 8)], [(4, 8)]])
def test_arrays_that_are_no_case_are_refused(shapes, tmp_path):
    with pytest.raises(InputError, match="give Q, K and V, or O alone, all of one shape"):
        hw4cli.write(tmp_path / "in", *(np.zeros(shape, np.float32) for shape in shapes))
    assert not (tmp_path / "in").exists()


def test_numbers_of_a_type_that_numpy_has_not_are_refused():
    with pytest.raises(InputError, match="numpy has no bfloat16: give library='torch'"):
        hw4cli.generate("N=4 d=8 dtype=bf16")
    with pytest.raises(InputError, match="library is 'jax'"):
        hw4cli.generate("N=4 d=8", library="jax")
