"""The stamps in kernels: nothing at all where they are not asked for, and CUDA where they are."""

import re
from dataclasses import replace

import pytest
from slow import quick_of_each, slow

from hw4cli.device.nvrtc import Compiler, find
from hw4cli.errors import InputError
from hw4cli.lab.stepper.blocktimeline import ACTIVITIES, SYMBOL, stamped, stamps_shape
from hw4cli.plans.kernels16 import plan16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import FLOAT16, Shape
from hw4cli.resources import data_path, kernel_source

pytestmark = quick_of_each(1)

pytest.importorskip("nvidia.cu13", reason="needs NVRTC (pip install 'hw4cli[dev]')")
STAMP = re.compile(r" ?\b(?:BEGINS|ENDS|FOUND)\([^()]*(?:\([^()]*\))?[^()]*\);")
WAYS = [("flash", 80, 32), ("split", 90, 64), ("half", 90, 64), ("half", 90, 128)]


def plan_of(name, cc, d):
    shape = Shape(2, 700, d)
    if name in VARIANTS:
        return VARIANTS[name].plan(shape, DEVICES[cc])
    return plan16(replace(shape, dtype=FLOAT16), DEVICES[cc], name)


def machine_code(source, plan, cc):
    options = ("-std=c++17", *plan.options)
    return Compiler(find(13000, cc), 13000, cc).compile(source, f"{plan.variant}.cu", options, cc)


@slow
@pytest.mark.parametrize(("name", "cc", "d"), WAYS)
def test_without_stamps_the_machine_code_is_that_of_a_source_without_them(name, cc, d):
    plan = plan_of(name, cc, d)
    source = kernel_source(plan.source)
    body = source.partition("#define FOUND(by, activity, tile)\n#endif")[2]
    without = STAMP.sub("", body)
    assert without.count("BEGINS") + without.count("ENDS") + without.count("FOUND") == 0
    assert len(without) < len(body)
    assert machine_code(source, plan, cc) == machine_code(source.replace(body, without), plan, cc)


@pytest.mark.parametrize(("name", "cc"), [("flash", 80), ("split", 90), ("half", 90)])
def test_with_stamps_the_code_has_an_array_for_them(name, cc):
    plan = stamped(plan_of(name, cc, 64), 3)
    assert f"{SYMBOL}\0".encode() in machine_code(kernel_source(plan.source), plan, cc)
    assert stamps_shape(plan) == (plan.macros["THREADS"] // 32, plan.macros["STAMPS"], 5, 2)


def test_activities_have_names_in_the_order_of_the_header():
    enumerators = re.search(r"enum Activity \{([^}]*), ACTIVITIES \}", data_path("kernels/stamps.cuh").read_text())[1]
    assert len(enumerators.split(",")) == len(ACTIVITIES)


@pytest.mark.parametrize(
    ("name", "N", "block", "words"),
    [
        ("shared", 700, 0, "kernel shared leaves no stamps here"),
        ("split", 128, 0, "kernel split leaves no stamps here"),
        ("flash", 700, 10**6, "there is no block 1000000: this launch has"),
    ],
)
def test_what_cannot_be_recorded_is_refused(name, N, block, words):
    with pytest.raises(InputError, match=words):
        stamped(VARIANTS[name].plan(Shape(2, N, 64), DEVICES[90]), block)
