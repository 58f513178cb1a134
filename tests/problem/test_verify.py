"""`hw4 verify` and `hw4 info`: what they print, draw and give as JSON, and what they refuse."""

import json
import re

import numpy as np
import pytest
from helpers import ROOT, definition, fails, fits, on_a_terminal, random_block, run_here, run_hw4, write_case
from mistakes import MISTAKES
from slow import quick_of_each

from hw4cli.cli.terminal.errorview import draw
from hw4cli.judge.diagnosis.size import explain_size
from hw4cli.problem.errormap import NOT_FINITE, WRONG, ErrorMap
from hw4cli.problem.workload import Shape

BLOCK = random_block(3, 200, 32, seed=5)
ANSWER = definition(BLOCK).astype("<f4")


@pytest.fixture
def hw4(hw4_in_process):
    return hw4_in_process


@pytest.fixture
def case(tmp_path):
    """A folder with the input t91 and its answer."""
    write_case(tmp_path / "t91", BLOCK)
    (tmp_path / "t91.out").write_bytes(ANSWER.tobytes())
    return tmp_path


@pytest.fixture
def verify(case):
    """Runs hw4 verify on these bytes, or this array, as the output, at so many columns."""

    def run(output, *args, answer="t91.out", columns=80, start=run_here, **env):
        data = output if isinstance(output, bytes) else np.ascontiguousarray(output, "<f4").tobytes()
        (case / "mine").write_bytes(data)
        return start("verify", case / "mine", case / answer, *args, env={"COLUMNS": str(columns), **env})

    return run


def changed(place, value):
    output = ANSWER.copy()
    output[place] = value
    return output


def test_a_right_output_is_right_and_has_no_map(verify):
    result = verify(ANSWER)
    assert result.returncode == 0
    assert result.stdout.splitlines()[-1] == "right"
    assert "|" not in result.stdout


def test_a_wrong_output_is_told_with_places_a_map_and_the_mistake(verify):
    output = ANSWER.copy()
    output[1:] = MISTAKES["without the factor 1/sqrt(d)"](BLOCK)[1:]
    result = verify(output)
    lines = result.stdout.splitlines()
    assert result.returncode == 1
    assert lines[4] == "first wrong batch 1, row 0, column 0"
    assert f"      0 |{50 * '·'}|" in lines
    assert f"      1 |{50 * '█'}|" in lines
    assert lines[-2:] == [
        "errors in every batch but the first",
        "the wrong rows equal attention computed without the factor 1/sqrt(d)",
    ]


@quick_of_each(1)
@pytest.mark.parametrize(("columns", "rows"), [(60, 4), (80, 4), (200, 2)])
def test_the_map_is_as_wide_as_the_terminal_lets_it_and_plain_where_it_must_be(verify, columns, rows):
    """A character for so many rows; rows 96 to 127 are wrong."""
    output = changed((0, slice(96, 128)), 9)
    for encoding, right, wrong in (("utf-8", "·", "█"), ("ascii", ".", "#")):
        _, drawn, _ = verify(output, columns=columns, start=run_hw4, PYTHONIOENCODING=encoding).stdout.split("\n\n")
        lines = drawn.splitlines()
        assert f"      0 |{96 // rows * right}{32 // rows * wrong}{72 // rows * right}|" in lines
        assert f"      1 |{200 // rows * right}|" in lines
        assert f"batch rows 0 to 199; a line is 1 batch, a character {rows} rows" in " ".join(drawn.split())
        assert max(map(len, lines)) <= columns


def test_a_map_shades_shares_marks_nan_and_shows_columns_where_not_all_are_wrong():
    errors = ErrorMap(Shape(70, 64, 8))
    errors.marks[:8, :32] = WRONG
    errors.marks[0, 0] = NOT_FINITE
    errors.marks[8:12, 32:] = WRONG
    errors.columns[4:] = True
    assert list(draw(errors, 60, "utf-8")) == [
        "  batch  rows 0 to 63; a line is 8 batches, a character 2",
        "         rows",
        f"      0 |N{15 * '█'}{16 * '·'}|",
        f"      8 |{16 * '·'}{16 * '▒'}|",
        *(f"{batch:>7} |{32 * '·'}|" for batch in range(16, 70, 8)),
        "columns |····████|",
        "         · right, ░▒▓ some wrong, █ all wrong, N NaN or Inf",
    ]


