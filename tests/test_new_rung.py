"""Adding a kernel is one file and one entry: in a copy of the source tree, where everything else finds it."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from helpers import ROOT
from slow import slow

HEAVY = shutil.ignore_patterns("__pycache__", ".*", "*.out", "t[0-9][0-9]", "tmp*", "build", "dist")
FOLDERS = ("hw4cli", "kernels", "tests", "docs", "benchmarks", "testcases")
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "Makefile", "pyproject.toml")


def run(tree, *words, **env):
    """Run Python's -m WORDS in a source tree, and take its modules."""
    env = {**os.environ, "PYTHONPATH": str(tree), "CUDA_VISIBLE_DEVICES": "-1", **env}
    return subprocess.run([sys.executable, "-m", *words], cwd=tree, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the source tree in which somebody has added the kernel `toy`, as `hw4 new-kernel` says."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tree / folder, ignore=HEAVY)
    for file in FILES:
        shutil.copy(ROOT / file, tree)
    printed = run(tree, "hw4cli", "new-kernel", "kernels/toy", "--from", "naive").stdout
    assert "put this entry into hw4cli/plans/scalar.py, behind NAIVE:" in printed
    entry = printed[printed.index("TOY = ") : printed.index("\n)\n") + 3]
    module = tree / "hw4cli/plans/scalar.py"
    before, naive, after = module.read_text().partition("NAIVE = Variant(")
    own, end, after = after.partition("\n)\n")
    module.write_text(before + naive + own + end + "\n" + entry + after)
    return tree


def test_the_commands_know_it(tree):
    kernels = json.loads(run(tree, "hw4cli", "explain", "--json").stdout)
    assert [kernel["kernel"] for kernel in kernels][:3] == ["naive", "toy", "paper"]
    completed = run(tree, "hw4cli", _HW4_COMPLETE="bash_complete", COMP_WORDS="hw4 --kernel to", COMP_CWORD="2")
    assert completed.stdout == "plain,toy\n"
    pytest.importorskip("nvidia.cu13", reason="needs NVRTC (pip install 'hw4cli[dev]')")
    rows = json.loads(run(tree, "hw4cli", "check", "toy", "--gpu", "9.0", "--json").stdout)
    assert [row["symbol"] for row in rows] == ["toy_scores", "toy_softmax", "toy_values"]
    assert not any(row["problem"] or row["spilled_bytes"] for row in rows)


@slow
def test_the_compile_tests_and_the_tests_that_need_a_gpu_take_it(tree):
    found = run(tree, "pytest", "--collect-only", "-q", "-k", "toy", "tests/plans/test_kernels.py", "tests/gpu").stdout
    assert "test_every_kernel_compiles_without_spills_and_its_blocks_fit[toy-" in found, found
    assert "tests/gpu/test_gpu_run.py" in found


@slow
def test_every_test_that_does_without_a_gpu_passes_and_no_page_must_change(tree):
    pages = ("tests/test_docs.py", "tests/test_package.py", "tests/cli/test_completion.py")
    quick = "(toy or docs or measured or ladder or kernels_are_completed) and not compiles"
    result = run(tree, "pytest", "-q", "-p", "no:cacheprovider", "-k", quick, "tests/plans", *pages)
    assert result.returncode == 0, result.stdout
