"""Damaged submissions, cases, suites and records: what is wrong is said in a sentence, and nothing is lost."""

import json
import os
import stat
from dataclasses import replace

from fuzzing import EXAMPLES, a_folder, fuzz, json_values
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import slow

from hw4cli.errors import Hw4Error, InputError
from hw4cli.judge import casemanifest
from hw4cli.judge.casemanifest import CaseManifest
from hw4cli.judge.casewatch import CaseWatch
from hw4cli.judge.runcase import check_case
from hw4cli.judge.scoring import pseudonyms
from hw4cli.judge.submission import BrokenError, Build, Submission, build_program, scan
from hw4cli.lab.arrays.named import read_named, workload
from hw4cli.problem import suite
from hw4cli.problem.casefile import HEADER, InputFile
from hw4cli.problem.suite import Case
from hw4cli.problem.workload import Shape
from hw4cli.resources import data_path
from hw4cli.sandbox.confine import Confinement

KINDS = ["file", "file", "file", "folder", "link", "pipe", "program", "makefile"]
names = st.text(st.characters(blacklist_characters="/\0"), min_size=1, max_size=6).filter(
    lambda name: name not in (".", "..")
)
trees = st.lists(
    st.tuples(
        st.lists(
            names | st.sampled_from(["hw4", "Makefile", "hw4.cu", "-rf", "a b", "\udcff"]), min_size=1, max_size=3
        ),
        st.sampled_from(KINDS),
        st.sampled_from([0o777, 0o644, 0o000, 0o400]),
        st.binary(max_size=12) | st.sampled_from([b"hw4:\n\tfalse\n", b"#!/bin/sh\n", b"\x7fELF", b"#!\n", b"all:\n"]),
    ),
    max_size=6,
)


def plant(folder, tree):
    """Make what there can be made of a tree."""
    for parts, kind, mode, content in tree:
        path = folder.joinpath(*("Makefile" if kind == "makefile" and part == parts[-1] else part for part in parts))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                continue
            if kind == "folder":
                path.mkdir()
            elif kind == "link":
                path.symlink_to(os.fsdecode(content.replace(b"\0", b"x")) or "x")
            elif kind == "pipe":
                os.mkfifo(path)
            else:
                path.write_bytes(content)
                path.chmod(mode)
        except (OSError, ValueError):
            continue


