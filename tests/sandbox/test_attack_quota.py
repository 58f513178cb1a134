"""Attacks on the bounds of what a program writes: nothing is hidden from them by its name, its depth or its removal."""

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from attacks import IS_ROOT, arena, needs_bwrap
from needs import needs
from slow import few

from hw4cli.judge.runcase import UnreadableError, opened_output, output_problem
from hw4cli.problem.verdict import Verdict
from hw4cli.sandbox import sandbox
from hw4cli.sandbox.quota import Quota

__all__ = ["arena"]
AC, NA, JE = Verdict.AC, Verdict.NA, Verdict.JE
MEGABYTES = 64  # that an attack writes, several times what is allowed

# Each writes much in a way that a walk through its folders does not see, and then the right output.
WRITE = f"""
def write(file, megabytes={MEGABYTES}):
    for _ in range(megabytes): os.write(file, bytes(1 << 20))
    time.sleep(0.3)
"""
HIDDEN = {
    "deeper than a path can be": """
for _ in range(40): os.mkdir("d" * 200); os.chdir("d" * 200)
write(os.open("big", os.O_RDWR | os.O_CREAT)); right()
""",
    "removed while it is open": """
file = os.open("big", os.O_RDWR | os.O_CREAT); os.remove("big"); write(file); right()
""",
    "without a name": "write(os.open('.', os.O_TMPFILE | os.O_RDWR)); right()",
    "without a name in shared memory": "write(os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR)); right()",
    "in a closed folder": """
os.mkdir("d"); file = os.open("d/big", os.O_RDWR | os.O_CREAT); os.chmod("d", 0); write(file); right()
""",
    "as attributes": """
for number in range(1000): os.setxattr(".", f"user.a{number}", bytes(60000))
right()
""",
    "as names in closed folders": """
os.mkdir("d"); os.chdir("d")
for number in range(3000): open(f"{number:0200}", "w").close()
os.chmod(".", 0); time.sleep(0.3); right()
""",
}


@pytest.fixture
def small_quota(monkeypatch):
    monkeypatch.setattr("hw4cli.sandbox.step.MAX_FILES", 1000)
    monkeypatch.setattr("hw4cli.judge.runcase.TOTAL_SLACK", 4 << 20)


@pytest.mark.parametrize("name", few(HIDDEN, quick=3))
def test_what_a_program_hides_counts_in_the_sandbox(arena, small_quota, name):
    for user in arena.users:
        needs_bwrap(user)
        verdict, reason = arena.judged(WRITE + HIDDEN[name], "bwrap", user)
        assert verdict is NA, reason
        assert any(words in reason for words in ("it wrote more than", "No space left", "not supported")), reason


@pytest.mark.parametrize("name", ["deeper than a path can be", "in a closed folder", "as names in closed folders"])
def test_folders_that_cannot_be_looked_into_are_refused_without_a_sandbox(arena, small_quota, name):
    """Root looks into closed ones."""
    verdict, reason = arena.judged(WRITE + HIDDEN[name])
    assert verdict is NA
    assert "it made a folder that cannot be looked into" in reason or "it wrote more than" in reason


def test_large_outputs_and_temporary_files_have_their_place(arena):
    """As much as is promised: 256 MB besides the output, in several files."""
    body = """
for name in ("a", "/tmp/b", "/dev/shm/c"):
    with open(name, "wb") as file:
        for _ in range(60): file.write(bytes(1 << 20))
right()
"""
    for user in arena.users:
        needs_bwrap(user)
        assert arena.judged(body, "bwrap", user) == (AC, "")


def test_a_program_in_tmp_itself_sees_it_read_only_as_it_is(arena):
    body = "assert os.path.exists(sys.argv[0])\ntry: open('/tmp/hw4-mine', 'w')\nexcept OSError: right()"
    program = arena.program(body)
    there = Path(f"/tmp/{arena.base.name}-program")
    mode = there.parent.stat().st_mode
    try:
        there.write_text(program.read_text().replace(" -S\n", " -SI\n"))  # whatever modules others keep in /tmp
        there.chmod(0o755)
        for user in arena.users:
            needs_bwrap(user)
            assert arena.judged("", "bwrap", user, command=[str(there)]) == (AC, "")
    finally:
        there.unlink()
    assert there.parent.stat().st_mode == mode


def test_a_run_in_the_sandbox_has_no_folder_on_this_machine(arena):
    """So that no other user, and no other program, can look for it."""
    needs_bwrap()
    if not sandbox.has_sized_memory():
        pytest.skip("bubblewrap before 0.7 mounts no file system of a given size")
    seen = arena.base / "seen"
    seen.mkdir()
    attempt = arena.attempt("right()", "bwrap")
    assert (attempt.problem, attempt.staged) == (None, "memory")
    assert list(arena.private.iterdir()) == []


def test_an_output_that_is_swapped_for_a_link_to_the_answer_is_not_accepted(arena):
    """Between the look at it and its reading, by another process, again and again."""
    folder = arena.base / "run"
    folder.mkdir()
    output, wrong = folder / "x.out", folder / "wrong"
    ended = threading.Event()

    def swap():
        while not ended.is_set():
            for make in (lambda: wrong.write_bytes(bytes(2560)), lambda: wrong.symlink_to(arena.answer)):
                make()
                wrong.replace(output)

    thread = threading.Thread(target=swap)
    output.write_bytes(bytes(2560))
    thread.start()
    try:
        for _ in range(300):
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                with opened_output(output, arena.answer, held) as opened:
                    assert output_problem(opened, arena.case, arena.cases)[0] is not None
            except UnreadableError:
                pass
            finally:
                os.close(held)
    finally:
        ended.set()
        thread.join()
        shutil.rmtree(folder)


def test_the_answer_itself_is_no_output(arena):
    with (
        pytest.raises(UnreadableError, match="not a regular file of its own"),
        opened_output(arena.answer, arena.answer),
    ):
        pass


@needs("mount", "umount")
@pytest.mark.parametrize("what", ["folder", "parent", "file"])
def test_answers_are_hidden_under_a_second_mount_too(arena, what):
    """The same file system may be mounted in a place that programs see."""
    program = arena.program("right()")
    place = program.parent / "second"
    source = {"folder": arena.cases, "parent": arena.base, "file": arena.answer}[what]
    place.touch() if what == "file" else place.mkdir()
    inside = {"folder": place / "tiny.out", "parent": place / "cases" / "tiny.out", "file": place}[what]
    if not IS_ROOT or subprocess.run(["mount", "--bind", source, place], capture_output=True).returncode:
        pytest.skip("only root may mount, and not in most containers")
    try:
        for user in arena.users:
            needs_bwrap(user)
            verdict, reason = arena.judged(f"steal({str(inside)!r})", "bwrap", user)
            assert (verdict, reason) == (NA, "no output file")
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_an_interrupt_behind_a_closed_folder_ends_the_look_and_is_no_fault_of_the_program(tmp_path, monkeypatch):
    """The folder was closed once more, which was taken for one that the program had made."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    closed, real = [], os.close

    def close_and_interrupt(descriptor):
        real(descriptor)
        closed.append(descriptor)
        if len(closed) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", close_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        Quota((tmp_path,), 1 << 20, 10).excess()
    assert len(closed) == 2, "the folder that is left, and the one that is entered"
