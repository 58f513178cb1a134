"""Pictures as data: what is drawn is what was measured, and nothing is drawn that was not."""

import json
from itertools import combinations
from math import dist

import pytest
from helpers import ROOT
from records import COMMITTED, kept, row, written

from hw4cli.cli.plot import KINDS as OFFERED
from hw4cli.errors import InputError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.show.bars import error, ladder, occupancy, programs, tiles
from hw4cli.show.curves import energy, latency, rate, roofline, speedup
from hw4cli.show.kinds import KINDS
from hw4cli.show.records import load
from hw4cli.show.scaling import IDEAL, load_scaling, scaling
from hw4cli.show.style import LONGEST, NEUTRAL, OTHERS, PEERS, STEPS, colours, cut, heat, heat_step


def marks(picture, name, panel=0, limit=False):
    """A series' values by their places."""
    (series,) = (one for one in picture.panels[panel].series if (one.name, one.limit) == (name, limit))
    return {mark.at: mark.value for mark in series.marks}


def test_the_command_offers_every_kind():
    assert list(OFFERED) == list(KINDS)


def test_times_are_drawn_over_n_where_the_record_sweeps_it():
    picture = latency([kept("h200-thirty")])
    assert [panel.title for panel in picture.panels] == ["H200, d = 32, B·N = 40,960", "H200, d = 64, B·N = 20,480"]
    times = marks(picture, "split")
    assert list(times) == [128, 256, 512, 1024, 2048]
    assert times[128] == kept("h200-thirty").points[0].ms
    assert "60 measurements at other B left out (all: --over cases)" in picture.notes
    assert len(latency([kept("h200-thirty")], "cases").panels[0].rows) == 15


def test_rates_stand_beside_a_peak_that_was_measured():
    record = kept("h200-split")
    picture = rate([record])
    assert [(rule.label, rule.value) for rule in picture.panels[0].rules] == [("cuBLAS SGEMM", record.sgemm_tflops)]
    assert marks(picture, "split", 1)["t28 (4, 16384, 64)"] == pytest.approx(345.92, abs=0.01)


def test_each_gpu_has_panels_of_its_own():
    picture = rate([kept("h200-split"), kept("h100-split")])
    assert [panel.title for panel in picture.panels] == [
        f"{gpu}, d = {d}" for gpu in ("H200", "H100") for d in (32, 64)
    ]


def test_a_speed_up_is_of_one_record_and_its_interval_holds_both(tmp_path):
    here = load(written(tmp_path / "here.json", row("naive", median=8.0), row("flash", median=2.0)))
    there = load(written(tmp_path / "there.json", row("split", median=1.0)))
    picture = speedup([here, there], "naive")
    (panel,) = picture.panels
    assert [one.name for one in panel.series] == ["flash"]
    (mark,) = panel.series[0].marks
    assert (mark.value, mark.low, mark.high) == pytest.approx((4.0, 4 * 0.99 / 1.02, 4 * 1.02 / 0.99))
    assert "there.json" not in " ".join(picture.facts)
    with pytest.raises(InputError, match="no record here holds 'warp' to compare with: they hold naive, flash, split"):
        speedup([here, there], "warp")


def test_the_ladder_counts_from_its_first_rung():
    picture = ladder([kept("h200-thirty"), kept("h200-ladder")])
    assert picture.title == "The ladder on t28 (4, 16384, 64)"
    texts = {one.name: one.marks[0].text for one in picture.panels[0].series}
    assert texts["naive"] == "175.8 ms  ×1"
    assert texts["flash"] == "5.792 ms  ×30.3"
    with pytest.raises(InputError, match="kernels on t99"):
        ladder([kept("h200-ladder")], "t99")


def test_every_tile_is_a_cell():
    picture = tiles([kept("h200-tiles")])
    assert [panel.title for panel in picture.panels][:2] == ["float4, t28 (4, 16384, 64)", "flash, t28 (4, 16384, 64)"]
    assert marks(picture, "flash", 1)["128x64"] == pytest.approx(48.3, abs=0.1)


