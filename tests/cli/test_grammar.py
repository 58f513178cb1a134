"""One grammar of all commands (docs/commands.md): held over click's tree of commands and options."""

import re
from collections import defaultdict

import click
import pytest
from helpers import commands, fails

from hw4cli.cli.terminal.grammar import CASES, KERNELS, SHAPES, WORKLOADS, What, Words, what_argument
from hw4cli.commands import INSTEAD
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.registry import ARRAY_KERNELS

COMMANDS = commands()
# What is a plain argument, distinguished by its form, is no option; and there is one name for each thing.
NEVER = {
    *("--case", "--cases", "--shape", "--workload", "--kernels", "--file", "--input", "--record", "--records"),
    *("--html", "--pdf", "--csv", "--format", "--log", "--out", "--arch", "--roofs", "--runs"),
}
FILES_ALONE = {"run"}  # whose plain arguments are files, which may have a kernel's name: so its kernel is an option


def options():
    """(command, option) of all that are shown."""
    for name, command in COMMANDS.items():
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden and param.opts[-1] != "--help-all":
                yield name, param


def test_a_case_a_kernel_a_shape_and_a_workload_are_plain_arguments_everywhere():
    assert [(name, param.opts) for name, param in options() if NEVER & {*param.opts}] == []
    assert {name for name, param in options() if "--kernel" in param.opts} == FILES_ALONE


def test_the_same_option_has_the_same_sentence_default_and_type_everywhere():
    found = defaultdict(dict)
    for name, param in options():
        sentence = re.sub(r", in the format of its ending: .*", "", param.help).rstrip(".")
        kind = type(param.type).__name__ if param.opts[-1] != "--output" else "path"
        if param.opts[-1] in ("--device", "--gpu"):  # where a command computes only here, or checks several
            kind = "word"
        found[param.opts[-1]].setdefault((sentence, str(param.default), kind), []).append(name)
    assert {option: uses for option, uses in found.items() if len(uses) > 1} == {}


def test_what_is_written_is_named_by_o_and_output_alone():
    writes = {name for name, param in options() if param.opts == ["-o", "--output"]}
    assert writes >= {"gen", "judge", "scoreboard", "bench", "check", "explain", "profile", "tune", "plot", "report"}
    assert [param.opts for _, param in options() if len(param.opts) > 1 and param.opts != ["-o", "--output"]] == []


def test_what_prints_a_table_prints_json_too():
    silent = {"run", "gen", "kit", "new-kernel", "export", "plot", "report", "completion"}
    assert {name for name, param in options() if "--json" in param.opts} == {*COMMANDS} - silent


@pytest.fixture
def parsed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @click.command()
    @what_argument(KERNELS, CASES, SHAPES, WORKLOADS, kernels=[*VARIANTS, *ARRAY_KERNELS, "all"])
    def command(what):
        """Nothing."""

    return lambda *words: command.make_context("command", list(words)).params["what"]


def test_plain_arguments_are_told_apart_by_their_form_in_any_order(parsed):
    sizes = "B=2 H=16 N=8192 d=128 dtype=bf16 causal"
    found = parsed("t28", "4,200,64", "flash", sizes, "./mine.cu", "t01-t03,t05", "tilelang", "1,8,4", "half")
    assert found.kernels == ("flash", "./mine.cu", "half")
    assert found.cases == "t28,t01-t03,t05"
    assert [shape.sizes for shape in found.shapes] == [(4, 200, 64), (1, 8, 4)]
    assert found.workloads == (sizes, "tilelang")
    assert parsed() == What()


@pytest.mark.parametrize("word", [*VARIANTS, *ARRAY_KERNELS, "all", "a/b.cu", "t1.cu"])
def test_every_kernel_is_taken_for_one(parsed, word):
    assert parsed(word).kernels == (word,)


@pytest.mark.parametrize("word", ["t01", "t30", "t01-t10", "t01,t05-t07", "T5", "99", "t99", "t01-"])
def test_what_looks_like_a_case_is_the_suites_to_find_right_or_wrong(parsed, word):
    assert parsed(word).cases == word


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["bench", "flsh", "t01"], "'flsh' is no KERNEL, CASE, B,N,d or WORKLOAD. Did you mean 'flash'?"),
        (["bench", "half", "tilelan"], "Did you mean 'tilelang'?"),
        (["explain", "flash", "4,200"], "'4,200' is not three integers B,N,d"),
        (["explain", "flash", "t01", "t02"], "one case or shape is needed, and these are 2"),
        (["explain", "flash"], "name a case, as in t28, or a shape"),
        (["explain", "half", "t28"], "half computes arrays: name a workload"),
        (["explain", "flash", "tilelang"], "flash computes files: name a case or a shape"),
        (["explain", "half", "tilelang", "--causal"], "--causal does not go with a workload"),
        (["bench", "half", "tilelang", "t01"], "a case does not go with a workload"),
        (["bench", "roofs", "flash"], "flash does not go with roofs"),
        (["bench", "flash", "roofs"], "flash does not go with roofs"),
        (["bench", "flash", "t01", "-o", "times"], "times does not say in which format: let it end in .json, .csv or"),
        (["tune", "backward", "lm8k"], "backward"),
        (["selftest", "flash", "naive"], "one kernel is tested at a time"),
        (["judge", "flash"], "there is no case 'flash'"),
        (["gen", "lm8k"], "there is no case 'lm8k'"),
        (["check", "lm8k"], "'lm8k' is no KERNEL, PROGRAM.cu, CASE or B,N,d"),
        (["judge", "--rescore", "results", "--program", "./mine"], "--program does not go with --rescore"),
    ],
)
def test_a_word_of_another_kind_is_one_sentence(hw4_here, args, words):
    fails(hw4_here(*args), 2, words)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["rescore", "results"], "there is no command and no file 'rescore': it is `hw4 judge --rescore DIR`"),
        (["kernels"], "it is `hw4 explain`"),
        (["bench", "--cases", "t28"], "it is a plain argument, as in t28"),
        (["scoreboard", "results", "--html", "a"], "there is no option --html: it is -o FILE.html"),
        (["judge", "--programm", "x"], "Did you mean '--program'"),
    ],
)
def test_a_name_that_went_is_answered_with_the_new_one(hw4_here, args, words):
    fails(hw4_here(*args), 2, words)


def test_no_name_of_the_present_is_among_those_that_went():
    present = {*COMMANDS} | {opt for _, param in options() for opt in param.opts}
    assert not present & {*INSTEAD}


def test_a_word_that_is_no_kernel_but_a_files_first_part_is_shown_the_file(hw4_here, tmp_path):
    (tmp_path / "mine.cu").touch()
    fails(hw4_here("check", "mine"), 2, "Did you mean 'mine.cu'?")


def test_a_case_of_another_suite_is_a_case(monkeypatch, tmp_path):
    suite = tmp_path / "suite.toml"
    suite.write_text("[cases]\nsmall = {}\n")
    monkeypatch.setenv("HW4_SUITE", str(suite))
    kind = Words([KERNELS, CASES], list(VARIANTS))
    assert kind.convert("small", None, None) == (CASES, "small")
