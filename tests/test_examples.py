"""Every `hw4 …` that the pages and the program's own sentences show is parsed by the commands themselves."""

import os
import re
import shlex

import click
import pytest
from helpers import ROOT, commands

from hw4cli.errors import Hw4Error
from hw4cli.problem import suite

PAGES = ["README.md", "CHANGELOG.md", "testcases/README.md", "benchmarks/README.md", "docs/attention.ipynb"]
FILES = [*(ROOT / name for name in PAGES), *sorted((ROOT / "docs").rglob("*.md")), *(ROOT / "hw4cli").rglob("*.py")]
FILES += [*(ROOT / "benchmarks").glob("*.sh"), ROOT / "testcases/workloads.toml", ROOT / "Makefile"]
# What stands for a word of its kind.
STANDS_FOR = {
    **dict.fromkeys(("KERNELS", "KERNEL"), "flash"),
    **dict.fromkeys(("CASES", "CASE"), "t01"),
    **dict.fromkeys(("WORKLOADS", "WORKLOAD"), "lm8k"),
    **dict.fromkeys(("KIND",), "rate"),
    "RECORDS...": "record.json",
    "ARGUMENTS": "flash",
    "bash|zsh|fish": "bash",
    "B,N,d": "4,200,64",
}
DOTS = ("…", "...", "[…]")
COMMANDS = commands()


def examples(text):
    """(words, whether it is a whole command line) of each `hw4 …` in a page or a source file."""
    for line in re.findall(r"^\s*\$ (?:\.venv/bin/)?hw4 (.+)$", text, re.MULTILINE):
        yield line.partition("   #")[0], True
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL) if "```" in text else text
    for quoted in re.findall(r"`hw4 ([^`]+)`", prose):
        joined = re.sub(r"(?<=\S)\"\s*\n\s*f?\"", "", quoted)  # a sentence over two lines of Python
        yield " ".join(joined.replace('\\n",\n    "', " ").split()).replace('\\"', '"'), False


def words_of(line):
    """The words of one command line up to what a shell does with its output, or None for a text that is none."""
    line = re.split(r" (?:\||>|&&|\\\|) ", line)[0]
    if "{" in line or "}" in line:
        return None  # the value is known when the sentence is made
    words = [STANDS_FOR.get(word, word) for word in shlex.split(line)]
    return [word for word in words if word not in DOTS]


def parse(words):
    """Parse a command line as the program does. Raises UsageError and InputError as it does."""
    os.environ.pop(suite.SUITE, None)  # which --suite sets
    suite.cases.cache_clear()
    name, *others = words
    command, others = (COMMANDS[name], others) if name in COMMANDS else (COMMANDS["run"], words)
    command.make_context(name, [*others])


@pytest.fixture(autouse=True)
def no_other_suite(monkeypatch):
    monkeypatch.delenv(suite.SUITE, raising=False)
    yield
    os.environ.pop(suite.SUITE, None)
    suite.cases.cache_clear()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_example_is_right(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    for line, whole in examples(path.read_text()):
        words = words_of(line)
        if (
            not words
            or line.startswith("bench [KERNEL |")
            or {"--help", "--help-all", "--version", "COMMAND"} & {*words[:2]}
        ):
            continue
        try:
            parse(words)
        except click.MissingParameter as error:
            if whole:
                raise AssertionError(f"{path.name}: hw4 {line}: {error}") from None
        except click.BadOptionUsage as error:  # a mention of an option, without its value
            if whole or error.option_name != words[-1]:
                raise AssertionError(f"{path.name}: hw4 {line}: {error}") from None
        except (click.UsageError, Hw4Error) as error:
            raise AssertionError(f"{path.name}: hw4 {line}: {error}") from None


def test_an_example_that_is_wrong_is_found():
    found = [*examples("`hw4 bench --cases t01` and\n```\n$ hw4 judge t01   # all\n```\n`hw4 IN\nOUT`")]
    assert found == [("judge t01", True), ("bench --cases t01", False), ("IN OUT", False)]
    with pytest.raises(click.NoSuchOption):
        parse(words_of("bench --cases t01"))
    with pytest.raises(click.UsageError, match="'flsh'"):
        parse(words_of("bench flsh t01"))
    parse(words_of("IN OUT --kernel flash"))
