"""Checksums of the cases: a file is read once, every change is seen, the record beside it may be lost or damaged."""

import hashlib
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hw4cli.errors import InputError
from hw4cli.problem import checksums
from hw4cli.problem.checksums import RECORD, answer_sha256, note_answer, note_file, sha256, verify


def digest(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "t01"
    path.write_bytes(b"some bytes")
    return path


@pytest.fixture
def reads(monkeypatch):
    """The files that were read in full, in order."""
    read, original = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: read.append(file.name) or original(file, name))
    return read


def forget():
    """As if another process came."""
    checksums._in_memory.clear()


def test_a_file_is_read_once_and_then_recognised_also_by_another_process(file, reads):
    assert verify(file, digest(b"some bytes"))
    assert not verify(file, digest(b"other bytes"))
    forget()
    assert verify(file, digest(b"some bytes"))
    assert len(reads) == 1


def overwritten(path):
    with path.open("r+b") as file:
        file.write(b"S")


def overwritten_with_the_old_times(path):
    status = path.stat()
    overwritten(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replaced(path):
    other = path.with_name("other")
    other.write_bytes(b"SOME BYTES")
    other.replace(path)


@pytest.mark.parametrize("change", [overwritten, overwritten_with_the_old_times, replaced])
@pytest.mark.parametrize("how", ["verified", "noted"])
def test_every_change_is_seen_even_at_once_and_with_the_same_size(file, change, how):
    known = digest(b"some bytes")
    if how == "verified":
        assert verify(file, known)
    else:
        note_file(file, known)
    change(file)
    assert not verify(file, known)


def test_a_file_that_was_noted_when_written_is_not_read(file, reads):
    note_file(file, digest(b"some bytes"))
    forget()
    assert verify(file, digest(b"some bytes"))
    assert not reads


def test_an_answers_hash_belongs_to_the_input_it_was_made_from(file):
    answer = file.with_name("t01.out")
    answer.write_bytes(b"an answer")
    note_answer(answer, digest(b"an answer"), digest(b"some bytes"))
    forget()
    assert answer_sha256(answer, digest(b"some bytes")) == digest(b"an answer")
    assert answer_sha256(answer, digest(b"other bytes")) is None
    overwritten(answer)
    assert not verify(answer, answer_sha256(answer, digest(b"some bytes")))
    assert answer_sha256(answer, digest(b"some bytes")) == digest(b"an answer"), "a damaged file's hash took its place"


def test_a_folder_that_cannot_be_written_costs_only_time(file, reads, monkeypatch):
    def refused(path, text):
        raise PermissionError

    monkeypatch.setattr(checksums, "write_text", refused)
    assert verify(file, digest(b"some bytes"))
    assert verify(file, digest(b"some bytes"))
    assert len(reads) == 1, "one process reads a file once all the same"
    assert not (file.parent / RECORD).exists()


def test_entries_that_others_wrote_meanwhile_are_kept(file):
    for name in ("a", "b"):
        file.with_name(name).write_bytes(b"x")
        assert sha256(file.with_name(name)) == digest(b"x")
    assert json.loads((file.parent / RECORD).read_text())["hashed"].keys() == {"a", "b"}


@pytest.mark.parametrize("missing", ["nothing", "folder", "pipe"])
def test_what_is_no_file_is_refused(tmp_path, missing):
    path = tmp_path / "t01"
    if missing == "folder":
        path.mkdir()
    elif missing == "pipe":
        os.mkfifo(path)
    with pytest.raises(InputError, match=str(path)):
        sha256(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.sampled_from(["", "schema", "hashed", "answers", "entry", "sha256", "stamp", "input"]), value=json_values
)
def test_a_damaged_record_is_as_if_it_were_not_there(file, place, value):
    entry = {"sha256": digest(b"wrong"), "stamp": [1, 2, 3, 4], "input": digest(b"input")}
    if place in entry:
        entry[place] = value
    record = {"schema": 1, "hashed": {"t01": entry}, "answers": {"t01": entry}}
    if place == "entry":
        record["hashed"]["t01"] = record["answers"]["t01"] = value
    elif place in record:
        record[place] = value
    (file.parent / RECORD).write_text(json.dumps(record if place else value))
    forget()
    assert sha256(file) == digest(b"some bytes")
    answer_sha256(file, digest(b"input"))
    forget()
    assert sha256(file) == digest(b"some bytes"), "and the record was written anew"


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_record_that_is_no_json_is_as_if_it_were_not_there(file, text):
    (file.parent / RECORD).write_bytes(text)
    assert sha256(file) == digest(b"some bytes")
