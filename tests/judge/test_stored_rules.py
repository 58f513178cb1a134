"""The rules of a folder of results stay from one judging to the next, for one program and for a class."""

import json

from classes import class_args, correct, judge_class, submit
from helpers import JUDGE_T01, fails, run_here
from slow import slow

from hw4cli.judge.scoring import storedrules


def resume(folder, *options):
    """Judge the class again, naming no rule."""
    return run_here(*class_args(folder)[:2], *class_args(folder)[4:], "--resume", *options)


def rules(workdir):
    return json.loads((workdir / "out" / storedrules.NAME).read_text())


def runs(workdir):
    return (workdir / "runs").read_text().count("run")


def test_a_resumed_class_is_judged_by_the_stored_rules(workdir, folder):
    """Also a student who is new, whose run alone follows; all are ranked by one set."""
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    assert judge_class(folder, "--penalty", "7", "--due", "2026-05-01").returncode == 0
    assert (rules(workdir)["limits"], rules(workdir)["penalty"]) == ({"t01": 120}, 7)
    assert not (workdir / "out" / "ann" / storedrules.NAME).exists()
    rescored = run_here("judge", "--rescore", "out", "--limit", "t01=100", "--tolerance", "0.1")
    assert rescored.returncode == 0, rescored.stderr
    before = (workdir / "out" / storedrules.NAME).read_bytes()

    submit(workdir, "ben", hw4=correct(folder, workdir / "runs"))
    result = resume(folder)
    assert result.returncode == 0, result.stderr
    assert runs(workdir) == 2, "ann's run is judged by the rules, and not repeated"
    assert "judged before" in result.stdout
    assert (workdir / "out" / storedrules.NAME).read_bytes() == before
    document = json.loads((workdir / "out" / "results.json").read_text())
    assert document["rules"] == {name: rules(workdir)[name] for name in document["rules"]}
    assert [(one["passed"], one["results"][0]["limit"]) for one in document["standings"]] == [(1, 100), (1, 100)]

    assert resume(folder, "--penalty", "30").returncode == 0
    assert (rules(workdir)["penalty"], rules(workdir)["limits"], runs(workdir)) == (30, {"t01": 100}, 2)


@slow
def test_restart_forgets_the_rules_unless_others_are_still_judged_by_them(workdir, folder):
    for user in ("ann", "ben"):
        submit(workdir, user, hw4=correct(folder, workdir / "runs"))
    assert judge_class(folder, "--penalty", "7").returncode == 0
    assert judge_class(folder, "--restart", "--only", "ann").returncode == 0
    assert rules(workdir)["penalty"] == 7
    assert judge_class(folder, "--restart").returncode == 0
    assert rules(workdir)["penalty"] == 60
    before = rules(workdir)
    fails(judge_class(folder, "--penalty", "5"), 2, "--resume continues")
    assert rules(workdir) == before, "nothing was judged"


@slow
def test_a_resumed_folder_of_an_older_version_keeps_the_rules_of_its_journal(workdir, folder):
    program = submit(workdir, "ann", hw4=correct(folder, workdir / "runs")) / "hw4"
    args = (*JUDGE_T01, "--dir", folder, "--program", program, "--output", "out")
    assert run_here(*args, "--penalty", "7", "--rank-by", "passed").returncode == 0
    (workdir / "out" / storedrules.NAME).unlink()
    assert run_here(*args, "--resume").returncode == 0
    assert (rules(workdir)["penalty"], rules(workdir)["rank_by"], runs(workdir)) == (7, "passed", 1)
    assert run_here(*args, "--restart").returncode == 0
    assert (rules(workdir)["penalty"], rules(workdir)["rank_by"]) == (60, "time")
    (workdir / "out" / storedrules.NAME).write_text("{}")
    fails(run_here(*args, "--resume"), 2, f"out/{storedrules.NAME} is damaged: restore it, or remove it")


@slow
def test_a_task_of_an_array_reads_the_rules_and_stores_none(workdir, folder):
    """Many tasks write at once, with the options of the judge that waits for them, while the rules may be changed."""
    for user in ("ann", "ben"):
        submit(workdir, user, hw4=correct(folder, workdir / "runs"))
    (workdir / "out").mkdir()
    assert judge_class(folder, "--only", "ann", "--penalty", "7").returncode == 0
    assert run_here("judge", "--rescore", "out", "--penalty", "9").returncode == 0
    task = judge_class(folder, "--task", "--resume", "--only", "ben", "--penalty", "7")
    assert task.returncode == 0, task.stderr
    assert rules(workdir)["penalty"] == 9
    assert json.loads((workdir / "out" / "results.json").read_text())["rules"]["penalty"] == 9
