"""`hw4 report` of a folder that somebody else filled: what is not in it is neither shown nor written."""

import base64
import json
from dataclasses import replace

import pytest
from boards import RIGHT, write
from records import row, written
from slow import quick_of_each
from student import record, student

from hw4cli.judge.scoring import journal, storedrules
from hw4cli.judge.scoring.record import Rules
from hw4cli.show.report import material

SECRET = "the password is swordfish"
KERNEL = f"// other: {SECRET}\n// Like: naive\n// Idea: {SECRET}.\n"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SHAPE = (4, 16384, 64)


def gathered(folder):
    """How many of the author's cases pass, and the problems of the judged results."""
    problems = []
    return material._judged(folder, problems).passed, problems


@pytest.fixture
def foreign(tmp_path):
    """A folder with a ladder; beside it, not in it, lie private files."""
    outside = tmp_path / "private"
    outside.mkdir()
    (outside / "other.cu").write_text(KERNEL)
    (outside / "photo.png").write_bytes(PIXEL)
    return student(tmp_path / "foreign", "h200-ladder")


def _measured(folder, kernel):
    """A record of a kernel in a file, faster than all others."""
    written(
        folder / "own.json",
        row(kernel, SHAPE, 1.0, case="t28"),
        machine={"gpu": "NVIDIA H200", "compute_capability": "9.0"},
        date="2026-11-22",
    )


def _texts(folder):
    return "".join(path.read_text() for path in (folder / "report.md", folder / "report.html") if path.exists())


@quick_of_each(2)
@pytest.mark.parametrize("name", ["../private/other.cu", "{}/private/other.cu", "other.cu", "./other.cu"])
def test_comments_are_taken_of_no_file_that_only_a_record_names(hw4_here, foreign, name):
    """Nor of one that hw4 is run beside."""
    (foreign.parent / "other.cu").write_text(KERNEL)
    _measured(foreign, name.format(foreign.parent))
    result = hw4_here("report", foreign)
    assert result.returncode == 0, result.stderr
    assert SECRET not in _texts(foreign)
    assert "is not in" in _texts(foreign) and "copy it there, or name it in the command" in _texts(foreign)


def test_a_kernels_file_in_the_folder_is_read_and_one_behind_a_link_is_not(hw4_here, foreign):
    _measured(foreign, "./other.cu")
    (foreign / "other.cu").symlink_to(foreign.parent / "private" / "other.cu")
    assert hw4_here("report", foreign).returncode == 0
    assert SECRET not in _texts(foreign)
    (foreign / "other.cu").unlink()
    (foreign / "other.cu").write_text(KERNEL)
    assert hw4_here("report", foreign).returncode == 0
    assert SECRET in _texts(foreign)


def test_a_kernel_that_is_named_may_lie_elsewhere_but_not_if_only_the_report_names_it(hw4_here, foreign):
    _measured(foreign, "x/other.cu")
    own = foreign.parent / "private" / "other.cu"
    assert hw4_here("report", foreign, own).returncode == 0
    assert SECRET in _texts(foreign)
    (foreign / "report.md").write_text(f"<!-- hw4 report: form=assignment kernel={own} -->\n# Mine\n")
    result = hw4_here("report", foreign)
    assert result.returncode == 0 and SECRET not in _texts(foreign)


@quick_of_each(2)
@pytest.mark.parametrize("name", ["../private/photo.png", "{}/private/photo.png", "linked.png", "links/photo.png"])
def test_no_picture_from_elsewhere_is_put_into_the_page(hw4_here, foreign, name):
    (foreign / "linked.png").symlink_to(foreign.parent / "private" / "photo.png")
    (foreign / "links").symlink_to(foreign.parent / "private")
    (foreign / "own.png").write_bytes(PIXEL)
    assert hw4_here("report", foreign).returncode == 0
    with (foreign / "report.md").open("a") as file:
        file.write(
            f"\n![time in ms, ladder.json]({name.format(foreign.parent)})\n\n![time in ms, ladder.json](own.png)\n"
        )
    assert hw4_here("report", foreign).returncode == 0
    page = (foreign / "report.html").read_text()
    assert page.count(base64.b64encode(PIXEL).decode()) == 1, "its own"
    checked = hw4_here("report", foreign, "--check")
    assert checked.returncode == 1 and "there is no file" in checked.stdout and "own.png" not in checked.stdout


