"""The benchmark without a GPU: its statistics, its comparison, its tables and the README made from them."""

import json

import numpy as np
import pytest
from helpers import fails
from hypothesis import given
from hypothesis import strategies as st

from hw4cli.cli.benchcommand.shown import markdown
from hw4cli.device.timing import Sample
from hw4cli.errors import InputError
from hw4cli.lab.changes import check_comparable, compare
from hw4cli.lab.contender import KernelResult
from hw4cli.lab.record import CACHE
from hw4cli.lab.sampling import FEWEST, MOST, Measurement, Sampling
from hw4cli.lab.tables import COLUMNS, cells, read_record
from hw4cli.lab.times import median_interval
from hw4cli.problem.workload import Shape
from hw4cli.text import tables

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=200))
def test_the_interval_encloses_the_median(samples):
    median, low, high = median_interval(samples)
    assert min(samples) <= low <= median <= high <= max(samples)
    assert median == pytest.approx(np.median(samples))


def test_the_interval_holds_the_true_median_as_often_as_it_says():
    random = np.random.default_rng(0)
    held = [low <= 0 <= high for _, low, high in (median_interval(random.normal(size=40)) for _ in range(2000))]
    assert 0.95 < np.mean(held) < 0.995


def measurement(samples):
    return Measurement("x", lambda: None, {}, 0.0, [Sample(ms, 0.1, 0.2, False) for ms in samples])


def test_a_trial_ends_when_the_median_is_sure_or_a_cap_is_reached():
    assert not measurement([1.0] * (FEWEST - 1)).done()
    assert measurement([1.0] * FEWEST).done()
    noisy = np.random.default_rng(0).uniform(1, 2, MOST)
    assert not measurement(noisy[:20]).done()
    assert measurement(noisy).done()
    assert measurement(2000 * noisy[:FEWEST]).done()


def test_a_trial_ends_by_the_rule_that_is_asked_for():
    noisy = np.random.default_rng(0).uniform(0.99, 1.01, 40)
    assert not measurement(noisy).done(Sampling(half_width=0.0001))
    assert measurement(noisy).done(Sampling(half_width=0.05))
    assert measurement(noisy[:5]).done(Sampling(most=5, half_width=0.0001))


def row(kernel="flash", case="t28", median=10.0, spread=0.01, shape=(4, 16384, 64), **changes):
    values = {
        "median": median,
        "low": median * (1 - spread),
        "high": median * (1 + spread),
        "samples": 20,
        "tflops": 400 / median,
        "max_error": 1e-6,
        **changes,
    }
    return KernelResult(kernel, case, shape, "ok", **values)


def record(*rows):
    return {
        "machine": {"gpu": "Test GPU", "driver": "1.2", "cuda": "13.0", "cupy": "14"},
        "sgemm_tflops": 50.0,
        "commit": "abc1234",
        "date": "2026-01-01",
        "method": {"timer": "CUDA events", "cache": "warm", "flops": "4*B*N*N*d"},
        "schema": 1,
        "rows": json.loads(json.dumps([vars(r) for r in rows])),
    }


@pytest.mark.parametrize(
    ("now", "interval", "word"),
    [
        (10.05, 0.001, "same"),
        (10.25, 0.001, "same"),  # no more than two runs of one kernel differ
        (9.75, 0.001, "same"),
        (8.0, 0.01, "faster"),
        (12.0, 0.01, "slower"),
        (10.45, 0.001, "slower"),
        (10.45, 0.02, "unsure"),
        (10.25, 0.02, "unsure"),
        (12.0, 0.1, "unsure"),
    ],
)
def test_a_comparison_is_sure_only_beyond_the_intervals_and_the_spread_of_runs(now, interval, word):
    (change,) = compare([row(median=now, spread=interval)], record(row(spread=interval)), spread=0.04)
    assert change.direction == word
    assert change.ratio == pytest.approx(now / 10)


def test_what_only_one_record_has_is_not_compared():
    assert compare([row(kernel="new"), row(shape=(1, 2, 4))], record(row())) == []


@pytest.mark.parametrize(("cold", "words"), [(True, "give --warm"), (False, "leave out --warm")])
def test_warm_is_not_compared_with_cold(cold, words):
    check_comparable(made(CACHE[cold]), "old.json", cold)
    with pytest.raises(InputError, match=f"old.json was measured with another L2 cache .*: {words}"):
        check_comparable(made(CACHE[not cold]), "old.json", cold)


def made(cache):
    return {**record(row()), "method": {"cache": cache}}


