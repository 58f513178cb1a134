"""Sessions of judging: each run is written into the journal as it ends, and is not repeated by a resumed session."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from boards import RIGHT
from helpers import make_cases, tiny_case
from sessions import contestant

from hw4cli.errors import InputError, MachineError
from hw4cli.judge import session
from hw4cli.judge.events import Listener
from hw4cli.judge.plan import Plan, Program
from hw4cli.judge.scoring import journal, storedrules
from hw4cli.judge.scoring.record import Rules
from hw4cli.judge.session import judge_session, record_not_run
from hw4cli.problem.verdict import Verdict

__all__ = ["contestant"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Three small cases, and the folder they lie in."""
    small = [tiny_case(name, seed=seed, limit=5.0) for seed, name in enumerate(("a", "b", "c"))]
    return small, make_cases(tmp_path_factory.mktemp("tiny"), *small)


def plan_of(tiny, path, output=None, **others):
    small, folder = tiny
    return Plan(others.pop("cases", small), folder, output, **others), Program("ann", [str(path)])


def verdicts(standing):
    return {case: str(result.verdict) for case, result in standing.results.items()}


def test_every_run_is_in_the_journal_after_a_header_with_the_settings(tiny, contestant, tmp_path):
    path, ran = contestant(tiny[1])
    standing = judge_session(*plan_of(tiny, path, tmp_path / "out", repeat=2, warmup=1, rules=Rules(penalty=7)))
    assert verdicts(standing) == {"a": "AC", "b": "AC", "c": "AC"}
    assert ran() == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    found = journal.read(tmp_path / "out" / journal.NAME)
    assert [(a.case, a.repeat) for _, a in found.runs] == [(c, r) for c in "abc" for r in (0, 1)]
    header = found.header
    assert (header["user"], header["program"], header["cases"]) == ("ann", [str(path)], ["a", "b", "c"])
    assert {"program_sha256", "host", "gpu", "started", "version", "keys"} <= header.keys()
    settings = header["settings"]
    assert (settings["repeat"], settings["warmup"], settings["penalty"], settings["tolerance"]) == (2, 1, 7, 5e-3)
    assert {"sandbox", "launcher", "scratch", "input_cached", "clock", "rank_by"} <= settings.keys()


def test_without_an_output_folder_no_file_is_written(tiny, contestant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, _ = contestant(tiny[1])
    before = set(tmp_path.iterdir())
    assert judge_session(*plan_of(tiny, path)).passed == 3
    assert {p.name for p in set(tmp_path.iterdir()) - before} == {"program.log"}


def test_a_resumed_session_runs_only_missing_runs(tiny, contestant, tmp_path):
    path, ran = contestant(tiny[1])
    out = tmp_path / "out"
    judge_session(*plan_of(tiny, path, out, cases=tiny[0][:1]))
    judge_session(*plan_of(tiny, path, out, cases=tiny[0][:2], repeat=2, resume=True))
    assert ran() == ["a", "a", "b", "b"]
    events = []

    class Recorder(Listener):
        def judged(self, result, skipped):
            events.append((result.case, skipped))

    standing = judge_session(*plan_of(tiny, path, out, resume=True), Recorder())
    assert ran() == ["a", "a", "b", "b", "c"]
    assert events == [("a", True), ("b", True), ("c", False)]
    assert {case: result.attempts for case, result in standing.results.items()} == {"a": 2, "b": 2, "c": 1}


def test_after_a_change_of_program_limit_or_tolerance_only_new_runs_count(tiny, contestant, tmp_path):
    out, small = tmp_path / "out", tiny[0]
    path, ran = contestant(tiny[1])
    judge_session(*plan_of(tiny, path, out))
    judge_session(*plan_of(tiny, path, out, resume=True, cases=[replace(small[0], limit=4.0)]))
    assert ran() == ["a", "b", "c", "a"]
    contestant(tiny[1], "sys.exit(1)")
    standing = judge_session(*plan_of(tiny, path, out, resume=True, cases=small[:1]))
    # Runs of the older program do not count; its cases do, and have no result.
    assert verdicts(standing) == {"a": "NA"}
    assert (list(standing.cases), standing.penalty) == (["a", "b", "c"], 180.0)


def test_judging_one_case_again_leaves_the_others_unchanged(tiny, contestant, tmp_path):
    path, _ = contestant(tiny[1])
    out = tmp_path / "out"
    judge_session(*plan_of(tiny, path, out))
    standing = judge_session(*plan_of(tiny, path, out, cases=tiny[0][1:2], repeat=2, resume=True))
    assert {case: result.attempts for case, result in standing.results.items()} == {"a": 1, "b": 2, "c": 1}


def test_runs_that_the_judge_failed_in_are_repeated(tiny, contestant, tmp_path):
    small, folder = tiny
    path, ran = contestant(folder)
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "b.out").write_bytes(b"")
    out = tmp_path / "out"
    plan = plan_of((small, broken), path, out)
    assert verdicts(judge_session(*plan)) == {"a": "AC", "b": "JE", "c": "AC"}
    (broken / "b.out").write_bytes((folder / "b.out").read_bytes())
    standing = judge_session(*plan_of((small, broken), path, out, resume=True))
    assert verdicts(standing) == {"a": "AC", "b": "AC", "c": "AC"}
    assert ran()[-1] == "b"
    assert ran().count("a") == ran().count("c") == 1