def test_records_profiles_and_journals_behind_links_out_of_the_folder_are_named_and_not_read(hw4_here, foreign):
    outside = foreign.parent / "private"
    record(outside, "h200-thirty", commit=SECRET)
    (outside / "ncu.csv").write_text("Kernel Name,Metric Name\n")
    write(outside, RIGHT, user=SECRET, cases=["t01"])
    (foreign / "more").mkdir()
    for name in ("thirty.json", "more/ncu.csv", f"more/{journal.NAME}"):
        (foreign / name).symlink_to(outside / name.removeprefix("more/"))
    result = hw4_here("report", foreign)
    assert result.returncode == 0 and SECRET not in _texts(foreign)
    for name in ("thirty.json", "more/ncu.csv", f"more/{journal.NAME}"):
        assert f"{name} is a link that leads out" in " ".join(result.stderr.split())


@pytest.mark.parametrize("name", ["report.md", "report.html", "figures", "figures/ladder.svg"])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_nothing_is_written_through_a_link(hw4_here, foreign, name, force):
    outside = foreign.parent / "private"
    target = outside / "new" if name != "figures" else outside
    (foreign / name).parent.mkdir(exist_ok=True)
    (foreign / name).symlink_to(target)
    before = sorted(path.name for path in outside.iterdir())
    result = hw4_here("report", foreign, *force)
    assert (result.returncode, "is a link that leads out of" in result.stderr) == (2, True), result.stderr
    assert sorted(path.name for path in outside.iterdir()) == before


def test_a_kept_copy_is_not_written_through_a_link(hw4_here, foreign):
    (foreign / "report.md").write_text("my own\n")
    (foreign / "report-1.md").symlink_to(foreign.parent / "private" / "new")
    assert hw4_here("report", foreign, "--force").returncode == 0
    assert (foreign / "report-2.md").read_text() == "my own\n"
    assert not (foreign.parent / "private" / "new").exists()


def test_a_journal_that_is_a_loop_of_links_is_named(hw4_here, foreign):
    (foreign / "judged").mkdir()
    (foreign / "judged" / journal.NAME).symlink_to(journal.NAME)
    result = hw4_here("report", foreign)
    assert result.returncode == 0 and "damaged" in result.stderr, result.stderr


def test_a_report_is_by_the_rules_that_are_stored_beside_the_journal(foreign):
    write(foreign / "judged", replace(RIGHT, wall=2.5), user="ann", cases=["t01"])
    assert gathered(foreign) == (0, [])
    storedrules.write(foreign / "judged", Rules(limits={"t01": 3.0}))
    assert gathered(foreign) == (1, [])


def test_rules_that_are_damaged_or_behind_a_link_out_of_the_folder_are_named_and_not_read(foreign):
    write(foreign / "judged", replace(RIGHT, wall=2.5), user="ann", cases=["t01"])
    path = foreign / "judged" / storedrules.NAME
    path.write_text("{")
    passed, [problem] = gathered(foreign)
    assert (passed, "rules.json is damaged" in problem) == (0, True)
    storedrules.write(foreign.parent / "private", Rules(limits={"t01": 3.0}))
    path.unlink()
    path.symlink_to(foreign.parent / "private" / storedrules.NAME)
    passed, [problem] = gathered(foreign)
    assert (passed, problem.startswith("judged/rules.json is a link that leads out")) == (0, True)


def test_a_folder_that_cannot_be_written_is_one_sentence(hw4_here, foreign):
    (foreign / "figures").write_text("")
    result = hw4_here("report", foreign)
    assert result.returncode == 2 and result.stderr.count("\n") <= 2, result.stderr
    assert json.loads((foreign / "ladder.json").read_text())["schema"] == 1
