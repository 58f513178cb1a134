"""Cases with secret seeds: stored answers do not help, and the same judging can be repeated."""

import json
import shutil
import stat
import sys

import numpy as np
import pytest
from classes import board, submit
from helpers import JUDGE_T01, OPEN, ROOT, fails, random_block, read_output, run_here
from slow import slow

from hw4cli.problem import suite
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.verdict import Verdict

HONEST = '#!/bin/sh\nexec {python} -P -c \'{code}\' --device cpu --quiet "$1" "$2"\n'
CHEAT = '#!/bin/sh\ncmp -s "$1" {folder}/t01 && exec cp {folder}/t01.out "$2"\n{otherwise}\n'


def judge(folder, *options, names=("t01",)):
    args = ("--class", "submissions", "--output", "out", "--dir", folder, "--limit", "t01=30", "--secret-seeds", *OPEN)
    return run_here("judge", *names, *args, *options)


def honest():
    code = f'import sys; sys.path.insert(0, "{ROOT}"); from hw4cli.entry import main; main()'
    return HONEST.format(python=sys.executable, code=code)


@slow
def test_stored_answers_are_detected_and_right_programs_are_accepted(workdir, folder):
    submit(workdir, "ann", hw4=honest())
    size = (folder / "t01.out").stat().st_size
    submit(workdir, "mal", hw4=CHEAT.format(folder=folder, otherwise=f'head -c {size} /dev/zero > "$2"'))
    submit(workdir, "max", hw4=CHEAT.format(folder=folder, otherwise="exit 1"))
    submit(workdir, "bad", hw4="#!/bin/sh\nexit 1\n")
    result = judge(folder)
    assert result.returncode == 0, result.stderr
    assert "making t01 (320, 128, 32) with a secret seed in out/secret (1 of 1)" in result.stderr
    found = board(workdir)
    assert found["ann"].passed == 1
    note = "right on the public cases, wrong on those with secret seeds: answers stored in the submission? (t01)"
    for user in ("mal", "max"):
        assert found[user].results["t01"].verdict is Verdict.NA
        assert found[user].results["t01"].reason.endswith("; right on the public case, but not with a secret seed")
        assert any(line.startswith(user) and line.endswith(note) for line in result.stdout.splitlines())
    assert not found["bad"].results["t01"].public_right
    run_here("scoreboard", "out", "-o", "board.html")
    assert "public case" not in (workdir / "board.html").read_text(), "the suspicion is published"


@slow
def test_secret_seeds_are_private_and_the_same_for_later_submissions(workdir, folder):
    submit(workdir, "ann", hw4="#!/bin/sh\nexit 1\n")
    assert judge(folder).returncode == 0
    record = workdir / "out" / "cases.json"
    secret = workdir / "out" / "secret"
    assert (stat.S_IMODE(record.stat().st_mode), stat.S_IMODE(secret.stat().st_mode)) == (0o600, 0o700)
    case = suite.cases()["t01"]
    document = json.loads(record.read_text())
    seed = document["cases"]["t01"]["seed"]
    assert document["secret"] and seed != case.seed
    assert str(seed) not in (workdir / "out" / "ann" / "journal.jsonl").read_text()
    block = random_block(*(case.shape.B, case.shape.N, case.shape.d), seed)
    assert (secret / "t01").read_bytes()[12:] == np.ascontiguousarray(block, "<f4").tobytes()
    np.testing.assert_allclose(read_output(secret / "t01.out", case.shape), exact_attention(block), atol=1e-6)
    before = record.read_bytes()
    submit(workdir, "ben", hw4="#!/bin/sh\nexit 1\n")
    result = judge(folder, "--resume")
    assert result.returncode == 0, result.stderr
    assert "making" not in result.stderr
    assert "ann" in result.stdout and "judged before" not in result.stdout.partition("ben")[2]
    assert record.read_bytes() == before
    header = json.loads((workdir / "out" / "ben" / "journal.jsonl").read_text().splitlines()[0])
    assert header["settings"]["seeds"] == "secret"


@slow
def test_the_same_judging_can_be_repeated_from_the_manifest_alone(workdir, folder):
    program = submit(workdir, "ann", hw4="#!/bin/sh\nexit 1\n") / "hw4"
    args = (*JUDGE_T01, "--dir", folder, "--secret-seeds", "--program", program, "--output")
    assert run_here(*args, "one").returncode == 1
    (workdir / "two").mkdir()
    shutil.copy(workdir / "one" / "cases.json", workdir / "two")
    assert run_here(*args, "two").returncode == 1
    assert (workdir / "one" / "secret" / "t01").read_bytes() == (workdir / "two" / "secret" / "t01").read_bytes()
    assert run_here(*args, "three").returncode == 1
    assert (workdir / "one" / "secret" / "t01").read_bytes() != (workdir / "three" / "secret" / "t01").read_bytes()


@slow
def test_a_lost_or_damaged_secret_case_is_made_again_unchanged(workdir, folder):
    program = submit(workdir, "ann", hw4="#!/bin/sh\nexit 1\n") / "hw4"
    args = (
        "judge",
        "t01",
        "--limit",
        "t01=120",
        "--dir",
        folder,
        "--secret-seeds",
        "--program",
        program,
        "--output",
        "out",
    )
    assert run_here(*args).returncode == 1
    case = workdir / "out" / "secret" / "t01"
    before = case.read_bytes()
    case.write_bytes(before[:-1] + b"x")
    fails(run_here(*args, "--restart"), 2, "t01 has changed since this judging began: remove it, and the next")
    case.unlink()
    assert run_here(*args, "--restart").returncode == 1
    assert case.read_bytes() == before


@slow
@pytest.mark.parametrize("first", [(), ("--secret-seeds",)])
def test_secret_and_public_seeds_are_not_mixed_in_one_folder(workdir, folder, first):
    submit(workdir, "ann", hw4="#!/bin/sh\nexit 1\n")
    args = (*JUDGE_T01, "--class", "submissions", "--output", "out", "--dir", folder, *OPEN)
    assert run_here(*args, *first).returncode == 0
    submit(workdir, "ben", hw4="#!/bin/sh\nexit 1\n")
    second = () if first else ("--secret-seeds",)
    fails(run_here(*args, *second, "--resume"), 2, "out is judged with", "--secret-seeds", "or choose another --output")
    fails(
        run_here(*JUDGE_T01, "--dir", folder, "--secret-seeds"),
        2,
        "--secret-seeds needs --output DIR",
    )
