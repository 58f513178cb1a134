"""benchmarks/measure/scaling.py, as far as it runs without a GPU: its files, and how it checks outputs."""

import json

import pytest
from helpers import ROOT, folder_is_clean, read_output, run_here
from slow import slow

from benchmarks.measure import randomfiles, scaling
from benchmarks.pages.scaling import in_shards
from benchmarks.pages.table import read
from hw4cli.doctor import measure
from hw4cli.problem.workload import Shape


def test_outputs_are_compared_with_each_other_and_with_float64(tmp_path):
    shape = (3, 200, 32)
    randomfiles.make(tmp_path / "in", shape)
    for name, options in (("out", ()), ("causal", ("--causal",)), ("again", ())):
        assert run_here(tmp_path / "in", tmp_path / name, "--device", "cpu", *options).returncode == 0
    assert randomfiles.digest(tmp_path / "out") == randomfiles.digest(tmp_path / "again")
    assert randomfiles.digest(tmp_path / "out") != randomfiles.digest(tmp_path / "causal")
    assert randomfiles.worst_error(tmp_path / "in", tmp_path / "out", shape) < 2e-5
    assert randomfiles.worst_error(tmp_path / "in", tmp_path / "causal", shape, causal=True) < 2e-5
    assert randomfiles.worst_error(tmp_path / "in", tmp_path / "causal", shape) > 0.1
    assert abs(read_output(tmp_path / "out", Shape(*shape))).max() < 3


@slow
def test_a_record_is_gone_on_with_and_holds_each_measurement_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "FILE_BYTES", 4 << 20)
    monkeypatch.setattr(measure, "CPU_SAMPLE", Shape(1, 256, 32))
    record, folder = tmp_path / "record.json", tmp_path / "files"
    folder.mkdir()
    options = ["--output", str(record), "--folder", str(folder), "--cpu", "--runs", "1", "--no-weak"]
    options += ["--shrink", "4096", "--strong", "one batch"]
    scaling.main([*options, "--gpus", "2"])
    first = json.loads(record.read_text())
    scaling.main([*options, "--gpus", "1,2"])
    both = json.loads(record.read_text())
    assert [row["gpus"] for row in both["rows"]] == [2, 1]
    assert (both["rows"][0], both["rates"]) == (first["rows"][0], first["rates"])
    assert len({row["digest"] for row in both["rows"]}) == 1
    assert all(row["max_error"] < 2e-5 and row["shape"] == [1, 512, 64] for row in both["rows"])
    scaling.main([*options, "--gpus", "1,2,4", "--seconds", "0"])
    assert "no time left for" in capsys.readouterr().out
    assert json.loads(record.read_text())["rows"] == both["rows"]
    folder_is_clean(folder)
    record.write_text(json.dumps({**both, "commit": "another"}))
    with pytest.raises(SystemExit, match="another machine or commit"):
        scaling.main(options)


@slow
def test_what_fails_is_reported_and_the_rest_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "FILE_BYTES", 4 << 20)
    monkeypatch.setattr(measure, "CPU_SAMPLE", Shape(1, 256, 32))
    monkeypatch.setitem(scaling.STRONG, "one batch", (1, 64, 129))  # no such d
    monkeypatch.setitem(scaling.STRONG, "t12", (2, 64, 32))
    record = tmp_path / "record.json"
    options = ["--output", str(record), "--folder", str(tmp_path), "--cpu", "--runs", "1", "--no-weak", "--gpus", "1"]
    with pytest.raises(SystemExit, match="not measured"):
        scaling.main([*options, "--strong", "one batch,t12"])
    assert "FAILED: strong ('one batch'," in capsys.readouterr().out
    assert [row["name"] for row in json.loads(record.read_text())["rows"]] == ["t12"]
    folder_is_clean(tmp_path, "record.json")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpus", "0"], "'0': give numbers of GPUs, as 1,2,4"),
        (["--gpus", "1,x"], "'1,x': give numbers of GPUs, as 1,2,4"),
        (["--strong", "t99"], "'t99': give some of large"),
        (["--folder", "/proc/nowhere"], "'/proc/nowhere' is not a folder"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path, capsys, arguments, words):
    with pytest.raises(SystemExit):
        scaling.main(["--output", str(tmp_path / "r.json"), *arguments])
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("content", ["junk", "[]", "{}", '{"rows": 3}'])
def test_a_damaged_record_is_one_sentence_and_stays_as_it_is(tmp_path, content):
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(SystemExit, match="name another file by --output"):
        scaling.main(["--output", str(path), "--gpus", "1"])
    assert path.read_text() == content


def test_a_sequence_in_shards_is_foreseen_to_take_its_share_of_one_gpus_time(tmp_path):
    record = json.loads((ROOT / "benchmarks/scaling/h200.json").read_text())
    row = {"what": "sequence", "name": "sequence", "direction": "forward", "causal": False, "shape": [1, 16, 1024, 128]}
    row |= {"seconds": [], "relative_error": 0.004}
    record["rows"] = [{**row, "gpus": gpus, "median": seconds} for gpus, seconds in ((1, 1.0), (4, 0.3))]
    path = tmp_path / "r.json"
    path.write_text(json.dumps(record))
    table = in_shards(read(path))
    column = table.header.index("predicted s")
    assert [line[column] for line in table.lines] == ["1.0000", "0.2500"]
