"""Attacks and accidents with files: folders that are not the judge's, full disks, sparse outputs."""

import mmap
import os
import subprocess
import tempfile
import time

import pytest
from attacks import IS_ROOT, arena, needs_bwrap
from helpers import HANGS
from needs import skip_without

from hw4cli.problem.verdict import Verdict
from hw4cli.sandbox.staging import MARK, PREFIX, private_folder, remove_orphans
from hw4cli.system import interrupts

__all__ = ["arena"]
AC, NA, JE = Verdict.AC, Verdict.NA, Verdict.JE


def old(folder, **files):
    """A folder with files and an old modification time."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    os.utime(folder, (0, 0))
    return folder


def mark_of_the_dead(path):
    """The mark of a judge that was killed."""
    pid = os.fork()
    if pid == 0:
        with private_folder(path) as folder:
            folder.rename(path / "killed")
            os._exit(0)
    os.waitpid(pid, 0)
    return (path / "killed" / MARK).read_text()


def test_only_folders_with_the_mark_of_a_dead_judge_are_removed(tmp_path):
    mark = mark_of_the_dead(tmp_path)
    host, boot, namespace, *rest = mark.split("-")
    users = {
        "anything": {"thesis.tex": "mine"},
        "abcdefgh": {"thesis.tex": "mine"},
        "abcdefg1": {MARK: "mine"},
        "abcdefg2": {MARK: ""},
        "abcdefg3": {MARK: "-".join([host, "0" * 12, namespace, *rest])},
        "abcdefg4": {MARK: "-".join([host, boot, "1", *rest])},
        "abcdefg9": {MARK: "-".join(["elsewhere", boot, namespace, *rest])},
        "ABCDEFGH": {MARK: mark},
        "abcdefghi": {MARK: mark},
    }
    for name, files in users.items():
        old(tmp_path / f"{PREFIX}{name}", **files)
    mine = old(tmp_path / "mine", **{MARK: mark})
    (tmp_path / f"{PREFIX}abcdefg5").symlink_to(mine)
    linked = old(tmp_path / f"{PREFIX}abcdefg6", thesis="mine")
    (linked / MARK).symlink_to(mine / MARK)
    if IS_ROOT:
        other = old(tmp_path / f"{PREFIX}abcdefg7", **{MARK: mark})
        os.chown(other, 1000, 1000)
    orphan = old(tmp_path / f"{PREFIX}abcdefg8", **{MARK: mark, "input": "x"})
    before = set(tmp_path.iterdir())
    with private_folder(tmp_path) as alive:
        os.utime(alive, (0, 0))
        remove_orphans(tmp_path)
        assert before - set(tmp_path.iterdir()) == {orphan}
        assert alive.is_dir()
    assert (mine / MARK).read_text() == mark


def test_a_signal_while_a_private_folder_is_made_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(**kwargs):
        interrupts._raise()  # as the handler does when the signal comes here
        return mkdtemp(**kwargs)

    mkdtemp = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", interrupted)
    monkeypatch.setattr(interrupts, "_last", 0.0)
    with pytest.raises(KeyboardInterrupt), private_folder(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_output_is_read_and_never_mapped(arena, monkeypatch):
    """Reading a hole of a mapped file allocates a block, and on a full disk a signal would end the judge."""

    def mapped(descriptor, *args, **kwargs):
        path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
        assert not path.startswith(str(arena.private))
        return real(descriptor, *args, **kwargs)

    real = mmap.mmap
    monkeypatch.setattr("mmap.mmap", mapped)
    verdict, reason = arena.judged("open(output, 'wb').truncate(2560)")
    assert (verdict, "zeros" in reason) == (NA, True), reason


@pytest.fixture
def small_disk(arena):
    """Private folders lie in a file system of 24 MB."""
    skip_without("mount", "umount")
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=1777", "tmpfs", str(arena.private)]
    if not IS_ROOT or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system can only be made by root, outside of most containers")
    yield
    subprocess.run(["umount", "-l", str(arena.private)], check=True)


FILLED = "\ntry:\n while True: os.write(file.fileno(), bytes(1 << 20))\nexcept OSError: pass\n"


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_holes_in_an_output_on_a_full_disk_do_not_end_the_judge(arena, small_disk, sandbox):
    if sandbox == "bwrap":
        needs_bwrap()
    body = f"open(output, 'wb').truncate(2560)\nfile = open('big', 'wb'){FILLED}"
    verdict, reason = arena.judged(body, sandbox)
    assert verdict is NA, reason
    assert arena.judged("right()", sandbox)[0] is AC, "the next program does not have the space again"


def test_filling_the_disk_with_removed_files_is_the_programs_fault(arena, small_disk):
    body = f"file = open('big', 'wb'); os.remove('big'){FILLED}\ntime.sleep(600)"
    assert arena.judged(body) == (NA, "it filled the disk with files that it had removed")


def test_a_disk_filled_by_others_is_the_judges_failure(arena, small_disk):
    full = f"file = open({str(arena.private / 'others')!r}, 'wb'){FILLED}time.sleep(600)"
    try:
        verdict, reason = arena.judged(full)
    finally:
        (arena.private / "others").unlink()
    assert (verdict, "is full" in reason) == (JE, True), reason


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("for n in range(300): open(f'f{n}', 'w')\ntime.sleep(600)", "it wrote more than 100 files"),
        ("for n in range(300): open(f'f{n}', 'w')\nright()", "it wrote more than 100 files"),
        ("for n in range(3): open(f'f{n}', 'wb').write(bytes(1 << 20))\ntime.sleep(600)", "it wrote more than 2 MB"),
        ("for n in range(300): os.mkdir('d'); os.chdir('d')\ntime.sleep(600)", "it wrote more than 100 files"),
    ],
)
def test_a_program_that_writes_too_many_files_or_bytes_is_ended(arena, monkeypatch, sandbox, body, words):
    if sandbox == "bwrap":
        needs_bwrap()
    monkeypatch.setattr("hw4cli.sandbox.step.MAX_FILES", 100)
    monkeypatch.setattr("hw4cli.judge.runcase.TOTAL_SLACK", 2 << 20)
    start = time.monotonic()
    assert arena.judged(body, sandbox, limit=400.0) == (NA, words)
    assert time.monotonic() - start < HANGS, "it was ended at the time limit, not when it exceeded the quota"
