"""What students hand in and a class's folder holds as it comes: nobody is missing, and each reason is so."""

import io
import json
import os
import stat
import tarfile
import zipfile

import pytest
from classes import board, correct, judge_class, submit
from helpers import run_here
from needs import needs

from hw4cli.judge import intake
from hw4cli.judge.intake import UnpackError, make_ready, owner, unpack
from hw4cli.judge.submission import scan


def loose(workdir, *names):
    for name in names:
        (workdir / "submissions" / name).write_bytes(b"PK\3\4")


def packed(path, files, kind="zip"):
    """An archive of these texts, by name."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(name, text)
    else:
        with tarfile.open(path, f"w:{kind}") as archive:
            for name, text in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(text.encode())
                archive.addfile(info, io.BytesIO(text.encode()))
    return path


def notes(workdir, user):
    return board(workdir)[user].session["settings"].get("notes", [])


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "user", "file"),
    [
        ("ann.zip", "ann", "hw4.zip"),
        ("112062123_hw4.cu", "112062123", "hw4.cu"),
        ("cid.tar.gz", "cid", "hw4.tar.gz"),
        ("wangmei_12345_67890_hw4.cu", "wangmei_12345", "hw4.cu"),
        ("wangmei_LATE_12345_67890_hw4-2.cu", "wangmei_12345", "hw4.cu"),
        ("王 美_4711_assignsubmission_file_hw4.zip", "王 美_4711", "hw4.zip"),
        ("王美_112062123_hw4.cu", "王美_112062123", "hw4.cu"),
        ("ann_112062123_report.pdf", "ann_112062123", "report.pdf"),
        ("roster.csv", "", ""),
        ("Makefile", "", ""),
        ("README", "", ""),
    ],
)
def test_a_files_owner_is_in_its_name(name, user, file):
    assert owner(name) == (user, file)


def test_a_platforms_folders_are_the_students_and_texts_beside_files_do_not_count(tmp_path):
    for name in ("Mei Wang_4711_assignsubmission_file_", "Mei Wang_4711_assignsubmission_onlinetext_", "ann"):
        (tmp_path / name).mkdir()
    found = {one.user: one.folder.name for one in scan(tmp_path)}
    assert found == {"Mei Wang_4711": "Mei Wang_4711_assignsubmission_file_", "ann": "ann"}


def test_two_files_of_one_student_are_one_student_and_a_chosen_one_is_found(workdir):
    submit(workdir, "ann", hw4="#!/bin/true\n")
    loose(workdir, "ben.cu", "ben.zip", "ben_HW4.cu", "a\nb.zip", "hw4.cu", "-rf.zip")
    found = {one.user: [path.name for path in one.loose] for one in scan(workdir / "submissions")}
    assert found.pop("ben") == ["ben.cu", "ben.zip", "ben_HW4.cu"]
    assert found == {"ann": [], "a\nb": ["a\nb.zip"], "hw4": ["hw4.cu"], "-rf": ["-rf.zip"]}
    assert [one.user for one in scan(workdir / "submissions", ["ben"])] == ["ben"]


@pytest.mark.parametrize("name", ["slurm.zip", "results.json.zip", "pseudonyms.json.tar.gz"])
def test_a_loose_file_of_a_name_that_hw4_needs_is_refused(workdir, folder, name):
    submit(workdir, "ann", hw4="#!/bin/true\n")
    loose(workdir, name)
    result = judge_class(folder)
    assert (result.returncode, "no student's folder can be called" in result.stderr) == (2, True)


# --- archives --------------------------------------------------------------------------------------------------------


@needs("make")
def test_archives_are_unpacked_and_judged_and_what_cannot_be_is_its_authors_or_nobodys_fault(workdir, folder):
    program = correct(folder, workdir / "runs")
    submit(workdir, "ann", hw4=program)
    there = workdir / "submissions"
    packed(there / "ben.zip", {"ben/hw4": program, "ben/report.pdf": "", "__MACOSX/ben/._hw4": "junk"})
    packed(there / "cid.tar.gz", {"hw4/Makefile": "hw4:\r\n\tcp x hw4; chmod +x hw4\r\n", "hw4/x": program}, "gz")
    packed(there / "dan_1234_hw4.zip", {"hw4": program})
    loose(workdir, "eve.zip", "fay.rar", "Makefile", "roster.csv", "README", "ann.zip", ".x.zip")
    (there / "gus").mkdir()
    packed(there / "gus" / "my hw4.zip", {"a/b/hw4": program})
    result = judge_class(folder)
    assert result.returncode == 3, "one archive is of a kind that is not unpacked: not everyone is judged"
    said = " ".join(result.stderr.split())
    assert "fay: not judged: fay.rar is no zip and no tar: unpack it into a folder fay in submissions" in said
    assert "roster" not in said and "ann.zip" not in said
    found = board(workdir)
    scores = {user: one.score for user, one in found.items()}
    assert scores == {**dict.fromkeys(["ann", "ben", "cid", "dan_1234", "gus"], 60), "eve": 0, "fay": None}
    assert found["eve"].note.startswith("hw4.zip is damaged")
    assert notes(workdir, "ben") == ["unpacked hw4.zip", "its files lie in ben/"]
    assert notes(workdir, "cid") == ["unpacked hw4.tar.gz", "no report.pdf", "its files lie in hw4/", ENDS]
    assert notes(workdir, "gus") == ["unpacked my hw4.zip", "no report.pdf", "its files lie in a/b/"]
    handout = (workdir / "out" / "ben" / "handout.md").read_text()
    assert "Your submission: unpacked hw4.zip; its files lie in ben/." in handout
    page = workdir / "board.html"
    shown = run_here("scoreboard", workdir / "out", "-o", page, "--anonymous")
    assert shown.returncode == 0 and "a file that is not unpacked" in page.read_text()
    assert "fay.rar" not in page.read_text() and "fay" not in shown.stdout
    again = judge_class(folder, "--resume")
    assert again.stdout.count("judged before") == 6 and (workdir / "runs").read_text().count("run") == 5


ENDS = "line ends of Windows in Makefile"


def hostile(name):
    return {name: "x", "hw4": "#!/bin/true\n"}


@pytest.mark.parametrize("kind", ["zip", "gz"])
@pytest.mark.parametrize("name", ["../out", "/etc/hw4-was-here", "a/../../out", "..\\out", "C:/out"])
def test_no_path_of_an_archive_leaves_its_folder(tmp_path, name, kind):
    if kind == "gz" and "\\" in name:
        pytest.skip("a tar's names may have backslashes, which lead nowhere")
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(UnpackError, match="leads out of its folder"):
        unpack(packed(inside / "hw4.bin", hostile(name), kind), inside, 1 << 20, 100)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_links_and_devices_of_an_archive_are_left_out_and_links_before_it_are_not_followed(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir(), outside.mkdir()
    archive = inside / "hw4.tar"
    with tarfile.open(archive, "w") as tar:
        for name, kind in (("link", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE), ("pipe", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
        tar.addfile(tarfile.TarInfo("hw4"), io.BytesIO())
    unpack(archive, inside, 1 << 20, 100)
    assert {path.name for path in inside.iterdir()} == {"hw4.tar", "hw4"}
    (inside / "away").symlink_to(outside)
    with pytest.raises(UnpackError, match="leads out"):
        unpack(packed(inside / "b.zip", {"away/deeper/x": ""}), inside, 1 << 20, 100)
    assert not list(outside.iterdir())
    info = zipfile.ZipInfo("hw4")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(inside / "c.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    (inside / "hw4").unlink()
    unpack(inside / "c.zip", inside, 1 << 20, 100)
    assert not (inside / "hw4").exists()


def test_what_an_archive_holds_is_limited_as_it_is_read_whatever_its_headers_say(tmp_path):
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(8 << 20))
    assert bomb.stat().st_size < 20_000
    with pytest.raises(UnpackError, match="more than 1 MB"):
        unpack(bomb, tmp_path, 1 << 20, 100)
    assert (tmp_path / "zeros").stat().st_size <= 1 << 20
    many = packed(tmp_path / "many.zip", {str(number): "" for number in range(50)})
    with pytest.raises(UnpackError, match="more than 20 files"):
        unpack(many, tmp_path / "n", 1 << 20, 20)


@pytest.mark.parametrize(
    "data", [b"", b"PK\3\4", b"no archive at all", os.urandom(600)], ids=["empty", "cut", "text", "random"]
)
def test_a_damaged_archive_is_one_sentence(tmp_path, data):
    (tmp_path / "hw4.zip").write_bytes(data)
    with pytest.raises(UnpackError, match="is damaged"):
        unpack(tmp_path / "hw4.zip", tmp_path, 1 << 20, 100)


@pytest.mark.parametrize("kind", ["zip", "bz2", "xz"])
def test_an_archive_that_is_damaged_inside_is_one_sentence(tmp_path, kind):
    archive = packed(tmp_path / "hw4.archive", {"hw4.cu": "\n".join(map(str, range(20_000)))}, kind)
    data = archive.read_bytes()
    half = len(data) // 2  # the directory at a zip's end stays
    archive.write_bytes(data[:half] + bytes(byte ^ 0x5A for byte in data[half:-200]) + data[-200:])
    with pytest.raises(UnpackError, match="is damaged"):
        unpack(archive, tmp_path, 1 << 20, 100)


def test_an_archive_with_a_password_and_one_that_is_in_itself_are_refused(tmp_path):
    locked = packed(tmp_path / "locked.zip", {"hw4": "x"})
    data = bytearray(locked.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1  # the flag of encryption, in both headers
    locked.write_bytes(bytes(data))
    with pytest.raises(UnpackError, match="needs a password"):
        unpack(locked, tmp_path, 1 << 20, 100)
    with pytest.raises(UnpackError, match=r"same name|twice"):
        unpack(packed(tmp_path / "twice.zip", {"a": "", "a/b": ""}), tmp_path, 1 << 20, 100)


def test_an_archive_in_an_archive_is_unpacked_but_not_for_ever(tmp_path, monkeypatch):
    inner = packed(tmp_path / "inner.zip", {"hw4.cu": "x"}).read_bytes()
    copy = tmp_path / "copy"
    copy.mkdir()
    with zipfile.ZipFile(copy / "outer.zip", "w") as archive:
        archive.writestr("w/inner.zip", inner)
    assert make_ready(copy, 1 << 20, 100)[:2] == ["unpacked outer.zip", "unpacked w/inner.zip"]
    assert (copy / "hw4.cu").exists()
    endless = packed(tmp_path / "a.zip", {}).read_bytes()
    for _ in range(9):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("a.zip", endless)
        endless = (tmp_path / "a.zip").read_bytes()
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "a.zip").write_bytes(endless)
    assert len([one for one in make_ready(deep, 1 << 20, 100) if one.startswith("unpacked")]) == intake.DEPTH


# --- folders, sources, line ends ----------------------------------------------------------------------------------

COMPILER = """#!/bin/sh
# A stand-in for a compiler: it checks its words, and "compiles" a source that is a script.
[ "$1 $3 $4" = "-O9 -o hw4" ] || { echo "stand-in: what is $*?" >&2; exit 2; }
if grep -q Unsupported "$2"; then
    echo "nvcc fatal   : Unsupported gpu architecture 'sm_61'" >&2
    exit 1
