"""Help: every command's fits one screen; what is seldom needed is shown by --help-all, in groups."""

import re

import click
import pytest
from helpers import commands, fails, fits

from hw4cli.cli import cli
from hw4cli.cli.terminal.sections import ALL, Sections

WIDTH, LINES = 80, 40


def help_of(name, command, everything=False):
    group = click.Context(cli, info_name="hw4", terminal_width=WIDTH)
    ctx = group if command is cli else click.Context(command, info_name=name, parent=group, terminal_width=WIDTH)
    ctx.meta[ALL] = everything
    return command.get_help(ctx)


@pytest.mark.parametrize("name", ["hw4", *commands()])
def test_help_fits_one_screen(name):
    shown = help_of(name, {"hw4": cli, **commands()}[name])
    assert fits(shown, WIDTH), shown
    assert shown.count("\n") < LINES, shown


@pytest.mark.parametrize("name", [name for name, command in commands().items() if isinstance(command, Sections)])
def test_help_all_shows_every_option_and_help_those_that_are_often_needed(name):
    command = commands()[name]
    usual, everything = (
        set(re.findall(r"^  (?:-\w, )?(--?[\w-]+)", help_of(name, command, every), re.MULTILINE))
        for every in (False, True)
    )
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    assert everything == {param.opts[-1] for param in options} | {"--help"}
    assert everything - usual == {param.opts[-1] for param in options if param.name in command.rare}
    assert command.rare and {*command.rare} <= {param.name for param in options}
    assert fits(help_of(name, command, True), WIDTH)
    number = len(everything - usual)
    assert f"\n{number} further option{'s' * (number > 1)}: hw4 {name} --help-all" in help_of(name, command)


@pytest.mark.parametrize("name", ["judge", "bench"])
def test_each_of_many_options_stands_in_one_group(name):
    command = commands()[name]
    groups = re.split(r"^([A-Z][\w ]+):$", help_of(name, command, True), flags=re.MULTILINE)
    shown = {
        title: re.findall(r"^  (?:-\w, )?(--?[\w-]+)", text, re.MULTILINE)
        for title, text in zip(groups[1::2], groups[2::2], strict=True)
    }
    assert len(shown) >= 5
    assert shown.pop("Other options") == ["--help-all", "--help"]
    assert all(2 <= len(options) <= 7 for options in shown.values())
    options = [param.opts[-1] for param in command.params if isinstance(param, click.Option) and not param.hidden]
    assert sorted(option for group in shown.values() for option in group) == sorted({*options} - {"--help-all"})


def test_the_first_page_shows_the_homework_before_the_laboratory(hw4):
    shown = hw4("--help").stdout
    places = [
        shown.index(f"\n  {name} ") for name in ("run", "judge", "scoreboard", "report", "doctor", "explain", "bench")
    ]
    assert places == sorted(places)
    assert shown.index("The homework:") < places[0] < shown.index("The laboratory:") < shown.index("\n  explain ")


def test_help_all_is_printed(hw4):
    result = hw4("judge", "--help-all")
    assert (result.returncode, result.stderr) == (0, "")
    assert "--secret-seeds" in result.stdout and "--secret-seeds" not in hw4("judge", "--help").stdout
    fails(hw4("info", "--help-all"), 2, "No such option")
