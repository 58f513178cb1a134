"""Records of several GPUs: speed-ups of files and sequences, beside what the machine's rates predict."""

import json

import pytest

from hw4cli.errors import InputError
from hw4cli.show.scaling import IDEAL, load_scaling, scaling

RATES = {"cache_read": 33e9, "cache_write": 5.8e9, "disk_read": None, "flops": 1.5e14, "by": "a test"}
LARGE, SHORT = [8, 1 << 20, 64], [9600, 128, 64]


def record(tmp_path, *rows, **changed):
    raw = {"kind": "scaling", "date": "2026-01-01", "commit": "abc", "machine": {"gpu": "NVIDIA H200", "driver": "1"}}
    path = tmp_path / "record.json"
    path.write_text(json.dumps({**raw, "rates": RATES, "rows": rows, **changed}))
    return path


def strong(name, shape, gpus, stream):
    return {"what": "strong", "name": name, "shape": shape, "gpus": gpus, "stream": stream}


def sequence(gpus, median, direction="forward", causal=False):
    sizes = {"shape": [1, 16, 4096, 128], "direction": direction, "causal": causal}
    return {"what": "sequence", "name": "sequence", **sizes, "gpus": gpus, "median": median}


def test_a_speed_up_is_beside_the_fewest_gpus_in_whatever_order_they_were_measured(tmp_path):
    rows = [strong("large", LARGE, 4, 4.5), strong("large", LARGE, 1, 16.0), strong("large", LARGE, 2, 8.0)]
    steps = load_scaling(record(tmp_path, *rows)).of("strong")["8x1048576x64"]
    assert [(s.gpus, round(s.speedup, 2), round(s.efficiency, 2)) for s in steps] == [
        (1, 1.0, 1.0),
        (2, 2.0, 1.0),
        (4, 3.56, 0.89),
    ]
    assert [round(s.predicted, 1) for s in steps] == [15.0, 7.5, 3.8]


def test_a_file_that_one_gpu_computes_is_predicted_for_one(tmp_path):
    steps = load_scaling(record(tmp_path, *(strong("t12", SHORT, n, 0.15) for n in (1, 2)))).of("strong")["t12"]
    assert steps[0].predicted == steps[1].predicted


def test_where_the_work_grows_with_the_gpus_the_same_time_is_as_many_times_the_rate(tmp_path):
    rows = [{**strong("weak", [n, 1 << 20, 64], n, seconds), "what": "weak"} for n, seconds in ((1, 2.0), (4, 2.5))]
    steps = load_scaling(record(tmp_path, *rows)).of("weak")["weak"]
    assert [(s.speedup, s.efficiency) for s in steps] == [(1.0, 1.0), (3.2, 0.8)]


def test_long_files_are_drawn_beside_their_prediction_and_sequences_on_axes_of_their_own(tmp_path):
    rows = [strong("large", LARGE, 1, 15.0), strong("large", LARGE, 2, 8.0), strong("t12", SHORT, 1, 0.15)]
    rows += [sequence(n, 1 / n, direction, True) for n in (1, 4) for direction in ("forward", "backward")]
    files, passes = scaling([load_scaling(record(tmp_path, *rows))]).panels
    assert [one.name for one in files.series] == ["8x1048576x64", "t12", "8x1048576x64 predicted", IDEAL]
    assert [mark.at for mark in files.series[2].marks] == [1, 2, 4, 8]
    assert files.series[2].marks[0].value == 1
    assert [one.name for one in passes.series] == ["forward-causal", "backward-causal", IDEAL]
    assert [mark.value for mark in passes.series[0].marks] == [1, 4]


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": [strong("large", LARGE, 1, -1.0)]},
        {"rows": [strong("large", LARGE, 1, float("nan"))]},
        {"rows": [strong("large", LARGE, 0, 1.0)]},
        {"rows": [strong("large", [1, 2], 1, 1.0)]},
        {"rows": [{"what": "sequence", "gpus": 1, "median": 1.0}]},
        {"rates": None},
        {"rates": {"speed": 1.0}},
        {"rates": {**RATES, "flops": float("inf")}},
        {"rates": {**RATES, "cache_read": 0}},
        {"rates": {**RATES, "cache_write": 10**400}},
        {"rates": {**RATES, "opening": -1.0}},
        {"rates": {**RATES, "kernels": {"split": float("nan")}}},
        {"rows": [strong("large", LARGE, float("inf"), 1.0)]},
        {"rows": [strong("large", LARGE, 2**63, 1.0)]},
        {"rows": [strong("large", [8, 2**63, 64], 1, 1.0)]},
        {"rows": [strong("large", [2**31 - 1, 2**31 - 1, 128], 1, 1.0)]},
        {"rows": [strong("large", [8, 1024, 129], 1, 1.0)]},
    ],
)
def test_a_damaged_record_is_refused(tmp_path, changed):
    with pytest.raises(InputError, match="damaged"):
        load_scaling(record(tmp_path, **changed))


def test_one_number_of_gpus_shows_no_scaling(tmp_path):
    with pytest.raises(InputError, match="one number of GPUs shows no scaling"):
        scaling([load_scaling(record(tmp_path, strong("large", LARGE, 2, 8.0)))])


def test_seconds_of_a_machine_may_be_short_and_its_rates_not(tmp_path):
    row = strong("large", LARGE, 1, 16.0)
    for name in ("opening", "starting"):
        assert load_scaling(record(tmp_path, row, rates={**RATES, name: 0.011})).steps
    with pytest.raises(InputError, match="damaged"):
        load_scaling(record(tmp_path, row, rates={**RATES, "flops": 0.011}))
