"""Sessions of judging: each run is in the journal when it ends, and what is there is not run again."""

import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import time

import psutil
import pytest
from helpers import fails, hw4_env, make_cases, run_hw4, tiny_case

from hw4cli.errors import InputError, MachineError
from hw4cli.judge.session import Listener, SessionPlan, judge_session, not_run
from hw4cli.problem.verdict import Verdict
from hw4cli.runner.gpulock import LOCKS
from hw4cli.scoring import journal
from hw4cli.scoring.record import Rules

ESCAPE = "\x1b["


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with t01 to t03 and their answers."""
    return make_cases(tmp_path_factory.mktemp("cases"), "t01", "t02", "t03")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Three small cases, and the folder they lie in."""
    small = [tiny_case(name, seed=seed, limit=5.0) for seed, name in enumerate(("a", "b", "c"))]
    return small, make_cases(tmp_path_factory.mktemp("tiny"), *small)


# A contestant that knows the answers by their inputs, tells of each run, and does `BODY` first.
CONTESTANT = """#!{python}
import os, pathlib, sys, time, hashlib
folder, log = pathlib.Path({folder!r}), {log!r}
data = pathlib.Path(sys.argv[1]).read_bytes()
[case] = [p for p in folder.iterdir() if p.suffix != ".out" and p.read_bytes() == data]
runs = pathlib.Path(log).read_text().split().count(case.name) if os.path.exists(log) else 0
with open(log, "a") as file:
    file.write(case.name + "\\n")
{body}
pathlib.Path(sys.argv[2]).write_bytes((folder / (case.name + ".out")).read_bytes())
"""


@pytest.fixture
def contestant(tmp_path):
    """Makes a contestant for a folder of cases: its path, and a function that tells the cases it ran, in order."""

    def write(folder, body="", name="program"):
        path, log = tmp_path / name, tmp_path / f"{name}.log"
        path.write_text(CONTESTANT.format(python=sys.executable, folder=str(folder), log=str(log), body=body))
        path.chmod(0o755)
        return path, lambda: log.read_text().split() if log.exists() else []

    return write


def plan_of(tiny, path, output=None, **others):
    small, folder = tiny
    return SessionPlan("ann", [str(path)], others.pop("cases", small), folder, output, **others)


def verdicts(standing):
    return {case: str(result.verdict) for case, result in standing.results.items()}


def test_every_run_is_in_the_journal_under_a_header_that_tells_how(tiny, contestant, tmp_path):
    path, ran = contestant(tiny[1])
    standing = judge_session(plan_of(tiny, path, tmp_path / "out", repeat=2, warmup=1, rules=Rules(penalty=7)))
    assert verdicts(standing) == {"a": "AC", "b": "AC", "c": "AC"}
    assert ran() == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    found = journal.read(tmp_path / "out" / journal.NAME)
    assert [(a.case, a.repeat) for _, a in found.runs] == [(c, r) for c in "abc" for r in (0, 1)]
    header = found.header
    assert (header["user"], header["program"], header["cases"]) == ("ann", [str(path)], ["a", "b", "c"])
    assert {"program_sha256", "host", "gpu", "started", "version", "keys"} <= header.keys()
    settings = header["settings"]
    assert (settings["repeat"], settings["warmup"], settings["penalty"], settings["tolerance"]) == (2, 1, 7, 5e-3)
    assert {"sandbox", "launcher", "scratch", "input_cached", "clock", "rank_by"} <= settings.keys()