def snapshot(folder):
    """Names, kinds, permissions and bytes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        found[path] = (
            status.st_mode,
            path.read_bytes() if stat.S_ISREG(status.st_mode) and status.st_mode & 0o400 else b"",
        )
    return found


@slow
@settings(fuzz, max_examples=max(20, EXAMPLES // 4))
@given(tree=trees)
def test_a_submission_may_hold_anything_and_is_only_read(tree):
    with a_folder() as folder:
        place = folder / "submissions" / "ann"
        place.mkdir(parents=True)
        plant(place, tree)
        before = snapshot(place)
        one = Submission("ann", place)
        assert len(one.sha256) == 64 and one.contents.size >= 0
        one.handed_in  # noqa: B018
        try:
            program = build_program(one, folder / "out", Build(10, Confinement(), folder)).program
            assert program.resolve().is_relative_to((folder / "out").resolve())
        except (BrokenError, Hw4Error) as error:
            assert str(error)
        assert snapshot(place) == before


@st.composite
def case_files(draw):
    """The bytes of an input file that is not quite one."""
    sizes = st.integers(0, 5) | st.sampled_from([-1, 2**31 - 1, -(2**31), 129, 4])
    text = HEADER.pack(draw(sizes), draw(sizes), draw(sizes)) + draw(st.binary(max_size=64))
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


CASE = Case("t", Shape(1, 1, 4), 1, 1.0, "0" * 64)


@fuzz
@given(source=case_files(), answer=st.binary(max_size=20), known=st.booleans())
def test_a_case_may_hold_anything(source, answer, known):
    with a_folder() as folder:
        (folder / "t").write_bytes(source)
        (folder / "t.out").write_bytes(answer)
        case = CASE if known else replace(CASE, sha256="")
        for read in (
            lambda: InputFile(folder / "t").ranges(),
            lambda: check_case(case, folder),
            lambda: CaseWatch([case], folder).check(),
            lambda: CaseWatch([case], folder, CaseManifest(folder / casemanifest.NAME, secret=False)).check(),
        ):
            try:
                read()
            except Hw4Error as error:
                assert str(error)
        assert (folder / "t").read_bytes() == source and (folder / "t.out").read_bytes() == answer


SUITE = data_path("testcases/suite.toml").read_text()
toml_values = st.sampled_from(
    ["1", "-1", "1e999", "nan", "'x'", "[]", "[1, 2]", "{}", "true", "1979-05-27", "9" * 400, '"\\u0000"']
)


@st.composite
def suites(draw):
    """The text of a suite in which something is not as it was written."""
    lines = SUITE.splitlines()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        name, equals, _ = lines[at].partition(" = ")
        lines[at] = draw(
            st.sampled_from(
                [lines[at][: len(lines[at]) // 2], f"{name}{equals}{draw(toml_values)}", draw(st.text(max_size=9))]
            )
        )
    text = "\n".join(lines).encode(errors="replace")
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.binary(max_size=3)) + text[at:]


@fuzz
@given(text=suites())
def test_a_suite_may_hold_anything(text):
    with a_folder() as folder:
        (folder / "suite.toml").write_bytes(text)
        try:
            assert all(case.shape.B and case.limit > 0 for case in suite.read(folder / "suite.toml").values())
        except InputError as error:
            assert "suite.toml" in str(error)


WORKLOADS = data_path("testcases/workloads.toml").read_text()


@fuzz
@given(
    at=st.integers(0, len(WORKLOADS)),
    cut=st.integers(0, 30),
    more=st.binary(max_size=6) | toml_values.map(str.encode),
    text=st.text(max_size=20)
    | st.lists(st.sampled_from(["N=1", "d=64", "N=" + "9" * 30, "B=0", "causal", "dtype=x", "="])).map(" ".join),
)
def test_a_file_of_workloads_and_their_words_may_hold_anything(at, cut, more, text):
    whole = WORKLOADS.encode()
    with a_folder() as folder:
        (folder / "workloads.toml").write_bytes(whole[:at] + more + whole[at + cut :])
        texts = [text]
        try:
            texts += read_named(folder / "workloads.toml").values()
        except InputError as error:
            assert "workloads.toml" in str(error)
        for one in texts:
            try:
                assert str(workload(one))
            except InputError as error:
                assert str(error)


CLASS_NAMES = names | st.sampled_from(
    ["ann", "ann.zip", "b_hw4.cu", "hw4.cu", "slurm.zip", "journal.jsonl", ".x", "a\nb.cu", "\udcff.zip"]
)


@fuzz
@given(entries=st.dictionaries(CLASS_NAMES, st.sampled_from(KINDS), max_size=8), only=st.lists(CLASS_NAMES, max_size=1))
def test_a_classs_folder_may_hold_anything(entries, only):
    """Each folder and each loose file is somebody's, or there is one sentence about it."""
    with a_folder() as folder:
        plant(folder, [([name], kind, 0o644, b"x") for name, kind in entries.items()])
        try:
            found = scan(folder, only)
        except InputError as error:
            assert str(error)
            return
        assert found and len({one.user for one in found}) == len(found)
        for one in found:
            assert one.user and "/" not in one.user and not one.user.startswith(".")
            assert len(one.sha256) == 64
            assert one.folder.is_dir() != bool(one.loose)
        owners = {one.user for one in found}
        assert only or {name for name in entries if (folder / name).is_dir() and name[0] != "."} <= owners


@st.composite
def documents(draw):
    """A record of cases or of pseudonyms, damaged."""
    seen = {"sha256": "0" * 64, "stamp": [1, 2, 3, 4]}
    document = {
        "schema": 1,
        "secret": False,
        "cases": {"t": {"seed": 1, "input": seen, "answer": None}},
        "names": {"a": "b"},
    }
    places = [document, document["cases"], document["cases"]["t"], seen, document["names"]]
    place = draw(st.sampled_from(places))
    place[draw(st.sampled_from(sorted(place)))] = draw(json_values)
    text = json.dumps(document).encode()
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@fuzz
@given(text=documents() | st.binary(max_size=20))
def test_records_beside_the_results_may_hold_anything(text):
    with a_folder() as folder:
        for name, read in (
            (casemanifest.NAME, lambda: CaseManifest.load(folder, secret=False).save()),
            (pseudonyms.NAME, lambda: pseudonyms.pseudonyms(folder, ["ann"])),
        ):
            (folder / name).write_bytes(text)
            try:
                read()
            except Hw4Error as error:
                assert name in str(error) or str(folder) in str(error)
                assert (folder / name).read_bytes() == text
