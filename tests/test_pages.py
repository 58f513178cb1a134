"""Every page that the product makes, in a real browser, on a desk and on a phone, light and dark: nothing is cut, all
can be read, all has a name, nothing is fetched."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from boards import RIGHT, crowd, write_class
from browser import PHONE, WIDTH, opened, screen, visit
from helpers import ROOT, run_hw4
from layout import faults
from leaderboards import crowded, leaderboard_page  # noqa: F401 (fixtures)
from records import COMMITTED
from solutions import MATRICES, STREAMED, renamed
from student import student

from hw4cli.judge.handout import Handout
from hw4cli.judge.scoring import scoreboard
from hw4cli.judge.scoring.figures import Private
from hw4cli.judge.scoring.record import Rules, combine, make_standing, rank
from hw4cli.show.labpage import page as lab_page
from hw4cli.show.leaderboard.page import user_id
from hw4cli.show.records import load

NOW = datetime(2026, 5, 1, tzinfo=UTC)
RULES = Rules()
TABLE = ".scroll table"  # of all cases and users: thirty columns
LONG_NAMES = "tbody th a"  # whole in the user's panel
VIEWS = {
    "lab": "",
    "lab-cases": "over=cases",
    "lab-linear": "scale=linear&measure=tflops",
    "lab-ladder": "view=ladder",
    "lab-tiles": "view=tiles",
    "lab-programs": "view=programs",
    "lab-kernels": "view=kernels&kernel=split8",
    "lab-difference": "view=kernels&kernel=flash&diff=float4",
    "lab-steps": "view=steps",
    "lab-steps-of-split": "view=steps&kernel=split&shape=t28&step=8",
    "lab-steps-printed": "view=steps&kernel=shared&order=1&step=5",
}
PAGES = (
    *("scoreboard", "scoreboard-few-cases", "scoreboard-empty", "scoreboard-odd", "scoreboard-own"),
    *("scoreboard-panel", "handout", "handout-failed", "leaderboard", "leaderboard-panel", "leaderboard-empty"),
    *("scoreboards", "report", "worklog", "demo", "similar", "lab-without-records", *VIEWS),
)
# What may be scrolled by itself (beside a panel, a table), and what may end in an ellipsis.
SCROLLING = {"scoreboard": TABLE, "leaderboard-panel": TABLE, "lab": "#table, .code", "similar": "pre"}
CLAMPED = {"scoreboard": f"{LONG_NAMES}, .panel h2, .tiles small"}


def failed():
    """A handout with a verdict of each kind, in which every reason is long."""
    wrong = (
        "1,304,558 of 1,310,720 elements are off by more than 0.005: first at batch 0, row 0, column 0; the wrong rows "
        "equal attention computed without the factor 1/sqrt(d)"
    )
    attempts = (
        replace(RIGHT, case="t03", problem="exit code 1", said="row 3: oh", exit_code=1, limit=6.0),
        replace(RIGHT, case="t06", wall=7.0, limit=3.0),
        replace(RIGHT, case="t07", limit=6.0, max_error=0.3, wrong=wrong),
        replace(RIGHT, case="t08", wall=16.0, limit=6.0, killed=True, max_error=None),
        replace(RIGHT, case="t09", fault="no space left on the judge's disk", wall=None),
        replace(RIGHT, case="t01", limit=6.0),
    )
    cases = [*(attempt.case for attempt in attempts), "t30"]
    standing = make_standing("ann", [combine([one]) for one in attempts], cases, session={"settings": {"repeat": 3}})
    log = "nvcc -O3 -std=c++14 -arch=native -Xptxas -v -lineinfo -o hw4 hw4.cu\nhw4.cu(118): error: expected a ;"
    return Handout(standing, RULES, 3, "amber otter", log)


def few_cases():
    """A class on two cases, some late, whose names are long."""
    for place, one in enumerate(crowd(12)):
        results = [one.results[case] for case in ("t01", "t02") if case in one.results]
        name = f"{one.user}.{'x' * place}" if place % 2 else one.user
        yield replace(make_standing(name, results, ["t01", "t02"]), late=3600.0 * (place % 3))


@pytest.fixture(scope="session")
def addresses(tmp_path_factory, leaderboard_page):  # noqa: F811 (it is the fixture)
    """The address of each page."""
    folder = tmp_path_factory.mktemp("pages")
    everyone = crowd(40)
    own = {one.user: Private("x/handout.html", "amber otter", "hw4.cu(3): error: expected a ;") for one in everyone}
    two = [scoreboard.Named("hw4", everyone, RULES), scoreboard.Named(f"hw4-amd-{'x' * 60}", [], RULES)]
    pages = {
        "scoreboard": scoreboard.page(everyone, RULES, "Homework 4", NOW),
        "scoreboard-few-cases": scoreboard.page(rank(list(few_cases())), RULES, "Homework 4", NOW),
        "scoreboard-empty": scoreboard.page([], RULES, "Homework 4", NOW),
        "scoreboard-own": scoreboard.page(everyone, RULES, "Homework 4", NOW, own),
        "scoreboards": scoreboard.index_page(two, {one.name: f"{one.name}.html" for one in two}, "Homework 4", NOW),
        "handout": Handout(everyone[0], RULES, 40, "amber otter", "").page(),
        "handout-failed": failed().page(),
        "lab-without-records": lab_page([], "hw4 lab"),
        "lab": lab_page([load(path) for path in COMMITTED], "hw4 lab"),
    }
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)
    assert run_hw4("scoreboard", write_class(folder / "class"), "-o", folder / "scoreboard-odd.html").returncode == 3
    empty = run_hw4("leaderboard", "--board", folder / "nobody", "-o", folder / "leaderboard-empty.html")
    assert empty.returncode == 0, empty.stderr
    for name, text in {"ann": MATRICES, "a-student-with-a-long-name": renamed(MATRICES), "cem": STREAMED}.items():
        (folder / "submissions" / name).mkdir(parents=True)
        (folder / "submissions" / name / "hw4.cu").write_text(text)
    assert run_hw4("similar", folder / "submissions", "-o", folder / "similar.html").returncode == 0
    mine = student(folder / "mine")
    for form in ("assignment", "worklog", "demo"):
        assert run_hw4("report", mine, "flash", "--form", form).returncode == 0
    files = {name: folder / f"{name}.html" for name in PAGES}
    files |= {
        "leaderboard": leaderboard_page,
        **{name: mine / f"{name}.html" for name in ("report", "worklog", "demo")},
    }
    found = {name: path.as_uri() for name, path in files.items()}
    panel = re.search(r'<section class="panel" id="(\w+)"', pages["scoreboard-own"])
    found["scoreboard-panel"] = f"{found['scoreboard-own']}#{panel[1]}"
    found["leaderboard-panel"] = f"{found['leaderboard']}#{user_id('ann')}"
    return found | {name: f"{found['lab']}#{state}" for name, state in VIEWS.items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_is_readable_and_has_names_for_all_of_it(chromium, addresses, name):
    kind = name.partition("-")[0]
    with opened(chromium, addresses[name]):
        for width in (WIDTH, PHONE):
            for scheme in ("light", "dark"):
                screen(chromium, width, scheme)
                visit(chromium, addresses[name])
                found = faults(chromium, SCROLLING.get(name, SCROLLING.get(kind, "")), CLAMPED.get(kind, ""))
                assert found == [], (name, width, scheme)


def test_colours_stand_in_one_file():
    """common.css has them, and everything else names them: so light and dark are one decision."""
    for path in sorted((ROOT / "hw4cli/templates").glob("*.css")):
        literal = re.findall(r"#[0-9a-fA-F]{3,8}\b|\brgba?\(|\bhsla?\(", path.read_text())
        assert path.name == "common.css" or literal == [], path.name
