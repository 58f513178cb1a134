"""A class in the folders of the fixtures `workdir` and `folder`: its submissions, its judging and its board."""

from helpers import OPEN, run_here

from hw4cli.judge.scoring import standings
from hw4cli.judge.scoring.record import Rules


def correct(folder, log):
    """The text of a program that copies the answer, and logs each run."""
    return f'#!/bin/sh\necho run >> {log}\ncp {folder}/t01.out "$2"\n'


def submit(workdir, user, **files):
    """A submission of these files; `hw4` and `solution` are programs."""
    submission = workdir / "submissions" / user
    submission.mkdir()
    for name, text in files.items():
        path = submission / name.replace("_cu", ".cu")
        path.write_text(text)
        path.chmod(0o755 if name in ("hw4", "solution") else 0o644)
    return submission


def class_args(folder):
    """The arguments of hw4 that judge the class; no program is too slow for a machine that is busy."""
    limit = ("--limit", "t01=120")
    return ["judge", "t01", *limit, "--class", "submissions", "--output", "out", "--dir", str(folder), *OPEN]


def judge_class(folder, *options, **kwargs):
    return run_here(*class_args(folder), *options, **kwargs)


def board(workdir):
    """The standings, by user."""
    return {one.user: one for one in standings.load(workdir / "out", Rules())}
