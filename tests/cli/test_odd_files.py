"""A pipe, a device, a huge or a deeply nested file, no name or a folder where a command takes a file: one sentence."""

import os

import click
import pytest
from boards import RIGHT, write
from helpers import ROOT, fails, random_block, run_here, write_case
from leaderboards import entry
from slow import slow
from student import student

from hw4cli.cli import cli
from hw4cli.commands import COMMANDS
from hw4cli.show.leaderboard.entries import append

RECORD = ROOT / "benchmarks" / "h100-flash.json"


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return write_case(tmp_path_factory.mktemp("case") / "in", random_block(1, 8, 4))


def leaderboard(folder):
    folder.mkdir()
    append(folder, entry())
    return folder / "leaderboard.jsonl"


def journal(folder):
    write(folder / "ann", RIGHT, user="ann")
    return folder / "ann" / "journal.jsonl"


def pseudonyms(folder):
    journal(folder)
    return folder / "pseudonyms.json"


def report(folder):
    student(folder)
    return folder / "report.md"


def file(name):
    return lambda folder: folder / name


# How the file comes to be where the command reads it, and the command: {} is the file, {folder} its folder.
PLACES = {
    "a record for a page": (file("record.json"), "plot {} -o {folder}/page.html"),
    "a record for a picture": (file("record.json"), "plot rate {} -o {folder}/picture.svg"),
    "a profile for a picture": (file("counters.csv"), "plot traffic {} 1,32768,32 -o {folder}/picture.svg"),
    "an older record": (file("record.json"), "bench flash t01 --compare {}"),
    "a kernel to check": (file("mine.cu"), "check {} --gpu 8.0"),
    "a report": (report, "report {folder}"),
    "a leaderboard": (leaderboard, "leaderboard --board {folder}"),
    "pseudonyms": (pseudonyms, "scoreboard {folder} --anonymous"),
}


def fails_in_one_sentence(line, path, statuses=(2,)):
    result = run_here(*line.format(path, folder=path.parent).split())
    assert result.returncode in statuses, result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert path.name in result.stderr
    return result.stderr


@pytest.mark.parametrize("place", PLACES)
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, place):
    make, line = PLACES[place]
    path = make(tmp_path / "mine")
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert "it is not a regular file" in fails_in_one_sentence(line, path)


def test_an_endless_device_is_refused(tmp_path):
    path = tmp_path / "zero.json"
    path.symlink_to("/dev/zero")
    assert "it is not a regular file" in fails_in_one_sentence("plot {} -o {folder}/page.html", path)


def test_a_file_too_large_for_a_record_is_refused(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as huge:
        huge.truncate(10 << 30)
    assert "it is larger than 256 MB" in fails_in_one_sentence("plot {} -o {folder}/page.html", path)


@pytest.mark.parametrize("place", ["a record for a page", "a record for a picture", "an older record"])
def test_a_record_that_is_nested_too_deeply_is_refused(tmp_path, place):
    path = tmp_path / "record.json"
    path.write_text("[" * 100_000)
    assert "is not a record of hw4" in fails_in_one_sentence(PLACES[place][1], path)


def test_a_journal_that_is_a_pipe_loses_nobody_elses_results(tmp_path):
    path = journal(tmp_path)
    write(tmp_path / "ben", RIGHT, user="ben")
    path.unlink()
    os.mkfifo(path)
    result = run_here("scoreboard", tmp_path)
    assert result.returncode == 3
    assert "ben" in result.stdout
    assert "ann/journal.jsonl: it is not a regular file" in result.stdout


@slow
def test_odd_files_in_a_reports_folder_are_named_and_passed_over(tmp_path):
    folder = student(tmp_path / "mine")
    (folder / "deep.json").write_text("[" * 100_000)
    os.mkfifo(folder / "picture.svg")
    assert run_here("report", folder).returncode == 0
    path = folder / "report.md"
    path.write_text(path.read_text() + "\n![a pipe](picture.svg)\n")
    result = run_here("report", folder)
    assert result.returncode == 0
    assert "deep.json cannot be read as JSON" in result.stderr
    assert "There is no picture picture.svg" in (folder / "report.html").read_text()


def paths_of(command, *names):
    """Each file or folder among the parameters of a command and of its subcommands."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from paths_of(inner, *names, name)
    yield from ((*names, param.name, param) for param in command.params if isinstance(param.type, click.Path))


@pytest.mark.parametrize("name", COMMANDS)
def test_no_empty_name_is_taken_for_the_current_folder(name):
    """Path("") is ".": a script's variable that is not set would scatter files there."""
    for *_, param in paths_of(cli.get_command(None, name)):
        with pytest.raises(click.BadParameter, match="the name is empty"):
            param.type.convert("", param, None)


def test_an_empty_name_is_one_sentence(hw4_here, case, tmp_path):
    before = set(tmp_path.iterdir())
    fails(hw4_here("judge", "t01", "--output", ""), 2, "Invalid value for '-o' / '--output': the name is empty")
    fails(hw4_here(case, ""), 2, "Invalid value for 'OUTPUTFILE': the name is empty")
    assert set(tmp_path.iterdir()) == before


def test_a_file_is_not_written_where_a_folder_is_named(hw4_here, case, tmp_path):
    """Path("out/") is "out": a file of that name would lie where a folder was meant."""
    before = set(tmp_path.iterdir())
    fails(hw4_here(case, "out/"), 2, "Invalid value for 'OUTPUTFILE': out/ is not a file's name: it ends in /")
    fails(hw4_here("gen", "1,2,4", "-o", "out/"), 2, "Invalid value for '-o' / '--output': out/ is not a file")
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("answer", [".", "/", ".."])
def test_a_folder_is_no_answer(hw4_here, case, answer):
    fails(hw4_here("verify", case, answer), 2, f"{answer} is not a file")


@pytest.mark.parametrize("command", [("leaderboard", "--board"), ("report",)])
def test_a_file_is_no_folder(hw4_here, tmp_path, command):
    (tmp_path / "file").touch()
    fails(hw4_here(*command, "file"), 2, "file is not a folder")


@pytest.mark.parametrize("word", ["t01-", "-t03", "t01,t05-"])
def test_a_range_of_cases_without_an_end_is_named(hw4_here, word):
    fails(hw4_here("gen", "--", word), 2, "lacks its")
