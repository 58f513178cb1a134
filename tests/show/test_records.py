"""Records as points: every committed one is read, of a damaged one the error is one sentence."""

import json

import pytest
from helpers import ROOT
from records import COMMITTED, blocks, row, written

from hw4cli.errors import InputError
from hw4cli.show.curves import longest_sweep
from hw4cli.show.records import Setting, latest, load


def test_every_committed_record_is_read_whole():
    for path in COMMITTED:
        record, raw = load(path), json.loads(path.read_text())
        made = (*record.points, *record.runs, *record.timelines, *record.failures)
        assert len(made) == len(raw["rows"])
        assert raw["commit"] in record.facts
        assert raw["machine"]["gpu"] in record.facts


@pytest.mark.parametrize("name", ["h200-thirty", "h100-end-to-end", "h200-arrays", "timelines/h100-blocks"])
def test_a_record_as_it_was_written_before_rows_had_lines_is_the_same(tmp_path, name):
    path = ROOT / f"benchmarks/{name}.json"
    old = tmp_path / path.name
    old.write_text(json.dumps(json.loads(path.read_text()), indent=1) + "\n")
    assert len(old.read_text().splitlines()) > 20 * len(path.read_text().splitlines())
    assert load(old) == load(path)


def test_a_tile_is_part_of_the_name_and_a_type_of_the_setting(tmp_path):
    rows = [row("flash 128x32"), row("mine.cu"), row("half", dtype="float16", causal=True, **{"pass": "backward"})]
    tiled, own, half = load(written(tmp_path / "a.json", *rows)).points
    assert (tiled.kernel, tiled.tile, tiled.name) == ("flash", (128, 32), "flash 128x32")
    assert (own.kernel, own.tile, own.setting) == ("mine.cu", None, Setting(64))
    assert half.setting.words == "d = 64, float16, causal, backward"


def test_of_two_records_the_newer_counts(tmp_path):
    old = load(written(tmp_path / "old.json", row(median=2.0), row("naive", median=9.0)))
    new = load(written(tmp_path / "new.json", row(median=1.0), date="2026-02-01"))
    assert [(p.kernel, p.ms) for p in latest([new, old])] == [("naive", 9.0), ("flash", 1.0)]


def test_of_two_records_of_a_day_the_one_with_more_kernels_on_the_workload_counts(tmp_path):
    full = load(written(tmp_path / "full.json", row(median=2.0), row("naive", median=9.0), row(shape=(1, 64, 64))))
    lone = load(written(tmp_path / "lone.json", row(median=1.0), row("split", shape=(1, 64, 64))))
    for records in ([full, lone], [lone, full]):
        assert [(p.kernel, p.ms) for p in latest(records) if p.B == 4] == [("naive", 9.0), ("flash", 2.0)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"median": float("nan")}, "row 2 holds impossible times or sizes"),
        ({"high": float("inf")}, "row 2 holds a figure that is not a number"),
        ({"low": 5.0}, "row 2 holds impossible times or sizes"),
        ({"shape": [1, 2]}, "row 2 holds not enough values"),
        ({"shape": [1, 64, 192]}, "row 2 holds a shape that hw4 does not compute: d is 192"),
        ({"shape": [1, 2**40, 64]}, "row 2 holds a shape that hw4 does not compute: N is"),
        ({"samples": float("inf")}, "row 2 holds cannot convert"),
        ({"kernel": None}, "row 2 holds"),
        ({"max_error": "much"}, "row 2 holds could not convert"),
        ({"max_error": -1}, "row 2 holds a figure below 0"),
        ({"gflop_per_joule": -1e-300}, "row 2 holds a figure below 0"),
    ],
)
def test_a_damaged_row_is_reported(tmp_path, changes, words):
    path = written(tmp_path / "bad.json", row(), {**row(), **changes})
    with pytest.raises(InputError, match=words) as raised:
        load(path)
    assert str(raised.value).startswith(f"{path} is a damaged record")


def test_a_row_without_a_field_is_reported_with_its_name(tmp_path):
    lacking = row()
    del lacking["tflops"]
    with pytest.raises(InputError, match="row 1 has no 'tflops'"):
        load(written(tmp_path / "bad.json", lacking))


@pytest.mark.parametrize(
    "changes", [{"machine": []}, {"method": {}}, {"sgemm_tflops": float("nan")}, {"copy_gb_per_s": -1}]
)
def test_a_damaged_record_is_reported(tmp_path, changes):
    with pytest.raises(InputError, match="damaged record"):
        load(written(tmp_path / "bad.json", row(), **changes))


def test_a_timeline_is_read_and_a_span_that_cannot_be_is_reported(tmp_path):
    record = load(blocks(tmp_path / "a.json", ("flash", (4, 256, 64), [[0, 1, 2, 10, 25]])))
    assert record.points == ()
    (one,) = record.timelines
    assert (one.kernel, one.shape, one.block, one.keys, one.spans) == (
        "flash",
        (4, 256, 64),
        3,
        32,
        ((0, 1, 2, 10, 25),),
    )
    for span in ([0, 1, 2, 25, 10], [0, 1, 5, 10, 25], [99, 1, 2, 10, 25], [0, 1, 2, 10], "abcde"):
        with pytest.raises(InputError, match=r"bad\.json is a damaged record of hw4 bench: row 1"):
            load(blocks(tmp_path / "bad.json", ("flash", (4, 256, 64), [span])))


def test_what_failed_is_kept_in_words(tmp_path):
    failed = {"kernel": "naive", "case": "t30", "shape": [2, 32768, 64], "status": "failed", "reason": "no\nroom"}
    assert load(written(tmp_path / "a.json", failed)).failures == ("naive on t30 failed: no?room",)


def test_a_sweep_is_one_b_or_one_product_with_three_values_of_n(tmp_path):
    def sweep(*shapes):
        return longest_sweep(load(written(tmp_path / "a.json", *(row(shape=(B, N, 64)) for B, N in shapes))).points)

    assert sweep((4, 128), (4, 256)) is None
    assert sweep((4, 128), (4, 256), (4, 512), (1, 512)) == ("B", 4)
    assert sweep((4, 128), (2, 256), (1, 512), (3, 512)) == ("B·N", 512)


@pytest.mark.parametrize("name", ["figures/h200-against.json", "scaling/h200.json", "scaling/nodes.json"])
def test_a_record_of_another_kind_is_not_called_damaged(name):
    with pytest.raises(
        InputError,
        match=r"is a record of (builds|scaling|nodes), not of kernels, programs, tiles, profiles, roofs or timelines",
    ):
        load(ROOT / "benchmarks" / name)