def test_no_error_reaches_its_bound_nor_a_bound_the_tolerance():
    picture = error([kept("h200-thirty")])
    for place, panel in enumerate(picture.panels):
        for name in ("flash", "split", "exact"):
            measured, limits = (marks(picture, name, place, limit) for limit in (False, True))
            assert measured.keys() == limits.keys()
            assert all(measured[at] < limits[at] < panel.rules[0].value for at in measured)


def test_a_kernel_without_a_bound_has_no_tick(tmp_path):
    rows = row("mine.cu", max_error=1e-4), row("flash", max_error=1e-5)
    picture = error([load(written(tmp_path / "a.json", *rows))])
    shown = [(one.name, one.limit) for one in picture.panels[0].series]
    assert shown == [("flash", False), ("flash", True), ("mine.cu", False)]


def test_programs_are_shown_with_their_sum():
    picture = programs([kept("h200-end-to-end")])
    assert len(picture.panels[0].rows) == 30
    assert "sum of the cases: ./hw4 12.43 s, hw4 14.30 s" in picture.notes


def test_the_rate_over_occupancy_has_a_dot_for_each_kernel_on_one_case():
    picture = occupancy([kept("h200-ladder")])
    (panel,) = picture.panels
    dots = {one.name: (one.marks[0].at, one.marks[0].value) for one in panel.series}
    assert picture.title == "Rate over occupancy on t28 (4, 16384, 64)"
    assert dots["flash"][0] < dots["float4"][0] < dots["naive"][0], "the fastest has the lowest"
    assert dots["flash"][1] > dots["float4"][1] > dots["naive"][1]
    with pytest.raises(InputError, match="no record here holds times of kernels on t01"):
        occupancy([kept("h200-ladder")], "t01")


def test_roofs_are_measured_or_there_is_no_roofline():
    record = kept("h200-split")
    (panel,) = roofline([record]).panels
    flat, slanted = panel.rules
    assert (flat.value, slanted.slope) == (record.sgemm_tflops, record.copy_gb_per_s / 1000)
    assert all(mark.value <= slanted.slope * mark.at for one in panel.series for mark in one.marks)
    with pytest.raises(InputError, match="no record here holds a copy's GB/s"):
        roofline([kept("h200-flash")])
    with pytest.raises(InputError, match="a roofline is of one GPU"):
        roofline([record, kept("h100-split")])


def test_roofs_of_their_own_record_take_the_place_of_copy_and_sgemm(hw4, tmp_path):
    roofs = json.loads((ROOT / "benchmarks/roofs/h100.json").read_text())
    panel, *others = roofline([kept("h100-flash"), load(ROOT / "benchmarks/roofs/h100.json")]).panels
    assert [one.title for one in others] == ["H100, L2", "H100, shared memory"]
    flat, tensor, whole, slanted = panel.rules
    assert (whole.value, whole.slope) == (tensor.value, slanted.slope)
    assert [flat.value, tensor.value, 1000 * slanted.slope] == [
        roofs["rates"][x] for x in ("FFMA", "tensor cores", "DRAM")
    ]
    assert all(mark.value <= slanted.slope * mark.at for one in panel.series for mark in one.marks)
    with pytest.raises(InputError, match="a roofline is of one GPU"):
        roofline([kept("h200-split"), load(ROOT / "benchmarks/roofs/h100.json")])
    options = ("plot", "roofline", ROOT / "benchmarks/h100-flash.json", "-o", tmp_path / "a.svg")
    assert hw4(*options, ROOT / "benchmarks/roofs/h100.json").returncode == 0
    (tmp_path / "damaged.json").write_text(json.dumps({**roofs, "rates": {}}))
    result = hw4(*options, tmp_path / "damaged.json")
    assert (result.returncode, "is not a record of roofs" in result.stderr) == (2, True)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"traffic", "scaling"}))  # which have records of their own
def test_a_record_without_the_data_is_reported(tmp_path, kind):
    empty = load(written(tmp_path / "a.json"))
    with pytest.raises(InputError, match="no record here holds"):
        KINDS[kind]([empty], *(["naive"] if kind == "speedup" else []))


