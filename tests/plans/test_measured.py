"""What the program says was measured, held against the records in benchmarks/."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest
from helpers import ROOT

from benchmarks.pages import facts
from hw4cli.cli.terminal.ladder import entry
from hw4cli.plans.bounds import PROVEN, bound
from hw4cli.plans.ladder import FALLBACK, VARIANTS
from hw4cli.plans.measured import FASTEST, RUN_SPREAD
from hw4cli.plans.plan import DEVICES
from hw4cli.problem import suite

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
RECORDS = {path.name: json.loads(path.read_text()) for path in (ROOT / "benchmarks").glob("*.json")}


def rows(record):
    return [row for row in record["rows"] if row.get("kernel") and row["status"] == "ok"]


def test_the_ladder_shows_the_largest_recorded_error_and_the_proven_one(hw4):
    shapes = [case.shape for case in suite.cases().values()]
    shown = {one["kernel"]: one for one in json.loads(hw4("explain", "--json", env=NO_GPU).stdout)}
    for name in VARIANTS:
        found = [
            row["max_error"]
            for record in RECORDS.values()
            for row in rows(record)
            if row["kernel"] == name and row["shape"][2] in (32, 64)
        ]
        measured, proven = shown[name]["measured"], shown[name]["proven"]
        # Errors are measured against float64, whose own they cannot tell; of a new kernel there is no record.
        assert (measured is None) == (name == FALLBACK or not found)
        assert measured is None or float(measured) == pytest.approx(max(found), rel=0.05)
        assert (proven is not None) == (name in PROVEN)
        if proven:
            limit = max(bound(name, (3, 3, 3), shape.d, shape.N) for shape in shapes)
            assert limit <= float(proven) <= 1.1 * limit
            assert measured is None or float(measured) <= limit


def test_an_older_gpu_gets_the_ladder_too():
    split, flash = (entry(VARIANTS[name], 64, DEVICES[61], None) for name in ("split", "flash"))
    assert (split["tiles"], split["threads"], split["shared KB"], split["proven"]) == (None,) * 4
    assert flash["tiles"] == "128x16"


def test_where_the_ranking_is_called_measured_a_record_has_these_kernels_in_this_order():
    for cc, sizes in FASTEST.items():
        assert list(sizes) == sorted(sizes)
        for d, ranked in sizes.items():
            orders = [
                tuple(row["kernel"] for row in sorted(found, key=lambda row: row["median"]))
                for record in RECORDS.values()
                if record["machine"].get("compute_capability") == f"{cc / 10:.1f}"
                for found in by_shape(record, d, ranked).values()
            ]
            assert ranked in orders, (cc, d)


def test_no_record_contradicts_the_ranking():
    """Wherever a record has two of a GPU's kernels on one case, the one that ranks higher is not slower."""
    for name, record in RECORDS.items():
        for cc, sizes in FASTEST.items():
            if record["machine"].get("compute_capability") == f"{cc / 10:.1f}":
                for d, ranked in sizes.items():
                    for shape, found in by_shape(record, d, ranked).items():
                        times = {row["kernel"]: row["median"] for row in found}
                        times = [times[kernel] for kernel in ranked if kernel in times]
                        for faster, slower in pairwise(times):
                            assert faster <= slower * (1 + RUN_SPREAD), (name, shape)


def by_shape(record, d, kernels):
    """A record's rows of these kernels, by shape, for one head size."""
    found = defaultdict(list)
    for row in rows(record):
        if row["shape"][2] == d and row["kernel"] in kernels:
            found[tuple(row["shape"])].append(row)
    return found


def made_up(*rows, gpu="GPU", commit="abc", cc="9.0", cache="cold"):
    fields = ("kernel", "shape", "median", "max_error")
    return {
        "machine": {"gpu": gpu, "compute_capability": cc},
        "commit": commit,
        "method": {"cache": cache},
        "rows": [{**dict(zip(fields, row, strict=True)), "status": "ok"} for row in rows],
    }


SHORT, LONG = (8, 128, 64), (1, 8192, 64)


def test_kernels_are_ranked_by_their_time_for_all_cases_that_have_them_all():
    record = made_up(
        ("flash", SHORT, 2.0, 0),
        ("split", SHORT, 1.0, 0),
        ("exact", SHORT, 1.5, 0),
        ("split", LONG, 5.0, 0),
        ("exact", LONG, 4.9, 0),
        ("flash", LONG, 6.0, 0),
        ("exact", (1, 100, 64), 99.0, 0),
        ("warp", LONG, 0.1, 0),
    )
    assert facts.fastest([record]) == {90: {64: ("split", "exact", "flash")}}
    assert facts.fastest([made_up(("flash", SHORT, 2.0, 0))]) == {}


def test_the_largest_error_is_taken_by_head_size():
    first = made_up(("flash", SHORT, 1.0, 1e-6), ("flash", LONG, 1.0, 3e-6), ("torch math", LONG, 1.0, 1e-3))
    second = made_up(("flash", (1, 8, 32), 1.0, 2e-6), ("float64", LONG, 1.0, 0.0))
    assert facts.errors([first, second]) == {"flash": {32: 2e-6, 64: 3e-6}}


def test_the_spread_of_runs_is_that_of_the_same_kernel_case_gpu_commit_and_method():
    one = made_up(("flash", SHORT, 1.0, 0), ("flash", LONG, 1.0, 0))
    same = made_up(("flash", SHORT, 1.02, 0), ("flash", LONG, 0.98, 0))
    others = [made_up(("flash", SHORT, 9.0, 0), **kind) for kind in ({"gpu": "B"}, {"commit": "b"}, {"cache": "warm"})]
    assert facts.run_spread([one, same, *others]) == pytest.approx(1 / 0.98 - 1)


def test_a_kernel_for_long_rows_alone_leaves_the_order_for_all_rows_as_it_was():
    timed = {"status": "ok", "max_error": 1e-3, "samples": 5}
    machine = {"machine": {"compute_capability": "9.0", "gpu": "NVIDIA H200"}}
    short = {"split": 1.0, "exact": 2.0}
    long = {"split": 5.0, "split8": 4.0, "exact": 3.0}  # alone, with another order
    rows = [{"kernel": k, "median": t, "shape": [9, 128, 64], **timed} for k, t in short.items()]
    rows += [{"kernel": k, "median": 9 * t, "shape": [9, 256, 64], **timed} for k, t in short.items()]
    rows += [{"kernel": k, "median": t, "shape": [4, 16384, 64], **timed} for k, t in long.items()]
    assert facts.fastest([{**machine, "rows": rows}]) == {90: {64: ("split", "exact")}}
