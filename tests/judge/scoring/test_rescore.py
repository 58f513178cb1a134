"""`hw4 judge --rescore`: other rules for the same runs."""

import json
import resource
from dataclasses import replace

import pytest
from helpers import fails, run_here, run_hw4, start_hw4
from slow import slow

from hw4cli.judge.scoring import journal, storedrules
from hw4cli.judge.scoring.record import Attempt, Rules
from hw4cli.problem import suite

SETTINGS = {"tolerance": 5e-3, "penalty": 60.0, "rank_by": "time"}


def attempt(name, **seen):
    case = suite.cases()[name]
    shape = (case.shape.B, case.shape.N, case.shape.d)
    return Attempt(name, shape, case.limit, **{"wall": 0.5, "exit_code": 0, "max_error": 1e-5, **seen})


RUNS = {
    "t01": attempt("t01"),
    "t02": attempt("t02", wall=2.5),
    "t03": attempt("t03", wall=12.0, killed=True, max_error=None),
    "t04": attempt("t04", max_error=0.02, wrong="7 of 9 elements are off by more than 0.005"),
}


def write(folder, user="ann", runs=RUNS, settings=SETTINGS):
    """A journal as `hw4 judge` leaves it."""
    folder.mkdir(parents=True)
    lines = [journal.header_line(user=user, cases=sorted(runs), settings=settings, started=f"{folder.name}'s day")]
    lines += [journal.run_line("key", one) for one in runs.values()]
    (folder / journal.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def single(tmp_path):
    return write(tmp_path / "out")


def rescored(folder, *args, status=0):
    result = run_here("judge", "--rescore", folder, "--json", *args)
    assert result.returncode == status, result.stderr
    return json.loads(result.stdout)


def verdicts(document, user=0):
    return {one["case"]: one["verdict"] for one in document["standings"][user]["results"]}


def test_what_was_judged_by_another_suite_is_decided_again_by_it(tmp_path):
    """As hw4-amd-judge --rescore does, which names its suite."""
    suite_file = tmp_path / "mine.toml"
    suite_file.write_text(f'[cases]\nmine = {{ shape = [1, 8, 4], seed = 1, limit = 2, sha256 = "{"0" * 64}" }}\n')
    mine = Attempt("mine", (1, 8, 4), 2.0, wall=2.5, exit_code=0, max_error=1e-5)
    folder = write(tmp_path / "out", runs={"mine": mine})
    assert verdicts(rescored(folder, "--suite", suite_file)) == {"mine": "TLE"}
    assert verdicts(rescored(folder, "--suite", suite_file, "--limit", "mine=3")) == {"mine": "AC"}


def test_without_other_rules_rescore_reproduces_the_results(single):
    before = (single / journal.NAME).read_bytes()
    document = rescored(single)
    assert verdicts(document) == {"t01": "AC", "t02": "TLE", "t03": "TLE+", "t04": "NA"}
    assert document == json.loads((single / "results.json").read_text())
    assert (single / journal.NAME).read_bytes() == before
    assert sorted(path.name for path in single.iterdir()) == [
        "journal.jsonl", "results.csv", "results.json", "results.md", "results.xml",
    ]  # fmt: skip


def test_other_limits_tolerance_and_penalty_change_the_results(single):
    document = rescored(single, "--limit", "t01-t02=3", "--tolerance", "0.1", "--penalty", "7")
    assert verdicts(document) == {"t01": "AC", "t02": "AC", "t03": "TLE+", "t04": "AC"}
    [one] = document["standings"]
    assert (one["time"], one["penalty"]) == (3.5, 7)
    assert document["rules"] == {
        "tolerance": 0.1, "penalty": 7, "limits": {"t01": 3, "t02": 3}, "rank_by": "time", "due": None,
        "late_policy": None,
        "step": None,
    }  # fmt: skip
    assert verdicts(rescored(single, "--limit", "t01=0.4"))["t01"] == "TLE"
    assert verdicts(rescored(single, "--limit", "t01=2", "--tolerance", "1e-6"))["t01"] == "NA"


def test_rescore_keeps_the_rules_of_the_judging_unless_options_change_them(tmp_path):
    folder = write(tmp_path / "out", settings={"tolerance": 0.1, "penalty": 5.0, "rank_by": "passed"})
    document = rescored(folder)
    assert verdicts(document)["t04"] == "AC"
    assert (document["standings"][0]["penalty"], document["rules"]["rank_by"]) == (10, "passed")
    assert rescored(folder, "--rank-by", "time")["rules"]["rank_by"] == "time"


LONGER = ("--limit", "t02=3")


def scored(folder, *args):
    """The document of the board, which stores nothing."""
    result = run_here("scoreboard", folder, "--json", *args)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_rules_of_a_rescoring_are_those_of_the_board_and_of_the_next_rescoring(tmp_path):
    folder = tmp_path / "class"
    write(folder / "ann", "ann")
    write(folder / "bob", "bob", {**RUNS, "t02": attempt("t02", wall=2.8)})
    assert [one["passed"] for one in scored(folder)["standings"]] == [1, 1]
    assert rescored(folder, *LONGER) == scored(folder)
    assert [one["passed"] for one in scored(folder)["standings"]] == [2, 2]
    document = rescored(folder, "--penalty", "30")
    assert (document["rules"]["limits"], document["rules"]["penalty"]) == ({"t02": 3}, 30)
    assert document == rescored(folder) == scored(folder) == json.loads((folder / "results.json").read_text())
    assert "2 of 4 cases AC" in (folder / "ann" / "handout.md").read_text()
    assert rescored(folder, "--limit", "t01=0.4")["rules"]["limits"] == {"t01": 0.4, "t02": 3}


def test_a_board_by_other_rules_stores_nothing(single):
    rescored(single, *LONGER)
    stored = (single / storedrules.NAME).read_bytes()
    document = scored(single, "--penalty", "7", "--limit", "t01=0.4")
    assert (document["rules"]["penalty"], document["rules"]["limits"]) == (7, {"t01": 0.4, "t02": 3})
    assert (single / storedrules.NAME).read_bytes() == stored
    assert scored(single)["rules"]["limits"] == {"t02": 3}
    fails(run_here("scoreboard", single, "-o", single / storedrules.NAME), 2, "is the input file itself")


def test_rules_of_results_that_are_written_elsewhere_are_not_stored(single, tmp_path):
    rescored(single, *LONGER, "--output", tmp_path / "else")
    assert scored(single)["rules"]["limits"] == {}
    rescored(single, *LONGER, "--output", single)
    assert scored(single)["rules"]["limits"] == {"t02": 3}


def test_a_class_that_was_judged_by_several_rules_is_ranked_by_one_set(tmp_path):
    """Without stored ones, as in folders of older versions, by those of the first journal."""
    folder = tmp_path / "class"
    write(folder / "ann", "ann", settings={**SETTINGS, "penalty": 5.0})
    write(folder / "bob", "bob", settings={**SETTINGS, "penalty": 9.0, "tolerance": 0.1})
    document = scored(folder)
    assert (document["rules"]["penalty"], [one["penalty"] for one in document["standings"]]) == (5, [15, 15])
    storedrules.write(folder, Rules(penalty=2.0, tolerance=0.1))
    assert [one["penalty"] for one in scored(folder)["standings"]] == [4, 4]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: "[]",
        lambda text: text[:40],
        lambda text: text.replace("60.0", '"much"'),
        lambda text: text.replace("60.0", "-1"),
        lambda text: text.replace("3.0", "0"),
        lambda text: text.replace('"time"', '"luck"'),
        lambda text: text.replace('"time"', '["time"]'),
        lambda text: text.replace("null", '"tomorrow"'),
        lambda text: text.replace("hw4-rules", "hw4-results"),
    ],
)
def test_damaged_rules_are_reported_in_a_sentence_and_nothing_is_written(single, change):
    rescored(single, *LONGER)
    path, before = single / storedrules.NAME, (single / "results.json").read_bytes()
    changed = change(path.read_text())
    assert changed != path.read_text()
    path.write_text(changed)
    for command in (("scoreboard", single), ("judge", "--rescore", single, "--penalty", "1")):
        fails(run_here(*command), 2, f"{path} is damaged: restore it, or remove it")
    assert (path.read_text(), (single / "results.json").read_bytes()) == (changed, before)


