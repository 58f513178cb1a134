"""Cases with secret seeds: nobody can bring the answers, and the same judging can be repeated."""

import json
import shutil
import stat
import sys

import numpy as np
import pytest
from classes import board, submit
from helpers import OPEN, ROOT, fails, random_block, read_output, run_hw4

from hw4cli.problem import suite
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.verdict import Verdict

HONEST = '#!/bin/sh\nexec {python} -P -c \'{words}\' --device cpu --quiet "$1" "$2"\n'
CHEAT = '#!/bin/sh\ncmp -s "$1" {folder}/t01 && exec cp {folder}/t01.out "$2"\n{otherwise}\n'


def judge(folder, *options, names=("t01",)):
    words = ("--class", "submissions", "--output", "out", "--dir", folder, "--limit", "t01=30", "--secret-seeds", *OPEN)
    return run_hw4("judge", *names, *words, *options)


def honest():
    words = f'import sys; sys.path.insert(0, "{ROOT}"); from hw4cli.entry import main; main()'
    return HONEST.format(python=sys.executable, words=words)


def test_answers_that_are_brought_along_are_found_out_and_honest_programs_are_accepted(desk, folder):
    submit(desk, "ann", hw4=honest())
    size = (folder / "t01.out").stat().st_size
    submit(desk, "mal", hw4=CHEAT.format(folder=folder, otherwise=f'head -c {size} /dev/zero > "$2"'))
    submit(desk, "max", hw4=CHEAT.format(folder=folder, otherwise="exit 1"))
    submit(desk, "bad", hw4="#!/bin/sh\nexit 1\n")
    result = judge(folder)
    assert result.returncode == 0, result.stderr
    assert "making t01 (320, 128, 32) with a secret seed in out/secret (1 of 1)" in result.stderr
    found = board(desk)
    assert found["ann"].passed == 1
    words = "right on the public cases, wrong on fresh ones: answers stored in the submission? (t01)"
    for user in ("mal", "max"):
        assert found[user].results["t01"].verdict is Verdict.NA
        assert found[user].results["t01"].reason.endswith("; right on the public case, not on this fresh one")
        assert any(line.startswith(user) and line.endswith(words) for line in result.stdout.splitlines())
    assert not found["bad"].results["t01"].public_right
    run_hw4("scoreboard", "out", "--html", "board.html")
    assert "public case" not in (desk / "board.html").read_text(), "a question, and not for everyone"


def test_the_seeds_are_private_recorded_and_kept_for_those_who_come_later(desk, folder):
    submit(desk, "ann", hw4="#!/bin/sh\nexit 1\n")
    assert judge(folder).returncode == 0
    record = desk / "out" / "cases.json"
    secret = desk / "out" / "secret"
    assert (stat.S_IMODE(record.stat().st_mode), stat.S_IMODE(secret.stat().st_mode)) == (0o600, 0o700)
    case = suite.cases()["t01"]
    document = json.loads(record.read_text())
    seed = document["cases"]["t01"]["seed"]
    assert document["secret"] and seed != case.seed
    assert str(seed) not in (desk / "out" / "ann" / "journal.jsonl").read_text()
    block = random_block(*(case.shape.B, case.shape.N, case.shape.d), seed)
    assert (secret / "t01").read_bytes()[12:] == np.ascontiguousarray(block, "<f4").tobytes()
    np.testing.assert_allclose(read_output(secret / "t01.out", case.shape), exact_attention(block), atol=1e-6)
    before = record.read_bytes()
    submit(desk, "ben", hw4="#!/bin/sh\nexit 1\n")
    result = judge(folder, "--resume")
    assert result.returncode == 0, result.stderr
    assert "making" not in result.stderr
    assert "ann" in result.stdout and "judged before" not in result.stdout.partition("ben")[2]
    assert record.read_bytes() == before
    header = json.loads((desk / "out" / "ben" / "journal.jsonl").read_text().splitlines()[0])
    assert header["settings"]["seeds"] == "secret"


def test_the_same_judging_can_be_repeated_from_the_record_alone(desk, folder):
    program = submit(desk, "ann", hw4="#!/bin/sh\nexit 1\n") / "hw4"
    words = ("judge", "t01", "--dir", folder, "--secret-seeds", "--program", program, "--output")
    assert run_hw4(*words, "one").returncode == 1
    (desk / "two").mkdir()
    shutil.copy(desk / "one" / "cases.json", desk / "two")
    assert run_hw4(*words, "two").returncode == 1
    assert (desk / "one" / "secret" / "t01").read_bytes() == (desk / "two" / "secret" / "t01").read_bytes()
    assert run_hw4(*words, "three").returncode == 1
    assert (desk / "one" / "secret" / "t01").read_bytes() != (desk / "three" / "secret" / "t01").read_bytes()


def test_a_secret_case_that_was_lost_or_spoiled_is_made_again_as_it_was(desk, folder):
    program = submit(desk, "ann", hw4="#!/bin/sh\nexit 1\n") / "hw4"
    words = ("judge", "t01", "--dir", folder, "--secret-seeds", "--program", program, "--output", "out")
    assert run_hw4(*words).returncode == 1
    case = desk / "out" / "secret" / "t01"
    before = case.read_bytes()
    case.write_bytes(before[:-1] + b"x")
    fails(run_hw4(*words, "--restart"), 2, "t01 is not what this judging began with: remove it, and it is made again")
    case.unlink()
    assert run_hw4(*words, "--restart").returncode == 1
    assert case.read_bytes() == before


@pytest.mark.parametrize("first", [(), ("--secret-seeds",)])
def test_seeds_of_both_kinds_do_not_mix_in_one_judging(desk, folder, first):
    submit(desk, "ann", hw4="#!/bin/sh\nexit 1\n")
    words = ("judge", "t01", "--class", "submissions", "--output", "out", "--dir", folder, *OPEN)
    assert run_hw4(*words, *first).returncode == 0
    submit(desk, "ben", hw4="#!/bin/sh\nexit 1\n")
    second = () if first else ("--secret-seeds",)
    fails(run_hw4(*words, *second, "--resume"), 2, "out is judged with", "--secret-seeds", "or choose another --output")
    fails(run_hw4("judge", "t01", "--dir", folder, "--secret-seeds"), 2, "--secret-seeds needs --output DIR")
