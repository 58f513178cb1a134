"""One registry of all kernels: an entry for each file, and no table by kernels' names beside it."""

import ast
from importlib import import_module

import pytest
from helpers import ROOT

from hw4cli.plans.registry import KERNELS

PLANS = ROOT / "hw4cli/plans"
# Where entries stand, with the formulas of their families; and what `make results` writes from records.
REGISTRY = {PLANS / f"{name}.py" for name in ("scalar", "flash", "tensor", "kernels16", "gradients")}
FROM_RECORDS = {PLANS / "measured.py", ROOT / "hw4cli/device/tuning/measured.py"}
# Of kernels, but of other things, too: names of parts, of tables' columns, of rounding, of data.
ALSO_WORDS = {"shared", "global", "paper", "exact", "half", "columns", "warp", "backward", "float64", "absmax"}


# Constants of hw4cli/plans whose values are kernels' names: half.NAME, halfmma.SPLIT.
HELD = {
    (path.stem, name): value
    for path in PLANS.glob("*.py")
    for name, value in vars(import_module(f"hw4cli.plans.{path.stem}")).items()
    if isinstance(value, str) and value in KERNELS
}


def names_in(nodes):
    """Kernels' names among constants, also as they are held in a constant of a module, such as half.NAME."""
    found = {node.value for node in nodes if isinstance(node, ast.Constant) and node.value in KERNELS}
    parts = [
        (node.value.id, node.attr) for node in nodes if isinstance(node, ast.Attribute) and hasattr(node.value, "id")
    ]
    return found | {HELD[pair] for pair in parts if pair in HELD}


def is_table(node):
    """Whether an expression is a dict by kernels' names, a collection of them, or a question for one of them."""
    if isinstance(node, ast.Dict):
        found = names_in([key for key in node.keys if key])
        return len(found - ALSO_WORDS) > 0 or len(found) > 2
    if isinstance(node, ast.Tuple | ast.Set | ast.List):
        found = names_in(node.elts)
        return len(found) > 1 and bool(found - ALSO_WORDS)
    if isinstance(node, ast.Compare) and all(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
        return bool(names_in([node.left, *node.comparators]) - ALSO_WORDS)
    return False


def tables(text):
    """The lines of a module on which such a table stands."""
    return [node.lineno for node in ast.walk(ast.parse(text)) if is_table(node)]


def test_every_kernel_file_has_an_entry_and_every_entry_a_file():
    files = [file for entry in KERNELS.values() for file in (entry.name, *entry.strategies)]
    assert sorted(path.stem for path in (ROOT / "kernels").glob("*.cu")) == sorted(files)
    assert all(entry.name == name and entry.idea for name, entry in KERNELS.items())


@pytest.mark.parametrize(
    "line",
    [
        'RATES = {"flash": 8e8, "split": 1.5e8}',
        'WITH_LSE = ("flash", "split8")',
        'MOVES_AS = dict.fromkeys(("rowthread", "fp16qk"), "shared")',
        'if plan.variant == "flash": pass',
        'if name in {"split", "split8"}: pass',
        'OF_ARRAYS = ["half", "half_mma"]',
        "MODELS = {half.NAME: warpgroups, halfmma.MMA: warps}",
        "if plan.variant == halfmma.SPLIT: pass",
    ],
)
def test_a_table_by_kernels_names_is_found(line):
    assert tables(line) == [1]


@pytest.mark.parametrize(
    "line", ['sides = ("shared", "operands")', 'DEFAULT = "flash"', 'found = {"shared": 1, "d": 2}']
)
def test_a_word_is_no_table(line):
    assert tables(line) == []


def test_what_is_known_of_a_kernel_stands_in_its_entry_alone():
    elsewhere = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / "hw4cli").rglob("*.py"))
        if path not in REGISTRY | FROM_RECORDS and (lines := tables(path.read_text(encoding="utf-8")))
    }
    assert elsewhere == {}
