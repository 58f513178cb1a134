"""A class for the tests, in the folders of the fixtures `desk` and `folder`: submissions, and what they come to."""

from helpers import OPEN, run_hw4

from hw4cli.scoring import standings
from hw4cli.scoring.record import Rules


def knowing(folder, log):
    """The text of a program that knows the answer, and tells of each run."""
    return f'#!/bin/sh\necho run >> {log}\ncp {folder}/t01.out "$2"\n'


def submit(desk, user, **files):
    """A submission of these files; `hw4` and `solution` are programs."""
    place = desk / "submissions" / user
    place.mkdir()
    for name, text in files.items():
        path = place / name.replace("_cu", ".cu")
        path.write_text(text)
        path.chmod(0o755 if name in ("hw4", "solution") else 0o644)
    return place


def class_words(folder):
    """The words behind hw4 that judge the class."""
    return ["judge", "t01", "--class", "submissions", "--output", "out", "--dir", str(folder), *OPEN]


def judge_class(folder, *options, **kwargs):
    return run_hw4(*class_words(folder), *options, **kwargs)


def board(desk):
    """Everyone's standing, by user."""
    return {one.user: one for one in standings.load(desk / "out", Rules())}