def test_energy_is_drawn_of_the_kernels_whose_energy_was_measured(tmp_path):
    rows = row("flash", gflop_per_joule=81.5), row("split", gflop_per_joule=640.0), row("naive", gflop_per_joule=None)
    picture = energy([load(written(tmp_path / "a.json", *rows))])
    assert [one.name for one in picture.panels[0].series] == ["flash", "split"]
    assert [*marks(picture, "split").values()] == [640.0]
    assert picture.panels[0].value_label == "GFLOP per joule"
    assert "whole board" in picture.notes[0]


def test_scaling_is_drawn_over_the_number_of_gpus_beside_the_ideal():
    record = load_scaling(ROOT / "benchmarks/scaling/h200.json")
    picture = scaling([record])
    speedups = marks(picture, "8x1048576x64")
    assert speedups[1] == 1.0
    assert 1.9 < speedups[2] < 2.05
    assert marks(picture, IDEAL)[2] == 2.0


def test_a_record_of_something_else_shows_no_scaling(tmp_path):
    (tmp_path / "one.json").write_text(json.dumps({"kind": "scaling", "machine": {"gpu": "G"}, "strong": {"t12": {}}}))
    for path, words in (
        (ROOT / "benchmarks/h200-ladder.json", "is not a record of several GPUs"),
        (ROOT / "README.md", "it is not JSON"),
        (tmp_path / "one.json", "damaged"),
        (tmp_path / "none.json", "cannot read"),
    ):
        with pytest.raises(InputError, match=words):
            load_scaling(path)


def test_a_name_keeps_its_colour_and_no_two_share_one():
    names = [p.kernel for path in COMMITTED for p in load(path).points]
    found = colours([*VARIANTS, *names, "mine.cu", "./hw4"])
    assert len(set(found.values())) == len(found)
    assert found["flash"] == colours(["flash"])["flash"]
    assert found["torch math"] in PEERS
    assert found["mine.cu"] in OTHERS


def linear(colour):
    """Red, green and blue of light, 0 to 1, of "#rrggbb"."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def oklab(colour):
    """A colour where distances are what an eye sees (Ottosson 2020, "A perceptual color space")."""
    cones = ((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566))
    cones += ((0.0883024619, 0.2817188376, 0.6299787005),)
    l, m, s = (sum(a * b for a, b in zip(row, linear(colour), strict=True)) ** (1 / 3) for row in cones)  # noqa: E741
    rows = ((0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099))
    rows += ((0.0259040371, 0.7827717662, -0.8086757660),)
    return [a * l + b * m + c * s for a, b, c in rows]


def contrast(one, other):
    """Of two colours, 1 to 21 (WCAG 2)."""
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_no_two_colours_are_alike_and_each_can_be_read_as_text(scheme):
    """smallbr and split8 were: #99601f and #9a5b00."""
    own = {name: variant.colour for name, variant in VARIANTS.items() if variant.colour}
    every = {**own, **{f"other {place}": pair for place, pair in enumerate((*OTHERS, *PEERS))}}
    near = {(a, b): round(dist(oklab(every[a][scheme]), oklab(every[b][scheme])), 3) for a, b in combinations(every, 2)}
    assert [(names, apart) for names, apart in near.items() if apart < 0.05] == []
    paper = NEUTRAL["paper"][scheme]
    assert [name for name, pair in every.items() if contrast(pair[scheme], paper) < 4.5] == []


def test_the_cells_of_a_heat_map_are_shares_of_the_best_and_what_stands_on_them_can_be_read():
    assert [heat_step(value, 13.8) for value in (13.8, 12.5, 11.7, 7.0, 0.1)] == [STEPS - 1, 9, 8, 5, 0]
    for scheme in (0, 1):
        assert all(contrast(cell[scheme], ink[scheme]) > 4.5 for cell, ink in heat())
        brightness = [sum(linear(cell[scheme])) for cell, _ in heat()]
        assert brightness == sorted(brightness, reverse=scheme == 0), "the more, the further from the paper"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("my/attention.py:fast", "my/attention.py:fast"),
        ("benchmarks/measure/triton_attention.py:tf32", "triton_attention.py:tf32"),
        ("students/attention_of_many_words.py:forward", "…_of_many_words.py:forward"),
    ],
)
def test_a_legend_names_a_path_that_is_long_by_its_file(name, shown):
    assert cut(name) == shown and len(shown) <= LONGEST