def test_without_a_folder_nothing_is_kept(tiny, contestant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, _ = contestant(tiny[1])
    before = set(tmp_path.iterdir())
    assert judge_session(plan_of(tiny, path)).passed == 3
    assert {p.name for p in set(tmp_path.iterdir()) - before} == {"program.log"}


def test_resumed_it_runs_only_what_is_missing(tiny, contestant, tmp_path):
    path, ran = contestant(tiny[1])
    out = tmp_path / "out"
    judge_session(plan_of(tiny, path, out, cases=tiny[0][:1]))
    judge_session(plan_of(tiny, path, out, cases=tiny[0][:2], repeat=2, resume=True))
    assert ran() == ["a", "a", "b", "b"]
    told = []

    class Ear(Listener):
        def judged(self, result, kept):
            told.append((result.case, kept))

    standing = judge_session(plan_of(tiny, path, out, resume=True), Ear())
    assert ran() == ["a", "a", "b", "b", "c"]
    assert told == [("a", True), ("b", True), ("c", False)]
    assert {case: result.attempts for case, result in standing.results.items()} == {"a": 2, "b": 2, "c": 1}


def test_a_changed_program_limit_or_tolerance_runs_again_and_counts_alone(tiny, contestant, tmp_path):
    from dataclasses import replace

    out, small = tmp_path / "out", tiny[0]
    path, ran = contestant(tiny[1])
    judge_session(plan_of(tiny, path, out))
    judge_session(plan_of(tiny, path, out, resume=True, cases=[replace(small[0], limit=4.0)]))
    assert ran() == ["a", "b", "c", "a"]
    contestant(tiny[1], "sys.exit(1)")
    standing = judge_session(plan_of(tiny, path, out, resume=True, cases=small[:1]))
    # What the older program did is history; the cases it ran count still, and have no result.
    assert verdicts(standing) == {"a": "NA"}
    assert (list(standing.cases), standing.penalty) == (["a", "b", "c"], 180.0)


def test_a_case_judged_once_more_leaves_the_others_as_they_are(tiny, contestant, tmp_path):
    path, _ = contestant(tiny[1])
    out = tmp_path / "out"
    judge_session(plan_of(tiny, path, out))
    standing = judge_session(plan_of(tiny, path, out, cases=tiny[0][1:2], repeat=2, resume=True))
    assert {case: result.attempts for case, result in standing.results.items()} == {"a": 1, "b": 2, "c": 1}


def test_what_the_judge_failed_in_runs_again(tiny, contestant, tmp_path):
    small, folder = tiny
    path, ran = contestant(folder)
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "b.out").write_bytes(b"")
    out = tmp_path / "out"
    plan = plan_of((small, broken), path, out)
    assert verdicts(judge_session(plan)) == {"a": "AC", "b": "JE", "c": "AC"}
    (broken / "b.out").write_bytes((folder / "b.out").read_bytes())
    standing = judge_session(plan_of((small, broken), path, out, resume=True))
    assert verdicts(standing) == {"a": "AC", "b": "AC", "c": "AC"}
    assert ran()[-1] == "b"
    assert ran().count("a") == ran().count("c") == 1


def test_an_older_journal_is_kept_under_a_numbered_name(tiny, contestant, tmp_path):
    path, _ = contestant(tiny[1])
    out = tmp_path / "out"
    texts = []
    for _ in range(3):
        judge_session(plan_of(tiny, path, out, cases=tiny[0][:1], restart=True))
        texts.append((out / journal.NAME).read_text())
    assert [(out / name).read_text() for name in ("journal-1.jsonl", "journal-2.jsonl", "journal.jsonl")] == texts


def test_the_median_decides_and_a_case_on_both_sides_of_the_limit_is_borderline(tiny, contestant):
    from dataclasses import replace

    case = replace(tiny[0][0], limit=2.0)
    path, _ = contestant(tiny[1], "time.sleep(2.2 if runs == 1 else 0)")
    result = judge_session(plan_of(tiny, path, cases=[case], repeat=3)).results["a"]
    assert (result.verdict, result.borderline, result.attempts) == (Verdict.AC, True, 3)
    assert result.reason.startswith("borderline: ")
    assert result.spread[0] < 2 < result.spread[1]


def test_warmups_are_not_counted(tiny, contestant):
    path, ran = contestant(tiny[1], "if runs < 2: sys.exit(1)")
    assert judge_session(plan_of(tiny, path, cases=tiny[0][:1], warmup=2)).passed == 1
    assert len(ran()) == 3