def test_a_record_that_cannot_be_compared_is_refused_before_anything_is_measured(hw4, tmp_path):
    old = tmp_path / "old.json"
    for broken, words in (
        (made(CACHE[False]), "give --warm"),
        ({**made(CACHE[True]), "rows": [{"program": "./hw4", "status": "ok"}]}, "not a record that"),
        ({**made(CACHE[True]), "rows": [{**vars(row()), "low": 11.0}]}, "not a record that"),
    ):
        old.write_text(json.dumps(broken))
        fails(hw4("bench", "t28", "--compare", old, env=NO_GPU), 2, "old.json", words)


def test_tables_show_every_figure_and_a_dash_where_there_is_none():
    shown = dict(zip(COLUMNS, cells(record(row(registers=None, occupancy=0.125))["rows"][0]), strict=True))
    assert shown["shape"] == "(4, 16384, 64)"
    assert shown["median"] == "10"
    assert shown["spread"] == "1.0%"
    assert shown["registers"] == "-"
    assert shown["occupancy"] == "12%"


def test_runs_without_rest_show_their_power_and_energy_in_columns_of_their_own():
    beside = row(sustained_ms=10.5, watts=612.0, joules=6.426, gflop_per_joule=85.5)
    shown = markdown(record(beside, row("split"))).splitlines()
    places = [shown[0].split(" | ").index(name) for name in ("sustained ms", "watts", "J", "GFLOP/J")]
    assert [shown[2].split(" | ")[n] for n in places] == ["10.5", "612", "6.426", "85.5"]
    assert [shown[3].split(" | ")[n] for n in places] == ["-"] * 4
    assert "watts" not in markdown(record(row()))


def test_causal_rows_say_what_is_counted_and_are_compared_with_causal_ones_alone():
    causal = row(case="t28 causal", causal=True, pairs_percent=50.4)
    shown = markdown(record(causal, row()))
    assert shown.splitlines()[0].split(" | ")[7] == "pairs"
    assert [line.split(" | ")[7] for line in shown.splitlines()[2:4]] == ["50.4%", "-"]
    assert "by convention half of 4·B·N²·d" in shown
    assert "pairs" not in markdown(record(row()))
    assert compare([causal], record(row())) == []
    assert [change.direction for change in compare([causal], record(row(), causal), spread=0.03)] == ["same"]


def test_causal_attention_counts_half_of_the_operations():
    assert Shape(2, 100, 32, causal=True).flops * 2 == Shape(2, 100, 32).flops == 4 * 2 * 100 * 100 * 32


def test_csv_has_a_line_a_row_and_the_fields_names():
    lines = tables.comma_separated(record(row(), row(case="t30"))["rows"]).splitlines()
    assert lines[0].startswith("kernel,case,shape,status")
    assert len(lines) == 3
    assert '"4,16384,64"' in lines[1]


def test_a_broken_record_is_refused(tmp_path):
    path = tmp_path / "old.json"
    newer = '{"schema": 2, "machine": {}, "rows": []}'
    for text, words in (
        ("{", "not JSON"),
        ("[]", "not a record"),
        ('{"rows": 1}', "not a record"),
        (newer, "schema 2, but this hw4 reads schema 1"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_record(path)
    with pytest.raises(InputError, match="cannot read"):
        read_record(tmp_path / "none")


def test_bad_requests_are_one_sentence(hw4, hw4_here, tmp_path):
    fails(hw4_here("bench"), 2, "name a case")
    fails(hw4_here("bench", "t99"), 2, "no case 't99'")
    fails(hw4_here("bench", "1,2"), 2, "three integers")
    fails(hw4_here("bench", "1,2,4", "--tile", "128"), 2, "rows x keys")
    fails(hw4_here("bench", "t01", "--compare", tmp_path / "none"), 2, "cannot read")
    fails(hw4("bench", "t01", env=NO_GPU), 3, "no GPU")


def test_the_ladder_is_shown_without_a_gpu_too(hw4):
    result = hw4("explain", env=NO_GPU)
    assert result.returncode == 0
    assert "flash" in result.stdout
    assert "128x32" in result.stdout
    entries = json.loads(hw4("explain", "1,4096,32", "--json", env=NO_GPU).stdout)
    assert entries[-1]["runs on"] == "all"
    assert json.loads(hw4("explain", "1,4096,31", "--json", env=NO_GPU).stdout) == entries
    fails(hw4("explain", "1,4096,0"), 2, "1,4096,0", "between 1 and 128")
