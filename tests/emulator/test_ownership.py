"""Who holds which element of S and of O, as the lab page has it, against the kernels' own code, executed on the CPU.

Two threads are marked: one adds 5 to its scores, another begins with NaN in its O. With Q = 0 and V = 1 on the
diagonal, an element of O is the weight of the key of that number: it is above the others where its score was marked.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from ownership import held

from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import Library
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape
from hw4cli.resources import data_path

ADDS, LOSES = 37, 2  # threads
IF_ADDS, IF_LOSES, NAN = f"if (threadIdx.x == {ADDS})", f"threadIdx.x == {LOSES} ?", "__int_as_float(0x7fc00000)"
IN_MEMORY = (
    ("float s = 0.0f;", f"float s = threadIdx.x == {ADDS} ? 5.0f : 0.0f;"),
    ("float O[OUTPUTS] = {};", f"float O[OUTPUTS]; for (auto& x : O) x = {IF_LOSES} {NAN} : 0;"),
)


@dataclass(frozen=True)
class Marks:
    """A size whose keys are as many as its columns, and what is replaced in which file."""

    d: int
    file: str
    scores: tuple[str, str]
    outputs: tuple[str, str]
    outputs_file: str = ""


MARKS = {
    "shared": Marks(32, "shared.cu", *IN_MEMORY),
    "warp": Marks(
        32,
        "warp.cu",
        ("float S[ROWS] = {}, P[ROWS];", f"float S[ROWS] = {{}}, P[ROWS]; {IF_ADDS} for (auto& x : S) x = 5;"),
        ("O[r][x] = 0.0f;", f"O[r][x] = {IF_LOSES} {NAN} : 0;"),
    ),
    "float4": Marks(
        32,
        "float4.cu",
        ("{}, alpha[2];", f"{{}}, alpha[2]; {IF_ADDS} for (auto& row : S) for (auto& x : row) x = 5;"),
        ("float4 O[4] = {}; ", f"float4 O[4] = {{}}; for (auto& x : O) x.x = x.y = x.z = x.w = {IF_LOSES} {NAN} : 0;"),
    ),
    "flash": Marks(
        64,
        "flash.cu",
        (
            "if (!mask.is_full(BC, BR)) {",
            f"{IF_ADDS} for (auto& row : S) for (auto& x : row) x += 5; if (!mask.is_full(BC, BR)) {{",
        ),
        ("r.O[i][x] = 0;", f"r.O[i][x] = {IF_LOSES} {NAN} : 0;"),
    ),
    "split": Marks(
        64,
        "split_mma.cuh",
        (
            "top = max(top, end_scores(r, S[SLICES - 1], unit));",
            f"{IF_ADDS} for (auto& t : S) for (auto& i : t) for (auto& n : i) for (auto& x : n) x += 5;"
            "top = max(top, end_scores(r, S[SLICES - 1], unit));",
        ),
        ("r.O[i][n][e] = 0;", f"r.O[i][n][e] = {IF_LOSES} {NAN} : 0;"),
        "fragments.cuh",
    ),
}


def answer(kernel, marks, folder):
    """O of the marked kernel, and the macros it was compiled with."""
    changes = {marks.file: [marks.scores]}
    changes.setdefault(marks.outputs_file or marks.file, []).append(marks.outputs)
    for name in {f"{kernel}.cu", *changes}:
        text = data_path(f"kernels/{name}").read_text()
        for old, new in changes.get(name, []):
            assert old in text, f"{name} no longer has {old!r}"
            text = text.replace(old, new, 1)
        (folder / name).write_text(text)
    plan = VARIANTS[kernel].plan(Shape(1, marks.d, marks.d), DEVICES[80])
    inputs = np.zeros((1, 3, marks.d, marks.d), np.float32)
    inputs[0, 2] = np.eye(marks.d)
    library = Library(shared_object(folder / f"{kernel}.cu", plan.macros, 80, 32, PLAIN))
    return library.run(plan, inputs, watched=False).o[0], plan.macros


@pytest.mark.parametrize("kernel", MARKS)
def test_the_elements_of_a_thread_are_those_that_the_kernel_gives_it(kernel, tmp_path):
    marks = MARKS[kernel]
    o, macros = answer(kernel, marks, tmp_path)
    size, threads = marks.d, macros["THREADS"]
    scores, outputs = VARIANTS[kernel].block.owns(macros)
    rows = min(macros["BR"], size)
    lost = held(outputs, LOSES, rows, size, threads)
    assert lost.any()
    np.testing.assert_array_equal(np.isnan(o[:rows]), lost)
    adds = np.tile(held(scores, ADDS, rows, macros["BC"], threads), -(-size // macros["BC"]))[:, :size]
    assert adds[~lost].any()
    above = o[:rows] > 1.5 * np.nanmin(np.where(lost, np.nan, o[:rows]), axis=1, keepdims=True)
    np.testing.assert_array_equal(above[~lost], (adds & ~adds.all(axis=1, keepdims=True))[~lost])
