"""What is published: the page has verdicts and the judge's reasons, and quotes no output of a program."""

from dataclasses import replace

from boards import RIGHT, write
from classes import judge_class, submit
from helpers import run_here
from needs import needs

from hw4cli.judge.scoring.record import Attempt, Rules, combine, decide, decide_for_public
from hw4cli.judge.scoring.standings import load
from hw4cli.judge.submission import BOARD


def page_of(workdir, *options):
    result = run_here("scoreboard", workdir / "out", "-o", workdir / "board.html", *options)
    assert result.returncode in (0, 3), result.stderr
    return (workdir / "board.html").read_text()


@needs("make")
def test_the_page_quotes_no_output_of_programs_and_builds(workdir, folder):
    say = "echo hush-{} >&2\n"
    submit(workdir, "exits", hw4=f"#!/bin/sh\n{say.format(1)}exit 3\n")
    submit(workdir, "crashes", hw4=f"#!/bin/sh\n{say.format(2)}kill -SEGV $$\n")
    submit(workdir, "cuda", hw4="#!/bin/sh\necho 'CUDA error: hush-3 invalid argument' >&2\n")
    submit(workdir, "wrong", hw4="#!/bin/sh\necho 'gpu fails: hush-4' >&2\nhead -c 5242880 /dev/zero > $2\n")
    submit(workdir, "builds", Makefile="hw4:\n\t@echo 'hw4.cu: error: hush-5' >&2; exit 1\n")
    submit(workdir, "names", **{"hush-6": "a file"})
    submit(workdir, "starts", hw4="#!/no/such/interpreter\n")
    assert judge_class(folder).returncode == 0
    text = page_of(workdir)
    assert "hush" not in text
    assert str(workdir) not in text
    for reason in (
        "exit code 3", "ended by signal 11 (SIGSEGV)", "no output file", "elements are off by more than",
        "make hw4 failed", "there is no hw4 and no Makefile", "NA: hw4 cannot be started: its first line names",
    ):  # fmt: skip
        assert reason in text, reason
    own = (workdir / "out" / BOARD).read_text()
    assert [f"hush-{number}" in own for number in range(1, 7)] == [True] * 6 and "exits/handout.html" in own
    private = (workdir / "out" / "results.csv").read_text()
    assert [f"hush-{number}" in private for number in range(1, 7)] == [True] * 6
    assert "exit code 3: hush-1" in private
    assert "no output file; it said: CUDA error: hush-3" in private


def test_output_of_programs_in_journals_of_older_versions_is_not_published(tmp_path):
    """There, one field has the judge's sentence and the program's output."""
    old = [
        replace(RIGHT, case="t01", exit_code=3, problem="exit code 3: hush", max_error=None),
        replace(RIGHT, case="t02", problem="no output file; it said: hush", max_error=None),
        replace(RIGHT, case="t03", wrong="7 of 9 elements are off: first at row 1; it said: hush", max_error=1.0),
    ]
    write(tmp_path / "out" / "ann", *old)
    write(tmp_path / "out" / "ben", note="make hw4 failed: hush", cases=["t01"])
    for name in ("ann", "ben"):
        path = tmp_path / "out" / name / "journal.jsonl"
        path.write_text(path.read_text().replace(', "said": null', ""))
    assert "hush" not in page_of(tmp_path)
    ann, ben = load(tmp_path / "out", Rules())
    assert [one.reason for one in ann.results.values()] == [one.problem or one.wrong for one in old]
    assert ann.results["t03"].public_reason == "7 of 9 elements are off: first at row 1"
    assert (ben.note, ben.public_note) == ("make hw4 failed: hush", "make hw4 failed")


def test_a_failure_of_the_judge_publishes_no_path(tmp_path):
    write(tmp_path / "out" / "ann", replace(RIGHT, fault="cannot write /home/ta/out/ann: No space left"))
    write(tmp_path / "out" / "ben", cases=["t01"], note="cannot copy /home/ta/subs/ben: it is full", fault=True)
    (tmp_path / "out" / "cid").mkdir()
    (tmp_path / "out" / "cid" / "journal.jsonl").write_text('{"kind": "header", "schema": 7}')
    text = page_of(tmp_path)
    assert "/home/ta" not in text and "journal.jsonl" not in text
    assert text.count("the judge failed, not the program") >= 2


def test_published_verdicts_are_the_same_and_several_runs_have_one_reason():
    failed = replace(RIGHT, problem="exit code 1", said="hush", exit_code=1, max_error=None)
    late = replace(RIGHT, wall=2.5)
    for attempt in (RIGHT, failed, late, replace(failed, wall=2.5), Attempt("t01", (1, 2, 3), 1.0, fault="x")):
        assert decide(attempt)[0] is decide_for_public(attempt)[0]
    result = combine([RIGHT, failed])
    assert (result.reason, result.public_reason) == ("exit code 1: hush", "exit code 1")