def test_an_older_journal_is_kept_under_a_numbered_name(tiny, contestant, tmp_path):
    path, _ = contestant(tiny[1])
    out = tmp_path / "out"
    texts = []
    for _ in range(3):
        judge_session(*plan_of(tiny, path, out, cases=tiny[0][:1], restart=True))
        texts.append((out / journal.NAME).read_text())
    assert [(out / name).read_text() for name in ("journal-1.jsonl", "journal-2.jsonl", "journal.jsonl")] == texts


def test_the_median_decides_and_a_case_on_both_sides_of_the_limit_is_borderline(tiny, contestant):
    case = replace(tiny[0][0], limit=5.0)
    path, _ = contestant(tiny[1], "time.sleep(5.2 if runs == 1 else 0)")
    result = judge_session(*plan_of(tiny, path, cases=[case], repeat=3)).results["a"]
    assert (result.verdict, result.borderline, result.attempts) == (Verdict.AC, True, 3)
    assert result.reason.startswith("borderline: ")
    assert result.spread[0] < 5 < result.spread[1]


def test_warmups_are_not_counted(tiny, contestant):
    path, ran = contestant(tiny[1], "if runs < 2: sys.exit(1)")
    assert judge_session(*plan_of(tiny, path, cases=tiny[0][:1], warmup=2)).passed == 1
    assert len(ran()) == 3


def test_an_interrupted_session_writes_its_results(tiny, contestant, tmp_path):
    path, _ = contestant(tiny[1])
    out = tmp_path / "out"

    class Impatient(Listener):
        def running(self, case, run, runs):
            if case.name == "b":
                raise KeyboardInterrupt

        def ended(self, standing):
            reported.append(verdicts(standing))

    reported = []
    with pytest.raises(KeyboardInterrupt):
        judge_session(*plan_of(tiny, path, out), Impatient())
    assert reported == [{"a": "AC"}]
    document = json.loads((out / "results.json").read_text())
    assert document["standings"][0]["missing"] == ["b", "c"]


def test_a_second_session_cannot_write_the_same_journal(tiny, contestant, tmp_path):
    path, _ = contestant(tiny[1])
    out = tmp_path / "out"

    class Second(Listener):
        def judged(self, result, skipped):
            with pytest.raises(MachineError, match="another hw4 judge"):
                judge_session(*plan_of(tiny, path, out))

    assert judge_session(*plan_of(tiny, path, out), Second()).passed == 3
    assert len(journal.read(out / journal.NAME).headers) == 1


def test_a_program_that_could_not_be_built_has_a_note(tmp_path):
    record_not_run(tmp_path / "bob", "bob", ["t01"], "it does not compile")
    header = journal.read(tmp_path / "bob" / journal.NAME).header
    assert (header["user"], header["cases"], header["note"]) == ("bob", ["t01"], "it does not compile")