def test_rules_of_a_newer_version_are_not_guessed(single):
    rescored(single, *LONGER)
    path = single / storedrules.NAME
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    fails(run_here("scoreboard", single), 2, "schema 2, but this hw4 reads schema 1")


@slow
def test_rescorings_at_once_lose_no_rule(single):
    wanted = [("--limit", f"{case}=3") for case in RUNS] + [("--penalty", "7"), ("--rank-by", "passed")]
    started = [start_hw4("judge", "--rescore", single, *options) for options in wanted]
    assert [process.communicate() and process.returncode for process in started] == [0] * len(wanted)
    assert scored(single)["rules"] == {
        "tolerance": 5e-3, "penalty": 7, "limits": dict.fromkeys(RUNS, 3), "rank_by": "passed", "due": None,
        "late_policy": None,
        "step": None,
    }  # fmt: skip
    assert scored(single) == json.loads((single / "results.json").read_text())


def test_rescore_lists_changed_verdicts_and_unknown_ones(single):
    result = run_here("judge", "--rescore", single, "--limit", "t02-t03=20")
    assert result.returncode == 0
    assert "2 of 4 cases AC, score at most 54 of 60: 4 of the suite's 30 cases judged" in result.stdout
    assert "1 verdict changed\n  ann t02: TLE → AC" in result.stdout
    assert "only a new run can tell if it ends within 20 s" in result.stdout
    assert "ann t03" in result.stderr
    assert "until run again" in result.stderr
    assert "no verdict changed" in run_here("judge", "--rescore", single).stdout


