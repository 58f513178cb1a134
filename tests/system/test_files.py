"""A new file appears whole or not at all, under any name, and only where a file belongs; a killed run's part goes."""

import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT

from hw4cli.errors import InputError, MachineError
from hw4cli.system import interrupts
from hw4cli.system.files import JOURNAL_SUFFIX, PART, PART_SUFFIX, NewFile
from hw4cli.system.owner import TOKEN, start_ticks


def test_a_new_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), NewFile(path) as file:
        file.write(np.zeros(1000, np.float32))
        assert path.read_bytes() == b"old"
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    with NewFile(path) as file:
        file.write(np.frombuffer(b"new!", np.uint8))
    assert path.read_bytes() == b"new!"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(("place", "name"), [(os, "fdopen"), (Path, "unlink")])
def test_an_interrupt_while_the_part_is_made_or_removed_leaves_none(tmp_path, monkeypatch, place, name):
    real = getattr(place, name)

    def interrupted(*args, **kwargs):
        if not held:
            held.append(None)
            interrupts._raise()  # as the handler does when the signal comes here
        return real(*args, **kwargs)

    held = []
    monkeypatch.setattr(interrupts, "_last", 0.0)
    monkeypatch.setattr(place, name, interrupted)
    with pytest.raises(KeyboardInterrupt), NewFile(tmp_path / "out"):
        raise ValueError("of the work")
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_has_the_usual_permissions_and_a_replaced_one_keeps_its_own(tmp_path):
    previous = os.umask(0o027)
    try:
        for mode in (0o640, 0o604):
            with NewFile(tmp_path / "out") as file:
                file.write(np.zeros(1, np.float32))
            assert (tmp_path / "out").stat().st_mode & 0o777 == mode
            (tmp_path / "out").chmod(0o604)
    finally:
        os.umask(previous)


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with NewFile(link) as file:
        file.write(np.frombuffer(b"new", np.uint8))
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def write(path, text=b"new"):
    with NewFile(path) as file:
        file.write(np.frombuffer(text, np.uint8))


@pytest.mark.parametrize("name", ["x" * 255, "文" * 85, "文" * 80, "é" * 127, "a\nb", "-", "..."])
def test_any_name_that_the_file_system_takes_can_be_written(tmp_path, name):
    write(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    write(tmp_path / name, b"newer")
    assert (tmp_path / name).read_bytes() == b"newer"


@pytest.mark.parametrize("name", ["x" * 256, "文" * 86, "loop"])
def test_a_name_that_the_file_system_does_not_take_is_refused_before_anything_is_computed(tmp_path, name):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match="not a place for a file"):
        NewFile(tmp_path / name)


def test_what_is_written_to_dev_null_is_thrown_away(tmp_path):
    (tmp_path / "link").symlink_to("/dev/null")
    for path in (Path("/dev/null"), tmp_path / "link"):
        with NewFile(path) as file:
            file.write(np.zeros(5, np.float32))
            file.write_at(np.zeros(5, np.float32), 1 << 40)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/full", "/dev/zero", "/dev/new"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_device_or_a_redirections_file_is_no_output(tmp_path, name, linked):
    path = Path(name)
    if linked:
        (tmp_path / "second").symlink_to(name)
        path = tmp_path / "first"
        path.symlink_to("second")
    with pytest.raises(InputError, match="not a place for a file"):
        NewFile(path)


def test_a_redirections_file_stays_its_writers(tmp_path):
    """`hw4 gen ... > file` where the output is a link to /dev/stdout: the file must not be replaced under the shell."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    with (tmp_path / "file").open("wb") as file:
        before = os.fstat(file.fileno()).st_ino
        script = f"from hw4cli.system.files import *; NewFile(Path({str(tmp_path / 'link')!r}))"
        result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, stdout=file, stderr=subprocess.PIPE)
    assert b"not a place for a file" in result.stderr
    assert (tmp_path / "file").stat().st_ino == before


def test_pipes_and_sockets_are_no_output(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("pipe", "socket"):
            with pytest.raises(InputError, match="a device or a pipe"):
                NewFile(tmp_path / name)


def test_a_folder_without_room_is_reported(tmp_path):
    with pytest.raises((InputError, MachineError), match="folder"), NewFile(tmp_path / "none" / "out"):
        pass


def start_writing(path):
    """A process that is writing a file."""
    script = (
        "import sys, time; from pathlib import Path; from hw4cli.system.files import NewFile\n"
        "with NewFile(Path(sys.argv[1])): print(flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], cwd=ROOT, stdout=subprocess.PIPE)
    process.stdout.read(1)
    return process


def killed_while_writing(path):
    """Start writing a file in another process, and kill it; the part that it leaves."""
    process = start_writing(path)
    process.kill()
    process.wait()
    [part] = path.parent.glob(f".*{PART_SUFFIX}")
    return part


def test_the_part_of_a_killed_run_is_removed_by_the_next_one(tmp_path):
    part = killed_while_writing(tmp_path / "out")
    write(tmp_path / "other")
    assert not part.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_the_part_of_a_killed_run_is_removed_though_nobody_has_asked_how_the_run_ended(tmp_path):
    """As where a command was killed with its parent, and the container's first process waits for no child."""
    process = start_writing(tmp_path / "out")
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now, and stays one
    [part] = tmp_path.glob(f".*{PART_SUFFIX}")
    write(tmp_path / "other")
    assert not part.exists()
    process.wait()


def renamed(part, **changes):
    """The part under a name that says something else of its maker."""
    match = PART.fullmatch(part.name)
    owner = dict(re.fullmatch(TOKEN, match["owner"]).groupdict(), **changes)
    return part.rename(part.with_name(part.name.replace(match["owner"], "-".join(map(str, owner.values())))))


NOT_OURS = {
    "a journal lies beside it": lambda part: part.with_suffix(JOURNAL_SUFFIX).touch() or part,
    "its maker is alive": lambda part: renamed(part, pid=os.getpid(), start=start_ticks(os.getpid())),
    "it was made on another host": lambda part: renamed(part, machine="elsewhere-0123456789ab-4026531836"),
    "it was made before a boot": lambda part: renamed(part, machine=re.sub("-.{12}-", "-0123456789ab-", machine(part))),
    "it was made in another container": lambda part: renamed(part, machine=machine(part) + "1"),
    "it is a folder": lambda part: part.unlink() or part.mkdir() or part,
    "it is a link": lambda part: part.unlink() or part.symlink_to("/nowhere") or part,
    "its name is a user's": lambda part: part.rename(part.with_name(".my.hw4-part")),
    "its name only begins like ours": lambda part: part.rename(part.with_name(part.name + ".hw4-part")),
}


def machine(part):
    return re.fullmatch(TOKEN, PART.fullmatch(part.name)["owner"])["machine"]


@pytest.mark.parametrize("reason", NOT_OURS)
def test_a_part_is_left_alone_where(tmp_path, reason):
    part = NOT_OURS[reason](killed_while_writing(tmp_path / "out"))
    write(tmp_path / "out")
    assert os.path.lexists(part)


def test_a_process_number_that_was_given_again_is_not_the_owner(tmp_path):
    part = renamed(killed_while_writing(tmp_path / "out"), pid=os.getpid(), start=1)
    write(tmp_path / "out")
    assert not part.exists()


def test_two_writers_of_the_same_file_do_not_disturb_each_other(tmp_path):
    with NewFile(tmp_path / "out") as first, NewFile(tmp_path / "out") as second:
        first.write(np.frombuffer(b"first", np.uint8))
        second.write(np.frombuffer(b"second", np.uint8))
    assert (tmp_path / "out").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
