"""A file that several processes write: what is listed, who is there at once, and what a later run finds."""

import fcntl
import os
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers import folder_is_clean, random_block, write_case

from hw4cli.errors import BusyError, MachineError
from hw4cli.stream.nodes.jointfile import LINE, JointFile, covers, key_of
from hw4cli.stream.nodes.writer import Writer


@pytest.fixture
def joint(tmp_path):
    return JointFile(tmp_path / "out", 100, "0123456789abcdef")


def test_what_is_listed_is_kept_and_what_was_cut_off_is_not(joint):
    with Writer(joint) as writer:
        writer.write_at(bytes(range(60)), 0)
        writer.note(0, 20)
        writer.note(20, 60)
    [path] = joint.folder.glob("written-*")
    for end, expected in ((1, [(0, 60)]), (2, [(0, 20)]), (7, [(0, 20)])):
        text = path.read_bytes()
        path.write_bytes(text[: len(text) - end])
        assert joint.written() == expected
        path.write_bytes(text)
    with path.open("ab") as file:  # a line cut off, and one behind it
        file.write(b"\n9" + b"\n90 95;\n")
    assert joint.written() == [(0, 60), (90, 95)]
    assert covers(joint.written(), 90, 94)
    assert not covers(joint.written(), 50, 91)


def test_lists_of_a_part_that_is_gone_do_not_count(joint):
    with Writer(joint) as writer:
        writer.note(0, 60)
    joint.part.unlink()
    assert joint.written() == []
    with Writer(joint) as writer:
        writer.note(50, 70)
    assert joint.written() == [(50, 70)]


def test_a_run_goes_on_with_what_is_written_or_throws_it_away_and_leaves_nothing_if_it_wrote_nothing(joint, tmp_path):
    with joint.begun(go_on=False), Writer(joint) as writer:
        writer.note(0, 60)
        assert joint.written_before() == []
    with joint.begun(go_on=True):
        assert joint.written() == joint.written_before() == [(0, 60)]
    with joint.begun(go_on=False):
        assert joint.written() == []
        with pytest.raises(BusyError, match="another run of hw4 is writing"), joint.begun(go_on=True):
            pass
    folder_is_clean(tmp_path)


def test_ctrl_c_while_another_run_holds_the_part_is_an_interrupt(joint, monkeypatch):
    def busy(_):
        os.kill(os.getpid(), signal.SIGINT)
        raise BusyError("another run of hw4 is writing")

    monkeypatch.setattr(JointFile, "_locked", busy)
    with pytest.raises(KeyboardInterrupt), joint.held():
        pass


def test_a_process_of_a_killed_run_cannot_list_what_a_later_run_has_thrown_away(joint):
    orphan = Writer(joint)
    orphan.note(0, 20)
    with joint.begun(go_on=False):  # the other's launcher was killed, and so its lock is free
        with pytest.raises(MachineError, match="another run of hw4 has begun"):
            orphan.note(20, 40)
            orphan.close()
        assert joint.written() == []
        with Writer(joint) as writer:
            writer.note(50, 60)
        assert joint.written() == [(50, 60)]


def test_a_process_that_writes_into_what_another_run_completes_says_so(joint):
    late = Writer(joint)
    with joint.begun(go_on=False), Writer(joint) as writer:
        writer.note(0, 100)
    joint.complete()
    with pytest.raises(MachineError, match="another run of hw4 has"), late:
        late.note(0, 20)
    assert not joint.folder.exists()


def test_processes_that_begin_at_once_lose_no_list(joint):
    ready = threading.Barrier(8)

    def write(number):
        ready.wait()
        with Writer(joint) as writer:
            writer.note(10 * number, 10 * number + 10)

    for _ in range(30):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))
        assert joint.written() == [(0, 80)]
        joint.remove()


def test_the_part_is_not_opened_for_reading(joint):
    """NFS would read a page before it writes some bytes of it, and then write the whole: over another node's bytes."""
    file = joint.opened()
    assert fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    os.close(file)


def test_a_list_is_written_whole_or_the_disk_is_full(joint, monkeypatch):
    sizes, write = [], os.write

    def few(file, data):
        sizes.append(len(data))
        return write(file, bytes(data)[:3])

    with Writer(joint) as writer:
        monkeypatch.setattr(os, "write", few)
        writer.note(0, 60)
    assert len(sizes) > 1
    assert joint.written() == [(0, 60)]


def test_a_part_that_is_another_thing_is_not_touched(joint, tmp_path):
    joint.folder.mkdir()
    (tmp_path / "precious").write_bytes(b"precious")
    joint.part.symlink_to(tmp_path / "precious")
    with pytest.raises(MachineError):
        Writer(joint)
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_folder_without_a_part_that_holds_another_file_is_an_error_soon_and_keeps_the_file(joint):
    """NFS leaves such a file as long as some process has a removed one open."""
    joint.folder.mkdir()
    foreign = joint.folder / ".nfs1"
    foreign.write_bytes(b"precious")
    with pytest.raises(MachineError, match=re.escape(f"{joint.folder} holds .nfs1")):
        joint.opened()
    assert foreign.read_bytes() == b"precious"
    assert [*joint.folder.parent.iterdir()] == [joint.folder]


def test_a_file_that_goes_away_soon_is_waited_for(joint):
    joint.folder.mkdir()
    foreign = joint.folder / ".nfs1"
    foreign.touch()
    timer = threading.Timer(0.3, foreign.unlink)
    timer.start()
    os.close(joint.opened())
    timer.join()
    assert joint.part.exists()


def test_a_run_that_begins_while_another_completes_keeps_its_list(joint, monkeypatch):
    replace = Path.replace

    def replace_and_begin(part, target):
        replace(part, target)
        with Writer(joint) as writer:
            writer.note(0, 60)

    with Writer(joint) as writer:
        writer.note(0, 100)
    monkeypatch.setattr(Path, "replace", replace_and_begin)
    joint.complete()
    assert joint.written() == [(0, 60)]


def test_the_key_changes_with_the_input_and_the_options(tmp_path):
    source = write_case(tmp_path / "in", random_block(1, 4, 4))
    keys = {key_of(source, tmp_path / "out", ["flash"]), key_of(source, tmp_path / "out", ["split"])}
    keys.add(key_of(source, tmp_path / "other", ["flash"]))
    os.utime(source, ns=(1, 1))
    keys.add(key_of(source, tmp_path / "out", ["flash"]))
    assert len(keys) == 4


def test_a_line_that_was_cut_off_is_none():
    assert LINE.findall("\n12 30;\n1\n5 6;") == [("12", "30"), ("5", "6")]