def test_interrupted_it_leaves_what_was_judged(tiny, contestant, tmp_path):
    path, _ = contestant(tiny[1])
    out = tmp_path / "out"

    class Impatient(Listener):
        def running(self, case, run, runs):
            if case.name == "b":
                raise KeyboardInterrupt

        def ended(self, standing):
            told.append(verdicts(standing))

    told = []
    with pytest.raises(KeyboardInterrupt):
        judge_session(plan_of(tiny, path, out), Impatient())
    assert told == [{"a": "AC"}]
    document = json.loads((out / "results.json").read_text())
    assert document["standings"][0]["missing"] == ["b", "c"]


def test_two_sessions_do_not_write_one_journal(tiny, contestant, tmp_path):
    path, _ = contestant(tiny[1])
    out = tmp_path / "out"

    class Second(Listener):
        def judged(self, result, kept):
            with pytest.raises(MachineError, match="another hw4 judge"):
                judge_session(plan_of(tiny, path, out))

    assert judge_session(plan_of(tiny, path, out), Second()).passed == 3
    assert len(journal.read(out / journal.NAME).headers) == 1


def test_a_program_that_could_not_be_built_has_a_note(tmp_path):
    not_run(tmp_path / "bob", "bob", ["t01"], "it does not compile")
    header = journal.read(tmp_path / "bob" / journal.NAME).header
    assert (header["user"], header["cases"], header["note"]) == ("bob", ["t01"], "it does not compile")


def test_a_full_disk_ends_it_with_one_sentence(tiny, contestant, tmp_path, monkeypatch):
    path, ran = contestant(tiny[1])

    def full(path, line):
        if line["kind"] == "run" and line["case"] == "b":
            raise OSError(28, "No space left on device")
        return append(path, line)

    append = journal.append
    monkeypatch.setattr("hw4cli.scoring.journal.append", full)
    with pytest.raises(MachineError, match=r"journal\.jsonl.*No space left"):
        judge_session(plan_of(tiny, path, tmp_path / "out"))
    assert ran() == ["a", "b"]
    assert [a.case for _, a in journal.read(tmp_path / "out" / journal.NAME).runs] == ["a"]


def test_a_place_where_nothing_can_be_kept_is_told_before_anything_runs(tiny, contestant, tmp_path):
    path, ran = contestant(tiny[1])
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="is a file"):
            judge_session(plan_of(tiny, path, out))
    with pytest.raises(MachineError, match="/proc"):
        judge_session(plan_of(tiny, path, type(tmp_path)("/proc/nothing")))
    assert ran() == []
    assert (tmp_path / "file").read_text() == "mine"


def judge_args(folder, path, *more):
    return ["judge", "t01-t03", "--dir", str(folder), "--program", str(path), *map(str, more)]


def start(*args, **kwargs):
    """hw4 as a process that the test can send signals to."""
    return subprocess.Popen([sys.executable, "-m", "hw4cli", *args], env=hw4_env(**kwargs.pop("env", {})), **kwargs)


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "that never happened"
        time.sleep(0.02)


