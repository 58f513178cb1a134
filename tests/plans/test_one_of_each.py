"""What is computed has one description, Workload; kernels are launched in a few places, each with a reason, and where
matrices lie is packed in one.
"""

import ast

import pytest
from helpers import ROOT

# What a description of work says: how many batches and heads, how many rows and keys, and of how many columns.
SAYS = {
    "batches": {"B", "batch", "batches"},
    "heads": {"H", "heads", "kv_heads"},
    "length": {"N", "Nq", "Nk", "seqlen", "queries", "keys"},
    "columns": {"d", "D", "head_dim", "columns"},
}
WORKLOAD = ("hw4cli/problem/workload.py", "Workload")
# Each says a part of it, for what it is.
PARTS = {
    ("hw4cli/plans/columns.py", "Copied"): "a matrix that is copied, of which three to five go into one launch",
    ("hw4cli/plans/dispatch.py", "Choice"): "errors are bounded by keys and columns alone, whatever the rest is",
    ("hw4cli/problem/workload.py", "Span"): "rows and keys of a sequence, of which a Workload has several",
    ("hw4cli/lab/cases.py", "ArrayResult"): "a row of a record, whose fields are the record's columns",
    ("hw4cli/lab/arrays/expected.py", "Head"): "rows, keys and gradients themselves, of one head",
    ("hw4cli/show/records.py", "Point"): "a row of a record, which may be older than Workload",
}
# Who asks a driver, or the CPU's execution, to launch a kernel.
LAUNCHES = {
    "hw4cli/device/launcher.py": "all kernels of plans",
    "hw4cli/emulator/library.py": "the CPU's execution",
    "hw4cli/lab/measure/roofkernels.py": "kernels that measure the GPU, and belong to no plan",
}
CALLS = {"cuLaunchKernel", "cuLaunchKernelEx", "hipModuleLaunchKernel", "hw4_launch"}


@pytest.fixture(scope="module")
def modules():
    """The package's modules by their paths, parsed: which takes two seconds, and is not to be each collection's."""
    paths = sorted((ROOT / "hw4cli").rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}


def described(names):
    """Of how many sizes of work these names are."""
    return {what for what, words in SAYS.items() if words & names}


def fields_of(node):
    """The names of a class's annotated fields, of its constructor's parameters, or of a namedtuple that is made."""
    if isinstance(node, ast.ClassDef):
        found = {
            one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        }
        made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        return found | {arg.arg for one in made for arg in (*one.args.args, *one.args.kwonlyargs)}
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("namedtuple", "NamedTuple", "make_dataclass"):
        return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return set()


def descriptions(tree, most=1):
    """Classes that describe work by more than so many of its sizes, and tuples of sizes that have a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.Call) and len(described(fields_of(node))) > most:
            yield getattr(node, "name", "namedtuple")
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("tuple[int, int, int, "):
            yield ast.unparse(node.targets[0])


def launches(tree):
    """Where a kernel is launched: a function of a driver, or what cupy has of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in CALLS:
            yield node.attr
        if isinstance(node, ast.Call) and len(node.args) == 3 and "broadcast_shapes" not in ast.unparse(node.func):
            blocks, threads, _ = node.args
            if all(isinstance(one, ast.Tuple) and len(one.elts) == 1 for one in (blocks, threads)):
                yield "cupy"


def test_work_has_one_description_and_each_that_says_a_part_of_it_a_reason(modules):
    found = {(path, name) for path, tree in modules.items() for name in descriptions(tree)}
    assert found == {WORKLOAD, *PARTS}


@pytest.mark.parametrize(
    "text",
    [
        "class Shape:\n    batch: int\n    N: int",
        "class Sizes(NamedTuple):\n    heads: int\n    d: int",
        "class Work:\n    def __init__(self, B, N, d): pass",
        'Sizes = namedtuple("Sizes", ["B", "N", "d"])',
        "Place = tuple[int, int, int, bool]",
    ],
)
def test_another_description_is_found(text):
    assert list(descriptions(ast.parse(text)))


def test_kernels_are_launched_where_a_reason_says(modules):
    assert {path for path, tree in modules.items() if list(launches(tree))} == {*LAUNCHES}


def packs_coordinates(tree):
    """Whether numbers that say where a matrix lies are put side by side."""
    members = {"data", "batch", "head", "row"}
    return any(
        isinstance(node, ast.Tuple | ast.List | ast.Call)
        and members <= {inner.attr for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.Attribute)}
        for node in ast.walk(tree)
    )


def test_where_matrices_lie_is_packed_in_one_place(modules):
    assert [path for path, tree in modules.items() if packs_coordinates(tree)] == ["hw4cli/plans/launch.py"]


def takes_work_and(name, tree):
    """Functions that are given a Workload, and beside it what the workload says itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            given = [*node.args.args, *node.args.kwonlyargs]
            of_type = {ast.unparse(one.annotation) for one in given if one.annotation}
            if "Workload" in of_type and name in {one.arg for one in given}:
                yield node.name


def test_the_scores_factor_is_said_by_the_workload_alone(modules):
    assert [(path, name) for path, tree in modules.items() for name in takes_work_and("scale", tree)] == []
    assert list(takes_work_and("scale", ast.parse("def launch(work: Workload, scale: float, stream: Any): pass")))
