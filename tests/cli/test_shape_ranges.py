"""A range of N in a shape, as in 1,512:32768,64, and other words that sweeps of others' benchmarks have."""

import pytest
from helpers import fails
from records import row, written

from hw4cli.cli.terminal.grammar import as_shapes
from hw4cli.errors import InputError
from hw4cli.lab.arrays.named import workload
from hw4cli.show.curves import speedup
from hw4cli.show.records import load


def test_a_range_of_n_is_every_doubling_up_to_its_end():
    assert [shape.sizes for shape in as_shapes("2,128:1000,64")] == [(2, 128, 64), (2, 256, 64), (2, 512, 64)]
    assert [shape.N for shape in as_shapes("1,512:32768,64")] == [512 << step for step in range(7)]
    assert [shape.N for shape in as_shapes("1,100:100,64")] == [100]
    assert [shape.sizes for shape in as_shapes("4,200,64")] == [(4, 200, 64)]


@pytest.mark.parametrize(
    "word", ["1,512:256,64", "1,0:8,64", "1,:8,64", "1:2,8,64", "1,8:16:32,64", "1,8:9999999999,64"]
)
def test_what_is_no_range_is_one_sentence(word):
    with pytest.raises(InputError, match=r"is not (B,N:N,d|three integers)"):
        as_shapes(word)


def test_a_command_for_one_shape_refuses_a_range(hw4_in_process):
    fails(hw4_in_process("explain", "flash", "1,128:512,64", "--gpu", "H200"), 2, "these are 3")


def test_the_line_of_a_leaderboard_is_read_and_given_again():
    one = workload("B=4 H=64 N=8192 d=128 dtype=fp16 seed=1118")
    assert one.test_line == "seed: 1118; seq_len: 8192; head_dim: 128; num_heads: 64; batch_size: 4"


def test_causal_kernels_are_compared_with_a_base_without_a_mask(tmp_path):
    """As others count a speed-up: causal flash over naive without a mask, 3.71 times where it is 2.40 by its own."""
    dense = written(tmp_path / "dense.json", row("naive", median=113.5), row("flash", median=58.7))
    masked = [row(name, median=ms, causal=True) for name, ms in (("naive", 73.66), ("flash", 30.65))]
    causal = written(tmp_path / "causal.json", *masked)
    records = [load(dense), load(causal)]

    def factors(**options):
        panels = speedup(records, "naive", "cases", **options).panels
        return {panel.title: panel.series[-1].marks[0].value for panel in panels}

    assert factors() == {
        "Test GPU, d = 64": pytest.approx(113.5 / 58.7),
        "Test GPU, d = 64, causal": pytest.approx(73.66 / 30.65),
    }
    over_dense = factors(dense_base=True)
    assert over_dense["Test GPU, d = 64, causal"] == pytest.approx(113.5 / 30.65)
    assert speedup(records, "naive", "cases", dense_base=True).title.endswith("naive without a mask")


def test_a_base_without_a_mask_goes_with_speedups_alone(hw4_in_process, tmp_path):
    path = written(tmp_path / "a.json", row())
    fails(hw4_in_process("plot", "rate", path, "--dense-base", "-o", tmp_path / "a.svg"), 2, "--dense-base does not go")
