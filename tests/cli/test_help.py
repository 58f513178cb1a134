"""Help: every command's fits a narrow terminal, and long lists of options stand in groups."""

import re

import click
import pytest
from helpers import commands, fits

from hw4cli.cli import cli


def help_of(name, command, width):
    return command.get_help(click.Context(command, info_name=name, terminal_width=width))


@pytest.mark.parametrize("width", [60, 80])
def test_help_fits(width):
    for name, command in [("hw4", cli), *commands().items()]:
        assert fits(help_of(name, command, width), width), help_of(name, command, width)


@pytest.mark.parametrize("name", ["judge", "bench"])
def test_each_of_many_options_stands_in_one_group(name):
    command = commands()[name]
    groups = re.split(r"^([A-Z][\w ]+):$", help_of(name, command, 80), flags=re.MULTILINE)
    shown = {
        title: re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)
        for title, text in zip(groups[1::2], groups[2::2], strict=True)
    }
    assert len(shown) >= 5
    assert shown.pop("Other options") == ["--help"]
    assert all(2 <= len(options) <= 6 for options in shown.values())
    options = [param.opts[0] for param in command.params if isinstance(param, click.Option) and not param.hidden]
    assert sorted(option for group in shown.values() for option in group) == sorted(options)
