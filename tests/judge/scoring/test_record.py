"""Verdicts, scores and ranks from attempts, and attempts through the journal."""

import json
import math
from dataclasses import replace

import pytest

from hw4cli.errors import InputError
from hw4cli.judge.scoring import journal
from hw4cli.judge.scoring.record import RANKS, Attempt, Rules, combine, decide, make_standing, rank
from hw4cli.problem.verdict import Verdict

RIGHT = Attempt("t01", (320, 128, 32), 2.0, wall=0.5, exit_code=0, max_error=1e-5)
WRONG = replace(RIGHT, max_error=0.1, wrong="7 of 9 elements are off by more than 0.005")


def test_verdicts_follow_the_order_of_the_rules():
    missing = replace(RIGHT, problem="no output file", max_error=None)
    assert decide(replace(missing, fault="disk full", killed=True)) == (Verdict.JE, "disk full")
    assert decide(replace(missing, wall=12.0, killed=True))[0] is Verdict.TLE_PLUS
    assert decide(replace(missing, wall=2.01)) == (Verdict.TLE, "2.01/2.00 s, output wrong: no output file")
    assert decide(replace(RIGHT, wall=2.01)) == (Verdict.TLE, "2.01/2.00 s, output correct")
    assert decide(missing) == (Verdict.NA, "no output file")
    assert decide(WRONG) == (Verdict.NA, WRONG.wrong)
    assert decide(replace(RIGHT, wall=2.0)) == (Verdict.AC, "")


def test_other_rules_give_other_verdicts_without_a_run():
    assert decide(replace(RIGHT, wall=2.5), Rules(limits={"t01": 3}))[0] is Verdict.AC
    assert decide(RIGHT, Rules(limits={"t01": 0.4}))[0] is Verdict.TLE
    assert decide(WRONG, Rules(tolerance=0.2))[0] is Verdict.AC
    assert decide(RIGHT, Rules(tolerance=1e-6)) == (Verdict.NA, "an element is off by 1e-05, more than 1e-06")
    assert decide(replace(WRONG, max_error=math.inf), Rules(tolerance=1e9))[0] is Verdict.NA


def test_a_case_is_accepted_if_its_median_is_in_time_and_all_runs_are_right():
    walls = [replace(RIGHT, wall=wall) for wall in (0.5, 2.5, 0.7)]
    result = combine(walls)
    assert (result.verdict, result.wall, result.spread, result.borderline) == (Verdict.AC, 0.7, (0.5, 2.5), True)
    late = combine([*walls, *[replace(RIGHT, wall=2.6)] * 2])
    assert (late.verdict, late.wall) == (Verdict.TLE, 2.5)
    assert combine([*walls, WRONG]).verdict is Verdict.NA
    assert not combine([RIGHT, RIGHT]).borderline


def test_the_median_of_an_even_number_of_runs_is_the_mean_of_the_middle_two():
    for low, high in ((1.0, 3.3), (1.1, 3.0), (0.7, 3.4), (1.9, 2.2)):
        result = combine([replace(RIGHT, wall=low), replace(RIGHT, wall=high)])
        assert (result.verdict, result.borderline) == (Verdict.TLE, True)
        assert f"{high:.2f}/2.00 s" in result.reason


def test_a_run_killed_before_a_longer_limit_is_marked_unknown():
    killed = replace(RIGHT, wall=12.0, killed=True, max_error=None)
    assert combine([killed]).reason == "killed after 12.00 s, the limit is 2 s"
    longer = Rules(limits={"t01": 20})
    result = combine([killed], longer)
    assert (result.verdict, result.unknown) == (Verdict.TLE_PLUS, True)
    assert result.reason == "killed after 12.00 s: only a new run can tell if it ends within 20 s"
    assert combine([RIGHT, killed], longer).verdict is Verdict.TLE_PLUS
    assert combine([RIGHT, RIGHT, killed], longer).verdict is Verdict.AC
    assert not combine([RIGHT, RIGHT, killed], longer).unknown


def test_results_hold_the_median_processor_time_largest_memory_and_lowest_clock():
    seen = [
        replace(RIGHT, user=u, peak_rss=r, gpu_clock=c) for u, r, c in ((1, 10, 1980), (3, 30, 1500), (2, 20, None))
    ]
    result = combine(seen)
    assert (result.user, result.peak_rss, result.gpu_clock) == (2, 30, 1500)
    assert result.system is result.gpu_memory is None


