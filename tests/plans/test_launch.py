"""The bytes that a launch passes: laid out as the compiler lays out struct Params, and what they say of a plan."""

import re
import struct
import subprocess
from itertools import product

import pytest
from helpers import ROOT
from needs import needs

from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import FIELDS, SIZE, arguments, block_matrices
from hw4cli.plans.plan import AMD_DEVICES, DEVICES
from hw4cli.problem.workload import Shape

HOST = """
#include <cstddef>
struct float2 { float x, y; };
#include "params.cuh"
"""


def offsets():
    """The offset of each field, and its size."""
    at, found = 0, {}
    for name, code in FIELDS.items():
        found[name] = (at, struct.calcsize(code))
        at += found[name][1]
    return found


@needs("g++")
def test_the_layout_is_the_compilers(tmp_path):
    facts = [f"sizeof(Params) == {SIZE}"]
    for name, (at, size) in offsets().items():
        facts += [f"offsetof(Params, {name}) == {at}", f"sizeof(((Params*)nullptr)->{name}) == {size}"]
    source = HOST + "".join(f'static_assert({fact}, "{fact}");\n' for fact in facts)
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{ROOT / 'kernels'}", "-xc++", "-"]
    result = subprocess.run(command, input=source, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_every_member_of_the_struct_has_a_field():
    text = (ROOT / "kernels/params.cuh").read_text()
    given = re.sub(r"^#if (?:SCORED|CHOSEN)$.*?^#endif$", "", text, flags=re.MULTILINE | re.DOTALL)
    members = given[given.index("struct Params {") : given.rindex("};")]
    declared = re.findall(r"(\w+)(?=[,;])", re.sub(r"//.*", "", members))
    assert declared == list(dict.fromkeys(name.split(".")[0] for name in FIELDS))


def passed(kernel, shape, cc, **options):
    plan = VARIANTS[kernel].plan(shape, DEVICES[cc])
    data = arguments(plan, shape, block_matrices(shape, 1 << 20, 1 << 30), 1 << 40, **options)
    values = {
        name: struct.unpack_from("<" + code, data, at)
        for (name, code), (at, _) in zip(FIELDS.items(), offsets().values(), strict=True)
    }
    return plan, {name: value[0] for name, value in values.items()}


def test_matrices_lie_as_a_cases_file_has_them():
    _, fields = passed("naive", Shape(3, 129, 20), 90)
    one = 129 * 20
    assert [fields[f"{name}.data"] - (1 << 20) for name in "qkv"] == [0, 4 * one, 8 * one]
    assert [fields[f"{name}.batch"] for name in "qkvo"] == [3 * one] * 3 + [one]
    assert [fields[f"{name}.row"] for name in "qkvo"] == [20] * 4
    assert fields["o.data"] == 1 << 30
    assert (fields["batches"], fields["heads"], fields["Nq"], fields["Nk"]) == (3, 1, 129, 129)
    assert fields["scale"] == pytest.approx(20**-0.5, rel=1e-7)
    assert fields["lse"] == 0


@pytest.mark.parametrize("kernel", ["flash", "split", "exact"])
@pytest.mark.parametrize("shape", [Shape(1, 8192, 64), Shape(3, 4097, 36), Shape(5, 100, 32), Shape(1, 32767, 128)])
def test_the_parts_of_scratch_are_aligned_and_do_not_overlap(kernel, shape):
    plan, fields = passed(kernel, shape, 90, lse=123)
    rows = plan.splits * shape.B * shape.N
    tiles = fields["row_stats"] - fields["tiles"]
    assert fields["scratch"] == fields["absmax"] == 1 << 40
    assert fields["tiles"] - fields["absmax"] >= (12 if plan.finds_absmax else 0)
    if plan.finds_absmax and not plan.macros["INBLOCK"]:
        padded = shape.B * -(-shape.N // plan.macros["BC"]) * plan.macros["BC"] * plan.macros["WIDTH"]
        assert tiles == 2 * (2 + plan.macros["PV_PIECES"]) * padded
    if plan.splits > 1:
        assert fields["partial_o"] - fields["row_stats"] >= 8 * rows
        assert fields["scratch"] + plan.scratch - fields["partial_o"] == 4 * rows * shape.d
    assert all(fields[name] % 16 == 0 for name in ("tiles", "row_stats", "partial_o"))
    assert fields["splits"] == plan.splits
    assert fields["lse"] == 123


@pytest.mark.parametrize("kernel", VARIANTS)
def test_no_part_of_scratch_is_misaligned_where_batches_rows_and_parts_are_odd(kernel):
    """Accesses of 16 bytes to it failed on a GPU where B N splits was odd."""
    variant = VARIANTS[kernel]
    for props in [*DEVICES.values(), *AMD_DEVICES.values()]:
        if props.cc < variant.least_cc:
            continue
        for B, N, d, causal in product((1, 3, 301), (1, 777, 4097, 40001), (4, 36, 64, 100), (False, True)):
            layout = variant.plan(Shape(B, N, d, causal=causal), props).layout
            assert all(at % 16 == 0 for at in (layout.tiles, layout.row_stats, layout.partial_o))
