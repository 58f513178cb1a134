"""The pages keep up with the program: they describe each command, kernel and exit status; each link leads somewhere."""

import importlib
import json
import os
import re
import sys

import click
import pytest
from helpers import ROOT
from slow import slow
from test_layers import PACKAGES

from benchmarks.pages.rungs import MEASURED, PAGE, RECORD, SECTION, with_measured
from hw4cli.cli import cli
from hw4cli.commands import COMMANDS
from hw4cli.lab.newkernel import text_of
from hw4cli.plans.ladder import FALLBACK, VARIANTS

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "tests/README.md",
    ROOT / "testcases/README.md",
    ROOT / "benchmarks/README.md",
    *(ROOT / "docs").rglob("*.md"),
]


def test_the_two_commands_are_on_the_first_screen():
    top = (ROOT / "README.md").read_text().splitlines()[:20]
    assert any("make demo" in line for line in top)
    assert any("make test" in line for line in top)


def test_a_kernels_signature_and_an_entry_are_shown_as_they_are():
    """Whoever adds a kernel copies them."""
    page = (ROOT / "docs/architecture.md").read_text()
    signature, *entries = re.findall(r"```(?:c|python)\n(.*?)```", page, re.DOTALL)
    assert " ".join(signature.split()) in " ".join((ROOT / "kernels/smallbr.cu").read_text().split())
    modules = "".join((ROOT / f"hw4cli/plans/{name}.py").read_text() for name in ("scalar", "kernels16"))
    assert len(entries) == 2
    assert [entry for entry in entries if re.sub(r"  #.*", "", entry) not in modules] == []


def test_the_picture_of_the_packages_has_them_all_in_their_order():
    sys.path.append(str(ROOT / "docs"))
    drawn = importlib.import_module("architecture")
    assert list(PACKAGES) == drawn.PACKAGES
    assert {name for way in drawn.WAYS for name, _ in way.steps} < {*PACKAGES}
    assert drawn.PICTURE.read_text() == drawn.picture(), "run python docs/architecture.py"


def test_the_page_of_the_architecture_names_files_that_are_there():
    page = (ROOT / "docs/architecture.md").read_text()
    names = re.findall(r"`((?:hw4cli/)?(?:\w+/)+(?:\w+\.(?:py|cu))?)`", page)
    assert len(names) > 30
    assert [
        name
        for name in names
        if "NAME" not in name and not (ROOT / name).exists() and not (ROOT / "hw4cli" / name).exists()
    ] == []


def test_a_code_hosts_workflow_runs_what_ci_runs_and_no_action_of_others_but_checkout():
    workflow = ROOT / ".github/workflows/ci.yml"
    if not workflow.exists():
        pytest.skip("a source distribution has no workflow")
    text = workflow.read_text()
    assert re.findall(r"uses: (\S+)@", text) == ["actions/checkout"]
    assert re.findall(r"^\s+- run: (\.\S+)$", text, re.MULTILINE) == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


def anchors(page):
    """The names of a page's headings in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", page.read_text()):
        found = page.parent / target if target else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), f"{target}#{anchor}"


def test_pages_that_the_program_and_the_kernels_name_are_there():
    """Error sentences and help lead users to pages, which move and merge."""
    sources = [path for folder in ("hw4cli", "kernels", "testcases") for path in sorted((ROOT / folder).rglob("*.*"))]
    named = {
        name
        for path in sources
        if path.suffix in (".py", ".cu", ".cuh", ".h", ".cpp", ".toml")
        for name in re.findall(r"docs/[\w/-]+\.(?:md|ipynb|py)", path.read_text())
    }
    assert "docs/install.md" in named
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_every_page_is_in_the_list_of_pages():
    text = (ROOT / "docs/README.md").read_text()
    for page in PAGES:
        if page.parent.name != "docs" or page.name != "README.md":
            docs = ROOT / "docs"
            target = page.relative_to(docs) if page.is_relative_to(docs) else f"../{page.relative_to(ROOT)}"
            assert f"({target}" in text, target


def test_the_page_of_commands_has_the_first_sentence_of_each():
    text = (ROOT / "docs/commands.md").read_text()
    assert [name for name, sentence in COMMANDS.items() if f"| `hw4 {name}` | {sentence} |" not in text] == []


@slow
def test_the_tutorials_first_program_is_wrong_as_it_says_and_its_second_one_accepted(hw4, folder, tmp_path):
    page = (ROOT / "docs/tutorial.md").read_text()
    wrong, right = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    mistake = "the wrong rows equal attention computed without the factor 1/sqrt(d)"
    assert mistake in page
    for name, program, shown in (("wrong.py", wrong, mistake), ("right.py", right, " AC ")):
        (tmp_path / name).write_text(program)
        options = ["--limit", "t01=60", "--program", f"{sys.executable} {tmp_path / name}"]
        assert shown in hw4("judge", "t01", "--dir", folder, *options).stdout


def test_the_pages_cite_the_lines_on_which_their_mistakes_stand():
    check, own = ((ROOT / f"docs/{name}.md").read_text() for name in ("check", "kernels-of-your-own"))
    with_barrier, odd, mine = text_of("barrier", "float4"), text_of("odd", "flash"), text_of("mine", "shared")
    barrier = "".join(line for line in with_barrier.splitlines(True) if "// all threads have read the tile" not in line)
    stored, used = line_of("K[swizzle(chunk", barrier), line_of("b = K[swizzle(", barrier)
    assert f"at barrier.cu:{used} what thread 0 wrote\n    at barrier.cu:{stored}," in check
    assert f"Lines {stored} and {used} are where" in check
    assert f"at odd.cu:{line_of('*(float4*)(to + row_at(i)', odd)} whose" in check
    assert "            Mask mask{left, " in (ROOT / "kernels/split_mma.cuh").read_text()
    assert "`Mask mask{left + 1, …}`" in check
    after_the_tile = line_of("float s = 0.0f;", mine) + 1  # the page gives the file a line with another tile
    assert f"mine.cu:{after_the_tile}: identifier" in own


def line_of(words, text):
    """The number of the first line that holds these words."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if words in line)


def test_the_threat_model_names_tests_that_are_there():
    names = re.findall(r"[\w/]+/test_\w+", (ROOT / "docs/judging.md").read_text())
    assert [name for name in names if name != "tests/test_as_user" and not (ROOT / f"tests/{name}.py").exists()] == []


def test_every_command_tells_its_help_and_its_options(hw4):
    for name in COMMANDS:
        result = hw4(name, "--help")
        assert result.returncode == 0
        command = cli.get_command(click.Context(cli), name)
        assert all(option.help for option in command.params if isinstance(option, click.Option)), name


def test_the_list_of_commands_holds_the_first_sentence_of_each_help():
    for name, sentence in COMMANDS.items():
        whole = " ".join(cli.get_command(click.Context(cli), name).help.split())
        assert whole.startswith(sentence), name
        assert sentence.endswith("."), name


def test_every_rung_says_what_was_measured():
    rows = {row["kernel"] for row in json.loads((ROOT / "benchmarks" / RECORD).read_text())["rows"]}
    text = (ROOT / "docs" / PAGE).read_text()
    sections = {match[1]: match[0] for match in SECTION.finditer(text)}
    assert rows <= {*VARIANTS}
    elsewhere = {FALLBACK, "split", "split8", "exact"}  # which have tables on other pages
    assert {name for name in rows if not MEASURED.search(sections.get(name, ""))} <= elsewhere
    assert with_measured(text, [{"kernel": "warp", "median": 1.0, "tflops": 2.0, "status": "ok"}]) != text