def as_header(shape):
    return np.array(shape, "<i4").tobytes()


SIZES = {
    "read as float64: write float32": lambda: ANSWER.astype("<f8").tobytes(),
    "read as float16: write float32": lambda: ANSWER.astype("<f2").tobytes(),
    "it begins with the input's header: an output has none": lambda: as_header((3, 200, 32)) + ANSWER.tobytes(),
    "it is longer by a header, but an output has none": lambda: bytes(12) + ANSWER.tobytes(),
    "it is as long as the input and begins like it": lambda: as_header((3, 200, 32)) + BLOCK.tobytes(),
    "it is as long as Q, K and V together": BLOCK.tobytes,
    "it is 2 times as long": lambda: 2 * ANSWER.tobytes(),
    "it has 1 batch of 3": ANSWER[0].tobytes,
    "it has 2 batches of 3": ANSWER[:2].tobytes,
    "it has N rounded down to whole tiles of 16, 32 or 64 rows: 192 in place of 200": ANSWER[:, :192].tobytes,
    "it has N rounded up to whole tiles of 64, 128 or 256 rows: 256 in place of 200": lambda: bytes(4 * 3 * 256 * 32),
    "it is text": lambda: b"\n".join(b"%f" % value for value in ANSWER.ravel()[:1000]),
    "it is empty": bytes,
}


@pytest.mark.parametrize("words", SIZES)
def test_a_wrong_size_is_explained(case, words):
    (case / "mine").write_bytes(SIZES[words]())
    assert words in explain_size(case / "mine", case / "t91.out", Shape(3, 200, 32), 5e-3)


def test_a_wrong_size_is_told_with_its_explanation_if_it_has_one(verify):
    double, short = verify(ANSWER.astype("<f8").tobytes()), verify(ANSWER.tobytes()[:-20])
    assert (double.returncode, short.returncode) == (1, 1)
    assert double.stdout.startswith("wrong: output is 600 rows too long: 153,600 bytes instead of 76,800; its numbers")
    assert short.stdout == "wrong: output is 20 bytes too short: 76,780 bytes instead of 76,800\n"


def test_numbers_of_eight_bytes_that_are_not_the_answer_are_not_called_so(case):
    (case / "mine").write_bytes(np.random.default_rng(1).bytes(2 * ANSWER.nbytes))
    assert "read as" not in explain_size(case / "mine", case / "t91.out", Shape(3, 200, 32), 5e-3)


def test_nan_is_counted_drawn_and_placed(verify):
    result = verify(changed((1, slice(100, 110)), np.nan))
    assert result.returncode == 1
    assert "NaN or Inf  320" in result.stdout
    assert "NNN" in result.stdout
    assert "errors only in batch 1, in rows 100 to 109" in result.stdout
    assert verify(np.full_like(ANSWER, np.inf)).returncode == 1


def test_the_input_may_lie_anywhere(verify, case):
    """Without one, only what the answer itself shows is known."""
    (case / "t91").rename(case / "elsewhere")
    output = MISTAKES["without the factor 1/sqrt(d)"](BLOCK)
    assert "name the input behind the answer" in verify(output).stdout
    assert "|" not in verify(output).stdout
    assert "without the factor" in verify(output, case / "elsewhere").stdout
    assert "wrong rows are 0.5 times the answer" in verify(ANSWER / 2, "3,200,32").stdout
    assert "no known mistake makes this" in verify(changed(0, 9 * BLOCK[0, 0]), case / "elsewhere").stdout
    other = write_case(case / "other", random_block(3, 200, 32, seed=6))
    assert f"{other} does not give this answer" in verify(output, other).stdout