fi
grep -v '^//' "$2" > hw4 && chmod +x hw4
"""


@pytest.fixture
def compiler(tmp_path):
    path = tmp_path / "bin" / "fakecc"
    path.parent.mkdir()
    path.write_text(COMPILER)
    path.chmod(0o755)
    path.parent.chmod(0o755)
    return f"{path} -O9"


@needs("make")
def test_the_reason_of_a_submission_without_a_program_is_what_its_author_did(workdir, folder, compiler):
    (workdir / "submissions").mkdir(exist_ok=True)
    texts = {
        "two": {"a.cu": "", "b.cu": ""},
        "both": {"x/Makefile": "hw4:\n", "y/Makefile": "hw4:\n"},
        "packed": {"hw4.rar": ""},
        "folder": {"hw4/notes.txt": ""},
        "mention": {"not-hw4.cu.txt": ""},
        "old": {"hw4.cu": "// Unsupported\n"},
        "make": {"Makefile": "hw4:\n\t@echo \"nvcc fatal : Unsupported gpu architecture 'sm_61'\" >&2; exit 1\n"},
    }
    for user, files in texts.items():
        for name, text in files.items():
            path = workdir / "submissions" / user / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    result = judge_class(folder, "--build", compiler)
    assert result.returncode == 0, result.stderr
    assert {user: one.note for user, one in board(workdir).items()} == {
        "two": "there are a.cu, b.cu, but no Makefile: which one is hw4?",
        "both": "2 folders hold an hw4 or a Makefile (x, y): which one is meant?",
        "packed": "there is an archive hw4.rar, which hw4 does not unpack: zip and tar alone",
        "folder": "hw4 is a folder, not a program",
        "mention": "there is no hw4 and no Makefile, nor an hw4.cu: only not-hw4.cu.txt",
        "old": "fakecc hw4.cu failed: nvcc fatal   : Unsupported gpu architecture 'sm_61'",
        "make": "make hw4 failed: nvcc fatal : Unsupported gpu architecture 'sm_61'",
    }
    assert "broken build: fakecc hw4.cu failed" in result.stdout


@needs("make")
def test_a_source_alone_is_built_by_a_line_that_the_log_says_and_another_line_builds_it_again(
    workdir, folder, compiler
):
    program = correct(folder, workdir / "runs")
    (workdir / "submissions").mkdir(exist_ok=True)
    for name in ("ann/hw4.cu", "ben/hw4/hw4.hip", "cid/cid_final.cu", "dan_hw4.cu"):
        path = workdir / "submissions" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(program.replace("\n", "\r\n"))
    submit(workdir, "eve", Makefile="hw4:\n\tcp x hw4; chmod +x hw4\n", x=program)
    result = judge_class(folder, "--build", compiler)
    assert result.returncode == 0, result.stderr
    assert {user: one.score for user, one in board(workdir).items()} == dict.fromkeys(
        ("ann", "ben", "cid", "dan", "eve"), 60
    )
    log = (workdir / "out" / "ann" / "build.txt").read_text()
    assert log.startswith(f"$ {compiler} hw4.cu -o hw4\n")
    assert "no Makefile: built by fakecc -O9 cid_final.cu -o hw4" in notes(workdir, "cid")
    assert "its files lie in hw4/" in notes(workdir, "ben") and "line ends of Windows in hw4.hip" in notes(
        workdir, "ben"
    )
    assert judge_class(folder, "--build", compiler, "--resume").stdout.count("judged before") == 5
    other = judge_class(folder, "--build", f"/usr/bin/env {compiler}", "--resume")
    assert other.returncode == 0 and other.stdout.count("judged before") == 1, "make does not depend on the line"


@needs("make")
def test_a_missing_compiler_is_the_judges_failure(workdir, folder):
    submit(workdir, "ann", hw4_cu="int main() {}\n")
    result = judge_class(folder, "--build", "no-such-compiler -O3")
    assert result.returncode == 3 and board(workdir)["ann"].score is None
    assert "no-such-compiler is not installed here: hw4.cu cannot be built" in result.stderr


def test_reports_are_noted(tmp_path):
    for number, (names, said) in enumerate(
        (
            (["hw4.cu"], ["no report.pdf"]),
            (["hw4.cu", "report.pdf"], []),
            (["hw4.cu", "Report.PDF"], []),
            (["hw4.cu", "my.pdf"], ["its report is called my.pdf"]),
            (["hw4.cu", "a.pdf", "b.pdf"], ["2 PDFs: a.pdf, b.pdf"]),
        )
    ):
        copy = tmp_path / str(number)
        copy.mkdir()
        for name in names:
            (copy / name).touch()
        assert make_ready(copy, 1 << 20, 100) == said


def test_standings_of_all_are_in_the_results(workdir, folder):
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    loose(workdir, "ben.rar")
    judge_class(folder)
    names = [one["user"] for one in json.loads((workdir / "out" / "results.json").read_text())["standings"]]
    assert sorted(names) == sorted(board(workdir)) == ["ann", "ben"]