def test_a_full_disk_ends_the_session_with_one_sentence(tiny, contestant, tmp_path, monkeypatch):
    path, ran = contestant(tiny[1])

    def full(path, line):
        if line["kind"] == "run" and line["case"] == "b":
            raise OSError(28, "No space left on device")
        return append(path, line)

    append = journal.append
    monkeypatch.setattr("hw4cli.judge.scoring.journal.append", full)
    with pytest.raises(MachineError, match=r"journal\.jsonl.*No space left"):
        judge_session(*plan_of(tiny, path, tmp_path / "out"))
    assert ran() == ["a", "b"]
    assert [a.case for _, a in journal.read(tmp_path / "out" / journal.NAME).runs] == ["a"]


def test_an_output_folder_that_cannot_be_written_is_refused_before_anything_runs(tiny, contestant, tmp_path):
    path, ran = contestant(tiny[1])
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="is a file"):
            judge_session(*plan_of(tiny, path, out))
    with pytest.raises(MachineError, match="/proc"):
        judge_session(*plan_of(tiny, path, type(tmp_path)("/proc/nothing")))
    assert ran() == []
    assert (tmp_path / "file").read_text() == "mine"


def limits_of(path):
    return {case: [a.limit for _, a in journal.read(path).runs if a.case == case] for case in "abc"}


def test_rules_that_were_kept_repeat_no_run_that_they_can_judge(tiny, contestant, tmp_path):
    """A rescoring to other limits and another tolerance runs nothing, and so does the session that resumes then."""
    out, small = tmp_path / "out", tiny[0]
    path, ran = contestant(tiny[1])
    judge_session(*plan_of(tiny, path, out, cases=small[:2]))
    rules = Rules(tolerance=0.1, limits={"a": 4.0, "c": 9.0})
    cases = [replace(case, limit=rules.limits.get(case.name, case.limit)) for case in small]
    kept = {"rules": rules, "kept_limits": frozenset("ac"), "resume": True}
    for _ in range(2):
        judge_session(*plan_of(tiny, path, out, cases=cases, **kept))
        assert ran() == ["a", "b", "c"]
    assert limits_of(out / journal.NAME) == {"a": [5.0], "b": [5.0], "c": [9.0]}


def test_a_run_that_was_killed_before_a_longer_limit_is_repeated(tiny, contestant, tmp_path):
    out, small = tmp_path / "out", tiny[0]
    path, ran = contestant(tiny[1])
    judge_session(*plan_of(tiny, path, out, cases=small[:1]))
    lines = [json.loads(line) for line in (out / journal.NAME).read_text().splitlines()]
    lines[1].update(killed=True, wall=15.0)
    (out / journal.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    kept = {"kept_limits": frozenset("a"), "resume": True}
    decided = plan_of(tiny, path, out, cases=[replace(small[0], limit=14.0)], rules=Rules(limits={"a": 14.0}), **kept)
    assert verdicts(judge_session(*decided)) == {"a": "TLE+"}
    assert ran() == ["a"]
    longer = plan_of(tiny, path, out, cases=[replace(small[0], limit=20.0)], rules=Rules(limits={"a": 20.0}), **kept)
    storedrules.write(out, longer[0].rules)
    for _ in range(2):
        assert verdicts(judge_session(*longer)) == {"a": "AC"}
        assert ran() == ["a", "a"]


@pytest.mark.parametrize(
    ("on_secret", "public_wall", "right"),
    [
        ({"wall": 0.5, "max_error": 3.0}, 0.5, True),  # wrong numbers: those of the public case were stored
        ({"wall": 20.0, "killed": True, "max_error": None}, 1.9, True),  # too slow: they were computed, or stored
        ({"wall": 3.5, "max_error": 1e-5}, 1.9, False),  # nearly as slow on the public case: it is slow on both
        ({"wall": 0.5, "max_error": 1e-5}, 0.5, None),  # it did not fail
    ],
)
def test_who_fails_on_a_secret_case_alone_is_right_on_the_public_one_in_less_than_half_of_the_time_if_slow(
    on_secret, public_wall, right
):
    attempt = replace(RIGHT, **on_secret)
    case = tiny_case(RIGHT.case, seed=1, limit=RIGHT.limit)
    judged = SimpleNamespace(
        plan=SimpleNamespace(rules=Rules(), cases=[case]),
        public="public",
        _judged=lambda known, where: replace(RIGHT, wall=public_wall),
    )
    assert session._Session._is_right_in_public(judged, case, attempt) is right