def test_rescore_of_a_class_writes_its_ranking_and_all_handouts(tmp_path):
    folder = tmp_path / "class"
    write(folder / "ann", "ann")
    write(folder / "bob", "bob", {name: replace(run, wall=1.0, killed=False) for name, run in RUNS.items()})
    result = run_here("judge", "--rescore", folder)
    assert result.returncode == 0
    rows = [line.split()[:3] for line in result.stdout.splitlines()[1:3]]
    assert rows == [["1", "bob", "3/4"], ["2", "ann", "1/4"]]
    assert (folder / "results.csv").exists()
    handouts = ["handout.html", "handout.md", "journal.jsonl"]
    assert sorted(path.name for path in (folder / "ann").iterdir()) == handouts
    assert "bob t02: AC → TLE" in run_here("judge", "--rescore", folder, "--limit", "t02=0.7").stdout


def test_two_folders_of_one_user_are_both_listed(tmp_path):
    write(tmp_path / "first", "ann")
    write(tmp_path / "second", "ann", {"t01": attempt("t01", wall=1.5), "t05": attempt("t05")})
    result = run_here("judge", "--rescore", tmp_path, "--limit", "t01,t05=0.4")
    assert result.returncode == 0, result.stderr
    assert "3 verdicts changed" in result.stdout


def test_a_damaged_header_is_ignored(tmp_path):
    write(tmp_path / "out", settings={"tolerance": "much", "penalty": None, "rank_by": ["luck"]})
    assert rescored(tmp_path / "out", status=3)["rules"] == {
        "tolerance": 5e-3,
        "penalty": 60,
        "limits": {},
        "rank_by": "time",
        "due": None,
        "late_policy": None,
        "step": None,
    }


