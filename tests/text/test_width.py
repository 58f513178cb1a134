"""Narrow terminals: whatever is shown keeps every digit and, where words allow, every line's width."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from boards import ATTACK, RIGHT, write, write_class
from helpers import fits, on_a_terminal, random_block, run_hw4, write_case
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import quick_of_each

from hw4cli.cli.terminal import ladder
from hw4cli.plans.ladder import VARIANTS
from hw4cli.stream.timeline import Timeline
from hw4cli.text import tables
from hw4cli.text.tables import Bars
from hw4cli.text.words import wrapped

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
WIDTHS = [60, 80]


def is_whole(shown, plain):
    """Whether every word of a text, and so every number, is shown: in another order of lines, perhaps."""
    return sorted(shown.split()) == sorted(plain.split())


@quick_of_each(2)
@pytest.mark.parametrize("width", [*WIDTHS, 200])
def test_the_ladder_fits(hw4, width):
    code, shown = on_a_terminal(width, "explain", "1,4096,32", env=NO_GPU)
    plain = hw4("explain", "1,4096,32", env=NO_GPU)
    assert code == 0
    assert fits(shown, width), shown
    lost, added = Counter(shown.split()), Counter((plain.stdout + plain.stderr).split())
    lost, added = added - lost, lost - added
    narrow = {"shared", "runs", "on", "idea"} if width < 200 else set()
    assert set(lost) <= {"registers", "occupancy", "-", *narrow}, "columns that are empty without a GPU"
    if width == 200:
        assert set("".join(added)) <= set("of227KB▏▎▍▌▋▊▉█#"), "bars"


def test_a_file_is_written_as_wide_whatever_the_terminal(hw4, tmp_path):
    words = "explain", "flash", "t28", "--gpu", "H100", "-o"
    code, _ = on_a_terminal(60, *words, tmp_path / "narrow.md", env=NO_GPU)
    assert code == 0 and hw4(*words, tmp_path / "wide.md", env=NO_GPU).returncode == 0
    assert (tmp_path / "narrow.md").read_text() == (tmp_path / "wide.md").read_text()


def test_on_80_columns_the_ladder_takes_a_line_a_kernel_and_the_ideas_come_below():
    _, shown = on_a_terminal(80, "explain", "1,4096,32", env=NO_GPU)
    figures, _, ideas = shown[shown.index("kernel ") :].partition("\n\n")
    lines = figures.splitlines()
    assert [line.split()[0] for line in lines] == ["kernel", *VARIANTS]
    assert lines[0].split() == ["kernel", "tiles", "threads", "KB", "of", "227", "KB", "measured", "proven", "cc"]
    assert {len(line.split()) for line in lines[1:]} == {7, 8}, "with a bar, where a block has shared memory"
    assert all(" ".join(ideas.split()).count(" ".join(variant.idea.split())) == 1 for variant in VARIANTS.values())


def test_with_a_gpus_figures_too_a_line_has_80_columns():
    row = {"kernel": max(VARIANTS, key=len), "tiles": "128x128", "threads": 1024, "shared KB": 227.5, "registers": 255}
    row |= {"occupancy": 0.125, "measured": "2.2e-05", "proven": "1.6e-03", "runs on": "8.0+", "idea": "x " * 50}
    figures, _, _ = ladder._table([row, row], 80, Bars("warps", [0.1, 0.1], True, 6)).partition("\n\n")
    assert len(figures.splitlines()) == 3


@pytest.mark.parametrize("width", WIDTHS)
def test_the_timeline_fits_and_keeps_its_seconds(tmp_path, width):
    source = write_case(tmp_path / "in", random_block(3, 130, 32))
    code, shown = on_a_terminal(width, "--device", "cpu", "--timing", source, tmp_path / "out")
    assert code == 0
    assert fits(shown, width), shown
    stages = re.findall(r"^(start|read|copy in|kernel|copy out|write|total) +\d+\.\d{3} s", shown, re.MULTILINE)
    assert len(stages) == 7, shown
    assert len({len(line) for line in shown.splitlines() if line.endswith("|")}) == 1


def test_the_timeline_goes_where_there_is_no_room_for_it():
    timeline = Timeline()
    timeline.add("read", timeline.origin, timeline.origin + 1)
    assert "|" not in timeline.table(30)
    assert all(len(line) == 40 for line in timeline.table(40).splitlines()[:-1])


@quick_of_each(2)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", [["scoreboard"], ["judge", "--limit", "t02-t05=99", "--rescore"]])
def test_a_ranking_fits(tmp_path, command, width):
    folder = write_class(tmp_path / "hw4")
    plain = run_hw4(*command, folder)
    code, shown = on_a_terminal(width, *command, folder)
    assert code == plain.returncode == 3, "one of the journals is damaged"
    assert fits(shown, width), shown
    numbers = [number for row in plain.stdout.splitlines()[:7] for number in re.findall(r"\s(\d+\.\d\d|\d+)\s", row)]
    assert numbers
    assert not set(numbers) - set(shown.split())
    assert shown.count("." * 30) == plain.stdout.count("." * 30)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_judged_programs_table_fits(tmp_path, width):
    write(tmp_path / "one", RIGHT, user=ATTACK, cases=["t01", "t02"])
    code, shown = on_a_terminal(
        width, "judge", "--rescore", tmp_path / "one", "--limit", "t01=0.25", "--tolerance", "1e-6"
    )
    assert code == 0
    assert fits(shown, width), shown
    assert "an element is off by 1e-05" in " ".join(shown.split())
    assert "0 of 2 cases AC, score at most 54 of 60: 2 of the suite's 30 cases judged" in " ".join(shown.split())


@pytest.mark.parametrize("width", WIDTHS)
def test_the_times_of_repeated_runs_fit(tmp_path, width):
    runs = [replace(RIGHT, wall=wall, repeat=repeat) for repeat, wall in enumerate((0.51, 0.62, 0.73))]
    write(tmp_path / "one", *runs, cases=["t01"])
    code, shown = on_a_terminal(width, "judge", "--rescore", tmp_path / "one")
    assert code == 0
    assert fits(shown, width), shown
    assert "0.62" in shown
    assert "[0.51 0.73]" in shown


@pytest.mark.parametrize("width", WIDTHS)
def test_an_error_breaks_between_words_and_keeps_a_command_whole(tmp_path, width):
    code, shown = on_a_terminal(width, "judge", "t01,t03,t05,t07,t09", "--dir", tmp_path)
    assert code == 3
    assert f"`hw4 gen t01 t03 t05 t07 t09 --dir {tmp_path}`" in shown
    assert shown.startswith("hw4: ")


COLUMNS = st.lists(st.sampled_from(["number", "text"]), min_size=1, max_size=14)


@given(st.data(), COLUMNS, st.integers(30, 120))
@settings(max_examples=100)
def test_a_table_of_any_columns_keeps_each_number_on_its_line(data, kinds, width):
    number = st.floats(0, 1e6).map("{:.2f}".format)
    text = st.lists(st.sampled_from(["a", "word", "(2,", "of", "splendour"]), max_size=30).map(" ".join)
    row = st.tuples(*(number if kind == "number" else text for kind in kinds))
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    header = [f"column{place}" for place in range(len(kinds))]
    table = tables.plain(header, rows, width)
    assert fits(table, width)
    assert is_whole(table, " ".join([*header, *(cell for row in rows for cell in row)]))


@given(st.text("ab `", max_size=200), st.integers(10, 40))
def test_wrapping_loses_no_letter(text, width):
    assert "".join(wrapped(text, width, "  ").split()) == "".join(text.split())
    assert " ".join(wrapped(text, None).split()) == " ".join(text.split())
