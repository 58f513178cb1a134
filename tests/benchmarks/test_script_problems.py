"""What the programs that make records say of wrong arguments and of what the machine lacks: a sentence and a status."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import HANGS, ROOT
from slow import quick_of_each

from benchmarks.measure import flash_attn_tests
from hw4cli.errors import InputError

TABLE = "kernel,ms\nflash,1\n"


def call(*words, **env):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **env}
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANGS)


@pytest.mark.parametrize("module", ["traffic", "cache"])
def test_a_profile_that_cannot_be_taken_leaves_the_record_that_there_is(module, tmp_path):
    record = tmp_path / "traffic.csv"
    record.write_text(TABLE)
    result = call(sys.executable, "-m", f"benchmarks.measure.{module}", "--output", record, PATH="/nonexistent")
    assert result.returncode == 3
    assert result.stderr.startswith(f"{module}.py: ncu is not on PATH")
    assert record.read_text() == TABLE


@quick_of_each(2)
@pytest.mark.parametrize(
    "module", ["traffic", "cache", "nodes", "scaling", "without_warpgroups", "decoding", "ofarrays limits"]
)
def test_a_folder_that_is_not_there_is_named_before_anything_is_measured(module, tmp_path):
    result = call(
        sys.executable, "-m", *f"benchmarks.measure.{module}".split(), "--output", tmp_path / "gone" / "record"
    )
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith(f"{tmp_path / 'gone'} is not a folder")


@quick_of_each(1)
@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "No such file or directory"), (b"\xff\xfe\x00", "no list in JSON"), (b"{}", "no list in JSON")],
)
def test_a_list_of_changes_that_is_missing_or_damaged_is_named_in_a_sentence(text, words, tmp_path):
    drawn = tmp_path / "drawn.json"
    if text is not None:
        drawn.write_bytes(text)
    result = call(sys.executable, "-m", "benchmarks.measure.mutations", "run", drawn, "-o", tmp_path / "found.json")
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"mutations.py: {drawn}") and words in line
    assert not (tmp_path / "found.json").exists()


@quick_of_each(1)
@pytest.mark.parametrize("module", ["scaling", "without_warpgroups", "decoding", "splits"])
def test_a_machine_without_a_gpu_is_named_at_once(module, tmp_path):
    result = call(sys.executable, "-m", f"benchmarks.measure.{module}", "--output", tmp_path / "record")
    assert result.returncode == 3
    assert result.stderr.startswith(f"{module}.py: no GPU can be used")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_instructions_of_torchs_calls_are_not_counted_without_it():
    result = call(sys.executable, "-m", "benchmarks.measure.hostwork")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == "hostwork.py: this needs PyTorch, which is not installed here\n"


@quick_of_each(1)
@pytest.mark.parametrize("words", ["predictions {} -o {}/made.json", "programs {} .", "scor {} -o {}/made"])
def test_a_file_that_is_not_there_is_a_sentence(words, tmp_path):
    module, *others = words.replace("{}", str(tmp_path / "gone"), 1).replace("{}", str(tmp_path)).split()
    result = call(sys.executable, "-m", f"benchmarks.measure.{module}", *others)
    assert result.returncode == 2
    assert result.stderr.startswith(f"{module}.py: {tmp_path / 'gone'}") and "No such file" in result.stderr


@quick_of_each(2)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sanitizer", "no-command"), "the first argument must be one of build, run, compare"),
        (("sanitizer", "build", "gone", "--name", "a", "-o", "made"), "gone is no folder"),
        (("sanitizer", "compare", "a=gone", "--commit", "c", "-o", "made"), "gone: No such file or directory"),
        (("sanitizer", "compare", "a", "--commit", "c", "-o", "made"), "'a' must be SUITE=FILE"),
        (("indigo3", "gone", "-o", "made"), "gone: generate_all_codes.py has not been run"),
        (("reported", "gone", "-o", "made"), "gone has no commit"),
        (("flash_attn_tests", "gone"), "gone has no tests/test_flash_attn.py"),
        (("flash_attn_tests", "gone", "--jobs", "0"), "0 is no whole number from 1 on"),
        (("flash_attn_tests", "gone", "--hopper"), "gone has no hopper/test_flash_attn.py"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_the_scripts_of_others_suites_say_what_is_wrong_in_a_sentence(words, said, tmp_path):
    placed = [str(tmp_path / word) if word == "made" else word for word in words]
    result = call(sys.executable, "-m", f"benchmarks.measure.{placed[0]}", *placed[1:])
    assert result.returncode == 2
    assert said in result.stderr.splitlines()[-1] and "Traceback" not in result.stderr


def test_a_sample_is_drawn_of_tests_that_are_no_longer_than_asked():
    def test_short():
        """Of 1 to 3 rows."""

    test_short.pytestmark = [
        pytest.mark.parametrize("seqlen", [1, 2, 3]),
        pytest.mark.parametrize("d, dropout", [(64, 0)]),
    ]
    suite, made = flash_attn_tests.SUITES[False], SimpleNamespace(test_short=test_short)
    found = list(flash_attn_tests.drawn(suite, made, 40, 1, 2))
    assert len(found) == 40 and {given["seqlen"] for _, given in found} == {1, 2}
    with pytest.raises(InputError, match="no test of at most 0 rows and keys: give a larger --longest"):
        list(flash_attn_tests.drawn(suite, made, 40, 1, 0))


def test_what_others_tests_ask_for_and_hw4_has_not_is_refused_and_never_left_out():
    suite, name = flash_attn_tests.SUITES[False], "test_flash_attn_varlen_causal"
    assert [suite.refusal(name, {"paged_kv_block_size": size}) for size in (None, 256)] == ["", "paged caches"]
    with pytest.raises(NotImplementedError, match="block_table"):
        flash_attn_tests.attention(None, None, None, True, (-1, -1), {"deterministic": True, "block_table": [0]})


def test_a_folder_with_files_of_the_users_is_never_emptied(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    result = call(sys.executable, "-m", "benchmarks.measure.reported", tmp_path, "-o", tmp_path)
    assert result.returncode == 2 and "is there already: name a new folder" in result.stderr
    assert (tmp_path / "mine.txt").read_text() == "mine"