def test_time_sums_accepted_cases_and_penalty_the_others_without_the_judges_failures():
    cases = ["t01", "t02", "t03", "t04"]
    results = [combine([replace(RIGHT, case=case)]) for case in ("t01", "t02")]
    results.append(combine([replace(WRONG, case="t03")]))
    one = make_standing("ann", results, cases)  # t04 was never handed in
    assert (one.passed, one.time, one.penalty, one.score) == (2, 1.0, 120.0, 54)
    faulty = make_standing("bob", [*results, combine([replace(RIGHT, case="t04", fault="no answer")])], cases)
    assert (faulty.penalty, faulty.score) == (60.0, None)


def test_ranks_follow_time_and_penalty_or_the_cases_passed():
    slow = make_standing("slow", [combine([replace(RIGHT, case=c, wall=90)]) for c in ("t01", "t02")], ["t01", "t02"],
                    Rules(limits={"t01": 99, "t02": 99}))  # fmt: skip
    slow = make_standing("slow", [replace(r, verdict=Verdict.AC) for r in slow.results.values()], ["t01", "t02"])
    half = make_standing("half", [combine([RIGHT])], ["t01", "t02"])
    twin = replace(half, user="twin")
    assert [(s.user, s.rank) for s in rank([slow, twin, half])] == [("half", 1), ("twin", 1), ("slow", 3)]
    assert [s.user for s in rank([half, slow], Rules(rank_by="passed"))] == ["slow", "half"]


def test_a_failure_of_the_judge_gives_no_rank():
    right = make_standing("right", [combine([RIGHT])], ["t01"])
    faulty = make_standing("faulty", [combine([replace(RIGHT, fault="no answer")])], ["t01"])
    for by in RANKS:
        assert [(s.user, s.rank) for s in rank([faulty, right], Rules(rank_by=by))] == [("right", 1), ("faulty", 0)]


def test_attempts_are_read_from_the_journal_as_written(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal.append(path, journal.header_line(user="<script>", host="h"))
    attempts = [RIGHT, replace(WRONG, max_error=math.inf), replace(RIGHT, fault="naïve \udcff name")]
    for attempt in attempts:
        journal.append(path, journal.run_line("key", attempt))
    back = journal.read(path)
    assert back.header["user"] == "<script>"
    assert [attempt for _, attempt in back.runs] == attempts
    for line in path.read_bytes().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_a_line_cut_short_by_a_crash_damages_no_other_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    for wall in (1.0, 2.0):
        journal.append(path, journal.run_line("key", replace(RIGHT, wall=wall)))
    path.write_bytes(path.read_bytes()[:-30])
    journal.append(path, journal.run_line("key", replace(RIGHT, wall=3.0)))
    assert [attempt.wall for _, attempt in journal.read(path).runs] == [1.0, 3.0]


def test_runs_of_an_older_program_do_not_count(tmp_path):
    path = tmp_path / "journal.jsonl"
    other = replace(RIGHT, case="t02")
    for key, attempt in (("old", WRONG), ("t02", other), ("new", RIGHT), ("new", replace(RIGHT, repeat=1))):
        journal.append(path, journal.run_line(key, attempt))
    assert journal.read(path).attempts() == {"t01": [RIGHT, replace(RIGHT, repeat=1)], "t02": [other]}


def test_a_repeated_run_replaces_the_first_and_the_headers_keys_select_runs(tmp_path):
    path = tmp_path / "journal.jsonl"
    faulty, again = replace(RIGHT, fault="no answer"), replace(RIGHT, wall=0.6)
    for key, attempt in (("old", faulty), ("old", replace(RIGHT, repeat=1)), ("old", again)):
        journal.append(path, journal.run_line(key, attempt))
    assert journal.read(path).attempts()["t01"] == [again, replace(RIGHT, repeat=1)]
    journal.append(path, journal.header_line(keys={"t01": "new"}))
    assert journal.read(path).attempts() == {}
    journal.append(path, journal.header_line(keys={"t01": "old"}))
    assert list(journal.read(path).attempts()) == ["t01"]


def test_a_missing_or_newer_journal_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        journal.read(tmp_path / "none")
    (tmp_path / "new").write_text('{"kind": "header", "schema": 2}\n')
    with pytest.raises(InputError, match="schema 2"):
        journal.read(tmp_path / "new")