def test_output_writes_the_results_into_another_folder(single, tmp_path):
    rescored(single, "--output", tmp_path / "else" / "where")
    assert [path.name for path in single.iterdir()] == ["journal.jsonl"]
    assert (tmp_path / "else" / "where" / "results.json").exists()


def test_a_last_line_cut_short_by_a_crash_loses_only_its_run(single):
    with (single / journal.NAME).open("r+") as file:
        file.truncate(len(file.read()) - 40)
    document = rescored(single, status=3)
    assert list(verdicts(document)) == ["t01", "t02", "t03"]
    [one] = document["standings"]
    assert (one["missing"], one["damaged_lines"], one["score"], one["penalty"]) == (["t04"], [5], None, 120)


def test_a_folder_without_a_journal_is_refused(tmp_path, single):
    fails(run_here("judge", "--rescore", tmp_path / "none"), 2, "none")
    (tmp_path / "empty").mkdir()
    fails(run_here("judge", "--rescore", tmp_path / "empty"), 2, "journal.jsonl")
    fails(run_here("judge", "--rescore", single / journal.NAME), 2, "journal.jsonl")
    (tmp_path / "file").write_text("mine")
    fails(run_here("judge", "--rescore", single, "--output", tmp_path / "file"), 2, "file")
    fails(run_here("judge", "--rescore", single, "--limit", "t01"), 2, "--limit")
    assert (tmp_path / "file").read_text() == "mine"


def test_control_characters_in_names_are_not_printed(tmp_path):
    for user in ("\x1b]0;mine\x07", "bob"):
        write(tmp_path / "class" / user.strip("\x1b\x07"), user)
    result = run_here("judge", "--rescore", tmp_path / "class", "--limit", "t02-t03=20")
    assert "\x1b" not in result.stdout + result.stderr
    assert "?]0;mine?" in result.stdout


def processor_time_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@slow
def test_a_class_of_200_with_30_cases_each_is_rescored_in_seconds(tmp_path):
    """Less than 2 s of processor time on an idle machine, start included; a busy one slows processors, too."""
    runs = {name: attempt(name) for name in suite.cases()}
    for number in range(200):
        write(tmp_path / f"user{number:03}", f"user{number:03}", runs)
    seconds = []
    for _ in range(3):
        start = processor_time_of_children()
        assert run_hw4("judge", "--rescore", tmp_path, "--limit", "t01-t10=0.4").returncode == 0
        seconds.append(processor_time_of_children() - start)
    assert min(seconds) < 5
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 6001


def test_times_in_steps_are_ties_within_a_step_and_limits_hold_for_what_was_measured(tmp_path):
    """As the course's board, whose clock polls every 0.05 s, shows 0.21, 0.26, 0.31 and nothing between."""
    walls = {"ann": (0.512, 1.999), "ben": (0.549, 1.97), "eve": (0.551, 1.97)}
    for user, (first, second) in walls.items():
        runs = {"t01": attempt("t01", wall=first), "t02": attempt("t02", wall=second)}
        write(tmp_path / "class" / user, user, runs)
    board = rescored(tmp_path / "class", "--step", "0.05")["standings"]
    assert [(one["user"], round(one["time"], 6), one["rank"]) for one in board] == [
        ("ann", 2.55, 1), ("ben", 2.55, 1), ("eve", 2.6, 3),
    ]  # fmt: skip
    assert set(verdicts({"standings": board}).values()) == {"AC"}
    shown = run_here("scoreboard", tmp_path / "class", "-o", tmp_path / "board.html", "-o", tmp_path / "board.md")
    assert "times in steps of 0.05 s" in shown.stdout, "what was stored is read again"
    for page in ("board.html", "board.md"):
        assert "Times count in steps of 0.05 s" in (tmp_path / page).read_text()
    exact = rescored(tmp_path / "class", "--step", "0")["standings"]
    assert [one["rank"] for one in exact] == [1, 2, 3]
    fails(run_here("judge", "--rescore", tmp_path / "class", "--step", "soon"), 2, "--step")
