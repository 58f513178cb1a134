"""The table of `hw4 judge` on a terminal, and in a pipe."""

import json
import re

from helpers import JUDGE_T01, on_a_terminal, run_hw4
from sessions import contestant, folder, judge_args
from slow import slow

__all__ = ["contestant", "folder"]


def lines_left(shown):
    """The lines that remain on a terminal, without those that were drawn over, and without escape codes."""
    text = re.sub(r"[^\n]*\r?\x1b\[1A\x1b\[2K", "", shown)
    text = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", text)
    return [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]


def test_a_terminal_shows_the_running_cases_time_and_long_reasons_below_their_rows(folder, contestant, tmp_path):
    go = tmp_path / "go"
    body = (
        f"while case.name == 't02' and not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
        "if case.name == 't02': sys.exit('many words of a reason that is too long for one row')"
    )
    path, _ = contestant(folder, body)
    seconds = r"t02   \(160, 128, 64\) +… +[1-9]\d*\.\d"
    status, shown = on_a_terminal(80, *judge_args(folder, path), env={"TERM": "xterm"}, when=(seconds, go.touch))
    assert status == 1
    assert go.exists()
    assert "\x1b[32mAC" in shown
    assert "\x1b[31mNA" in shown
    lines = lines_left(shown)
    assert max(map(len, lines)) <= 80
    row = next(index for index, line in enumerate(lines) if line.startswith("t02") and " NA " in line)
    assert lines[row + 1] == "      exit code 1: many words of a reason that is too long for one row"
    wide = lines_left(on_a_terminal(140, *judge_args(folder, path), env={"TERM": "xterm"})[1])
    assert any(line.startswith("t02") and line.endswith("too long for one row") for line in wide)


@slow
def test_no_color_removes_colours_and_a_pipe_gets_no_escape_codes(folder, contestant):
    path, _ = contestant(folder)
    _, shown = on_a_terminal(80, *judge_args(folder, path), env={"TERM": "xterm", "NO_COLOR": "1"})
    assert "\x1b[32m" not in shown
    assert " AC " in shown
    piped = run_hw4(*judge_args(folder, path, "--repeat", 2))
    assert "\x1b[" not in piped.stdout + piped.stderr
    assert len([line for line in piped.stdout.splitlines() if line.startswith("t0")]) == 3


def test_json_is_one_document_even_with_forced_colours(folder, contestant):
    path, _ = contestant(folder)
    process = run_hw4(*JUDGE_T01, "--dir", folder, "--program", path, "--json", env={"FORCE_COLOR": "1"})
    assert json.loads(process.stdout)["standings"][0]["passed"] == 1
