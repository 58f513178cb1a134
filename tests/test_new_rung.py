"""Adding a kernel, of whatever family, is one file and one entry: in a copy of the source tree, where everything else
finds it."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from helpers import ROOT
from needs import needs
from slow import slow

HEAVY = shutil.ignore_patterns("__pycache__", ".*", "*.out", "t[0-9][0-9]", "tmp*", "build", "dist")
FOLDERS = ("hw4cli", "kernels", "tests", "docs", "benchmarks", "testcases")
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "Makefile", "pyproject.toml")


# Kernels of arrays: the family's module, behind whose entries another is put; the entry; the file that is copied, in
# which symbols are renamed.
ARRAY_KERNELS = (
    ("kernels16", "ENTRIES16 =", 'TOY = MMA.like("half_toy", "a toy")', "half_mma", r"\bhalf_mma(?=\()", "half_toy"),
    (
        *("gradients", "GRADIENTS =", 'TOY = CORES.like("backward_toy", "a toy")'),
        *("backward", r"\bbackward(?=_(delta|dq|dkdv)\()", "backward_toy"),
    ),
)


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
    for family, all_entries, entry, source, old, new in ARRAY_KERNELS:
        text = (tree / f"kernels/{source}.cu").read_text()
        (tree / f"kernels/{new}.cu").write_text(re.sub(old, new, text))
        module = tree / f"hw4cli/plans/{family}.py"
        before, begin, after = module.read_text().partition(all_entries)
        assert begin
        module.write_text(before + entry + "\n\n" + begin + after)
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


@slow
def test_the_commands_know_kernels_of_arrays_that_somebody_has_added(tree):
    what = ("half_toy", "backward_toy", "B=1 H=2 N=100 d=64 dtype=fp16", "--gpu", "A100", "--json")
    launches = json.loads(run(tree, "hw4cli", "explain", *what).stdout)
    symbols = [launch["launch"] for launch in launches]
    assert symbols == ["half_toy", "backward_toy_delta", "backward_toy_dq", "backward_toy_dkdv"]
    completed = run(tree, "hw4cli", _HW4_COMPLETE="bash_complete", COMP_WORDS="hw4 bench half_t", COMP_CWORD="2")
    assert completed.stdout == "plain,half_toy\n"


def test_the_registry_has_what_was_added(tree):
    result = run(tree, "pytest", "-q", "-p", "no:cacheprovider", "tests/plans/test_registry.py")
    assert result.returncode == 0, result.stdout


EXECUTED = """
import numpy as np
from hw4cli.arrays.emulated import run_half
from hw4cli.arrays.gradients.emulated import run_backward
from hw4cli.plans.gradients import fastest
from hw4cli.plans.kernels16 import bound16, kernel16, plan16
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import FLOAT16, Workload

work = Workload(FLOAT16, 1, 2, 1, 40, 50, 32, True, 10)
rng = np.random.default_rng(1)
q, do = rng.standard_normal((2, 1, 2, 40, 32)).astype(np.float16).view(np.uint16)
k, v = rng.standard_normal((2, 1, 1, 50, 32)).astype(np.float16).view(np.uint16)
forward = [run_half(work, q, k, v, kernel=kernel, cc=80, build="plain") for kernel in ("half_mma", "half_toy")]
assert all(one.finished for one in forward)
assert np.array_equal(forward[0].o, forward[1].o) and np.array_equal(forward[0].lse, forward[1].lse)
given = do, q, k, v, np.ascontiguousarray(forward[0].o), np.ascontiguousarray(forward[0].lse)
backward = [run_backward(work, *given, kernel=kernel, build="plain") for kernel in ("backward", "backward_toy")]
assert all(one.finished for one in backward)
assert all(map(np.array_equal, backward[0].gradients, backward[1].gradients))
three = (3.0, 3.0, 3.0)
bounds = [bound16(work, three, plan16(work, DEVICES[80], kernel), 80) for kernel in ("half_mma", "half_toy")]
assert bounds[0] == bounds[1] < 1
assert (kernel16(work, DEVICES[80]), fastest(work, DEVICES[80])) == ("half_mma", "backward_mma")
"""


@slow
@needs("g++|clang++")
def test_a_kernel_of_arrays_computes_and_has_a_bound_by_its_file_and_entry_alone(tree):
    result = run(tree, "timeit", "-n", "1", "-r", "1", EXECUTED)
    assert result.returncode == 0, result.stdout + result.stderr
