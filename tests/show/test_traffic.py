"""The picture of traffic: measured bytes beside a model's, from a profile of the kernels' launches."""

import pytest
from helpers import ROOT, fails
from slow import slow

from hw4cli.problem.workload import Shape
from hw4cli.show.traffic import COLUMNS, load_profile, traffic

PROFILE = ROOT / "benchmarks/h200-ncu.csv"
SHAPE = Shape(16, 4096, 64)


def marks(picture):
    """(what, whether by the model) -> kernel -> MB"""
    (panel,) = picture.panels
    return {(one.name, one.limit): {mark.at: mark.value for mark in one.marks} for one in panel.series}


def test_what_a_kernel_reads_is_what_the_model_says_where_nothing_is_read_twice():
    found = marks(traffic([load_profile(PROFILE)], SHAPE))
    read, model = found["read", False], found["read", True]
    assert list(read) == ["naive", "smallbr", "shared", "warp", "float4", "flash"]
    for kernel in read:
        assert read[kernel] == pytest.approx(model[kernel], rel=0.02), kernel
    assert model["smallbr"] == 3 * 4 * SHAPE.elements / 1e6
    scores = 4 * SHAPE.B * SHAPE.N**2 / 1e6
    assert model["naive"] > 3.9 * scores, "three passes over a row of scores, which no cache holds, and one more"


def test_nsight_computes_own_table_is_read_too():
    found = marks(traffic([load_profile(ROOT / "benchmarks/h100-ncu.csv")], SHAPE))
    read, model = found["read", False], found["read", True]
    assert list(read) == ["naive", "smallbr", "shared", "warp", "float4", "flash", "exact", "float64"]
    assert read["exact"] == pytest.approx(model["exact"], rel=0.02)


@slow
def test_a_kernel_that_is_launched_in_another_way_than_when_it_was_profiled_is_left_out_and_named():
    picture = traffic([load_profile(ROOT / "benchmarks/h100-ncu.csv")], SHAPE)
    assert picture.notes[-1] == "not shown, as they are launched in another way now: split"


@slow
def test_launches_of_a_kernel_are_added():
    flash = marks(traffic([load_profile(PROFILE)], SHAPE))["written", False]["flash"]
    assert flash == pytest.approx((16858368 + 4553728) / 1e6)


def test_a_profile_of_another_shape_is_refused(hw4, tmp_path):
    out = tmp_path / "t.svg"
    fails(hw4("plot", "traffic", PROFILE, "16,2048,64", "-o", out), 2, "not measured on", "naive_scores")
    fails(hw4("plot", "traffic", PROFILE, "-o", out), 2, "traffic needs the shape")
    fails(hw4("plot", "rate", PROFILE, "1,2,4", "-o", out), 2, "a shape does not go with rate")
    assert not out.exists()


def test_a_damaged_profile_is_one_sentence(hw4_here, tmp_path):
    path, args = tmp_path / "p.csv", ("plot", "traffic", tmp_path / "p.csv", "1,64,8", "-o", "t.svg")
    fails(hw4_here(*args), 2, "cannot read")
    head = ",".join(COLUMNS)
    for text, words in (
        ("", "has no column kernel"),
        ("kernel,grid\n", "has no column dram__bytes_read.sum"),
        (f'{head}\nflash,"(8, 1, 1)",12,many\n', "line 2 is damaged"),
        (f'{head}\nflash,"(8, 1, 1)",12\n', "line 2 is damaged"),
        (f'{head}\nflash,"(8, 1, 1)",0,1\n', "not above 0"),
        (f'{head}\nmine,"(8, 1, 1)",1,1\n', "no profile here has all launches"),
    ):
        path.write_text(text)
        fails(hw4_here(*args), 2, words)
    path.write_bytes(b"\xff\xfe\x00")
    fails(hw4_here(*args), 2, "is not a CSV file")