def test_an_input_or_answer_that_cannot_be_is_refused(verify, case):
    fails(verify(ANSWER, answer="t91"), 2, "is an input", "t91.out")
    fails(verify(ANSWER, case / "none"), 2, "does not exist")
    fails(verify(ANSWER, case / "t91.out"), 2, "t91.out")
    fails(verify(ANSWER, "1,2,4"), 2, "76,800 bytes", "(1, 2, 4)")
    other = write_case(case / "other", random_block(1, 8, 4))
    fails(verify(ANSWER, other), 2, "76,800 bytes", "(1, 8, 4)")
    (case / "t91.out").write_bytes(changed(0, np.nan).tobytes())
    fails(verify(ANSWER), 2, "NaN")


def fields(value, path=""):
    """The paths of all fields of a document, as docs/verify.md writes them."""
    for name, inner in value.items():
        yield f"{path}{name}"
        if isinstance(inner, dict):
            yield from fields(inner, f"{path}{name}.")


def documented(heading):
    """The fields in the table behind a heading of docs/verify.md."""
    text = (ROOT / "docs/verify.md").read_text(encoding="utf-8").split(f"\n{heading}\n", 1)[1]
    rows = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0].splitlines()[2:]
    return [name.strip(" `") for row in rows for name in row.split("|")[1].split(",")]


def test_json_has_the_documented_fields_and_all_that_is_shown(verify):
    output = MISTAKES["without the factor 1/sqrt(d)"](BLOCK)
    output[2, 150:] = np.nan
    result = verify(output, "--json")
    document = json.loads(result.stdout, parse_constant=pytest.fail)
    assert result.returncode == 1
    assert sorted(fields(document)) == sorted(documented("## hw4 verify --json"))
    assert (document["schema"], document["right"], document["shape"]) == (1, False, [3, 200, 32])
    assert document["not_finite"] == 50 * 32
    assert (
        document["mistake"] == "the wrong rows without NaN or Inf equal attention computed without the factor 1/sqrt(d)"
    )
    assert document["first"] == {"element": 0, "batch": 0, "row": 0, "column": 0}
    assert np.array(document["map"]["not_finite"])[2].sum() == np.ceil(50 / document["map"]["rows"])
    assert np.array(document["map"]["wrong"]).sum() == 600


def test_json_of_a_right_output_and_of_a_wrong_size_says_so(verify):
    right, short = verify(ANSWER, "--json"), verify(b"", "--json")
    assert (right.returncode, short.returncode) == (0, 1)
    found = json.loads(right.stdout)
    assert (found["right"], found["wrong"], found["map"], found["first"]) == (True, 0, None, None)
    found = json.loads(short.stdout)
    assert (found["right"], found["wrong"], found["bytes"]) == (False, None, {"output": 0, "answer": ANSWER.nbytes})
    assert "it is empty" in found["reason"]


@pytest.mark.parametrize("width", [40, 60, 200])
def test_info_keeps_to_the_terminal(tmp_path, width):
    path = write_case(tmp_path / "in", 5 * random_block(1, 8, 4))
    code, text = on_a_terminal(width, "info", path)
    assert code == 0 and fits(text, width), text
    assert " ".join(text.split()) == " ".join(run_here("info", path).stdout.split())


def test_info_gives_json_with_the_documented_fields(case):
    document = json.loads(run_here("info", case / "t91", "--json").stdout)
    assert sorted(fields(document)) == sorted(documented("## hw4 info --json"))
    assert (document["shape"], document["output_bytes"]) == ([3, 200, 32], ANSWER.nbytes)
    assert document["ranges"]["Q"] == [float(BLOCK[:, 0].min()), float(BLOCK[:, 0].max())]
    assert document["outside"] == ["N = 200 is not a power of two from 128 to 32768"]
    fails(run_here("info", case / "none", "--json"), 2, "does not exist")