def test_killed_in_the_middle_and_resumed_it_runs_only_what_is_missing(folder, contestant, tmp_path):
    path, ran = contestant(folder, "if case.name == 't02' and not runs: time.sleep(300)")
    out = tmp_path / "out"
    process = start(*judge_args(folder, path, "--output", out), stdout=subprocess.DEVNULL)
    wait_until(lambda: "t02" in ran())
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    for stray in psutil.process_iter(["cmdline"]):  # a judge that is killed cannot
        if str(path) in (stray.info["cmdline"] or []):
            stray.kill()
    with (out / journal.NAME).open("a") as file:
        file.write('{"kind": "run", "key": "cut off he')
    result = run_hw4(*judge_args(folder, path, "--output", out, "--resume"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 of 3 cases AC, score at most 60 of 60" in result.stdout
    assert ran() == ["t01", "t02", "t02", "t03"]
    document = json.loads((out / "results.json").read_text())
    assert [one["case"] for one in document["standings"][0]["results"]] == ["t01", "t02", "t03"]


def test_ctrl_c_ends_it_with_130_and_shows_and_writes_what_was_judged(folder, contestant, tmp_path):
    path, ran = contestant(folder, "if case.name == 't02': time.sleep(300)")
    out = tmp_path / "out"
    process = start(
        *judge_args(folder, path, "--output", out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: "t02" in ran())
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    told = "hw4: interrupted: 1 of 3 cases are judged, --resume goes on"
    assert (process.returncode, stderr.strip()) == (130, told)
    assert re.search(r"^t01 .* AC ", stdout, re.MULTILINE)
    assert "2 cases not judged yet, counted as not accepted: t02 t03" in stdout
    assert sorted(p.name for p in out.iterdir()) == [
        "journal.jsonl", "results.csv", "results.json", "results.md", "results.xml",
    ]  # fmt: skip
    assert json.loads((out / "results.json").read_text())["standings"][0]["missing"] == ["t02", "t03"]


def test_a_judge_that_waits_for_the_gpu_says_so_and_goes_on(folder, contestant):
    path, ran = contestant(folder)
    gpu = f"GPU-test-{os.getpid()}"
    lock = LOCKS / f"hw4-gpu-{gpu}.lock"
    try:
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            process = start(*judge_args(folder, path), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                            env={"CUDA_VISIBLE_DEVICES": gpu})  # fmt: skip
            told = process.stderr.readline()
            assert ran() == []
        process.communicate(timeout=60)
    finally:
        lock.unlink(missing_ok=True)
    assert told.startswith(f"hw4: waiting for GPU {gpu}")
    assert process.returncode == 0
    assert ran() == ["t01", "t02", "t03"]


def test_json_is_one_document_and_nothing_else(folder, contestant, tmp_path):
    path, _ = contestant(folder, "if case.name == 't02': sys.exit('no luck')")
    result = run_hw4(*judge_args(folder, path, "--json", "--user", "ann", "--output", tmp_path / "out"))
    assert (result.returncode, result.stderr) == (1, "")
    document = json.loads(result.stdout)
    assert result.stdout == (tmp_path / "out" / "results.json").read_text()
    [one] = document["standings"]
    assert (one["user"], one["passed"], one["score"], one["penalty"]) == ("ann", 2, 57, 60)
    assert one["results"][1]["reason"] == "exit code 1: no luck"


def test_other_rules_are_asked_for_by_options(folder, contestant):
    path, _ = contestant(folder, "time.sleep(1)")
    result = run_hw4(*judge_args(folder, path, "--limit", "t01-t02=0.5", "--limit", "t02=20", "--penalty", 5))
    assert result.returncode == 1
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.startswith("t0")}
    assert " TLE " in rows["t01"]
    assert " AC " in rows["t02"]
    assert "Penalty 5.00 s" in result.stdout
    shifted = (
        "import struct; data = (folder / (case.name + '.out')).read_bytes(); data = struct.pack('f', 9) + data[4:]"
    )
    path, _ = contestant(folder, f"{shifted}; pathlib.Path(sys.argv[2]).write_bytes(data); sys.exit()")
    assert run_hw4(*judge_args(folder, path)).returncode == 1
    result = run_hw4(*judge_args(folder, path, "--tolerance", 20))
    assert result.returncode == 0, result.stdout


def test_a_bad_request_for_a_session_is_one_sentence(folder, contestant, tmp_path):
    path, ran = contestant(folder)
    (tmp_path / "file").write_text("mine")
    for words, told in (
        (["--resume"], "--resume needs --output"),
        (["--restart"], "--restart needs --output"),
        (["--resume", "--restart", "--output", tmp_path / "out"], "--resume and --restart do not go together"),
        (["--output", tmp_path / "file"], "is a file"),
        (["--limit", "t01"], "--limit"),
        (["--limit", "t01=0"], "--limit"),
        (["--limit", "t01=nan"], "--limit"),
        (["--limit", "t01=1e9"], "--limit"),
        (["--limit", "t99=3"], "t99"),
        (["--repeat", "0"], "--repeat"),
        (["--tolerance", "nan"], "--tolerance"),
        (["--rank-by", "luck"], "--rank-by"),
    ):
        fails(run_hw4(*judge_args(folder, path, *words)), 2, told)
    assert ran() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_told(folder, contestant, tmp_path):
    (tmp_path / "shut").mkdir(mode=0o500)
    fails(run_hw4(*judge_args(folder, contestant(folder)[0], "--output", tmp_path / "shut")), 3, "shut", "Permission")


def test_a_journal_that_finds_no_room_is_exit_status_3_and_what_was_judged_is_kept(folder, contestant, tmp_path):
    path, _ = contestant(folder)
    no_room = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1500, resource.RLIM_INFINITY))}
    result = run_hw4(*judge_args(folder, path, "--output", tmp_path / "out"), **no_room)
    assert result.returncode == 3
    [sentence] = result.stderr.splitlines()
    assert sentence.startswith(f"hw4: cannot write {tmp_path / 'out' / journal.NAME}")
    assert "--resume" in sentence
    kept = [attempt.case for _, attempt in journal.read(tmp_path / "out" / journal.NAME).runs]
    rows = [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert kept == rows
    assert 0 < len(kept) < 3


def terminal(*args, columns, env=None):
    """What hw4 shows on a terminal of so many columns, and its exit status."""
    pid, handle = pty.fork()
    if pid == 0:
        env = hw4_env(TERM="xterm", COLUMNS=str(columns), **(env or {}))
        os.execve(sys.executable, [sys.executable, "-m", "hw4cli", *args], env)
    shown = b""
    while select.select([handle], [], [], 120)[0]:
        try:
            piece = os.read(handle, 65536)
        except OSError:  # the other end is closed
            break
        shown += piece
    os.close(handle)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def lines_left(shown):
    """The lines that stay on a terminal: what is drawn over, or behind an escape code, is gone."""
    text = re.sub(r"[^\n]*\r?\x1b\[1A\x1b\[2K", "", shown)
    text = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", text)
    return [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]


def test_on_a_terminal_the_running_case_shows_its_time_and_long_reasons_stand_below(folder, contestant):
    body = "if case.name == 't02': time.sleep(1.2); sys.exit('many words of a reason that is too long for one row')"
    path, _ = contestant(folder, body)
    shown, status = terminal(*judge_args(folder, path), columns=80)
    assert status == 1
    assert re.search(r"t02   \(160, 128, 64\) +… +1\.\d", shown)
    assert "\x1b[32mAC" in shown
    assert "\x1b[31mNA" in shown
    lines = lines_left(shown)
    assert max(map(len, lines)) <= 80
    row = next(index for index, line in enumerate(lines) if line.startswith("t02") and " NA " in line)
    assert lines[row + 1] == "      exit code 1: many words of a reason that is too long for one row"
    wide = lines_left(terminal(*judge_args(folder, path), columns=140)[0])
    assert any(line.startswith("t02") and line.endswith("too long for one row") for line in wide)


def test_no_color_means_no_colour_and_a_pipe_no_escape_code(folder, contestant):
    path, _ = contestant(folder)
    shown, _ = terminal(*judge_args(folder, path), columns=80, env={"NO_COLOR": "1"})
    assert "\x1b[32m" not in shown
    assert " AC " in shown
    piped = run_hw4(*judge_args(folder, path, "--repeat", 2))
    assert ESCAPE not in piped.stdout + piped.stderr
    assert len([line for line in piped.stdout.splitlines() if line.startswith("t0")]) == 3


def test_json_on_a_terminal_stays_a_document(folder, contestant):
    path, _ = contestant(folder)
    process = run_hw4("judge", "t01", "--dir", folder, "--program", path, "--json", env={"FORCE_COLOR": "1"})
    assert json.loads(process.stdout)["standings"][0]["passed"] == 1


def test_a_sandbox_that_is_not_installed_is_told_once_before_anything_runs(hw4, tmp_path):
    for name in ("t01", "t01.out"):
        (tmp_path / name).touch()
    (tmp_path / "bin").mkdir()
    judging = ("judge", "t01", "--dir", tmp_path, "--sandbox", "bwrap", "--program", "/bin/true")
    fails(hw4(*judging, env={"PATH": str(tmp_path / "bin")}), 3, "apt install bubblewrap")
