"""The scoreboard's page in a real browser: its order, its reasons, its colours, its sizes."""

import re
from collections import Counter

import pytest
from boardpage import cell, click, head, tip, users
from boards import ARABIC, ATTACK, LONG, QUOTED
from browser import COLOURS, PHONE, WIDTH, find, hover, opened, press, screen


@pytest.fixture
def board(chromium, page):
    """The page, open; at the end nothing was asked for but the page itself, and nothing complained."""
    with opened(chromium, page.as_uri()):
        yield chromium


def test_a_click_on_a_heading_sorts_by_it_and_another_reverses_the_order(board):
    assert users(board) == [QUOTED, ATTACK, ARABIC, "eve", "f", LONG]
    assert head(board, "Rank").get_attribute("aria-sort") == "ascending"
    click(board, "t01")
    assert users(board) == [ARABIC, ATTACK, QUOTED, LONG, "eve", "f"]
    assert head(board, "t01").get_attribute("aria-sort") == "ascending"
    assert head(board, "Rank").get_attribute("aria-sort") is None
    click(board, "t01")
    assert users(board) == [LONG, QUOTED, ATTACK, ARABIC, "eve", "f"]
    assert head(board, "t01").get_attribute("aria-sort") == "descending"
    click(board, "Rank")
    click(board, "Rank")
    assert users(board) == ["eve", ARABIC, ATTACK, QUOTED, "f", LONG]
    click(board, "Passed")
    assert (users(board)[0], head(board, "Passed").get_attribute("aria-sort")) == (QUOTED, "descending")
    click(board, "t02")
    assert users(board) == [ATTACK, QUOTED, LONG, ARABIC, "eve", "f"]  # late is after every time


def test_the_keyboard_sorts(board):
    find(board, ".scroll").send_keys("")
    press(board, "TAB")
    assert board.switch_to.active_element.text == "User"
    press(board, "ENTER")
    assert head(board, "User").get_attribute("aria-sort") == "ascending"
    assert users(board) == sorted(users(board), key=[ATTACK, LONG, "eve", "f", QUOTED, ARABIC].index)
    press(board, "TAB", "SPACE")
    assert users(board) == [QUOTED, ATTACK, ARABIC, "eve", "f", LONG]


def test_the_keyboard_reaches_every_reason(board):
    find(board, ".scroll").send_keys("")
    press(board, "TAB", times=37 + 1)  # the headings, the table
    assert board.switch_to.active_element.text == QUOTED
    press(board, "ARROW_DOWN", times=2)
    press(board, "ARROW_RIGHT", times=8)
    assert tip(board) == f"{ARABIC}, t02\nTLE: 7.31/6.00 s, output correct"
    assert board.switch_to.active_element.get_attribute("aria-describedby") == "tip"
    press(board, "ESCAPE")
    assert tip(board) == ""
    press(board, "END")
    assert tip(board).endswith("not run, counts as not accepted")
    box = board.switch_to.active_element.rect
    assert box["x"] >= 0 and box["x"] + box["width"] <= WIDTH
    press(board, "ARROW_DOWN")
    assert tip(board) == "eve\ndoes not compile"
    press(board, "HOME", "ARROW_UP", "ARROW_UP")
    assert tip(board) == f"{ATTACK}\n{ATTACK}"
    press(board, "TAB")
    assert tip(board) == ""


def test_hover_and_tap_show_the_reason(board):
    hover(board, cell(board, ATTACK, "t04"))
    assert tip(board).endswith('NA: 7 of 9 elements are off, stderr: "<b>&"')
    hover(board, find(board, "h1"))
    assert tip(board) == ""
    screen(board, PHONE)
    cell(board, LONG, "t05").click()
    assert tip(board).endswith("JE: the judge failed, not the program")
    box = find(board, "#tip").rect
    assert box["x"] >= 8 and box["x"] + box["width"] <= PHONE - 7.5
    assert cell(board, QUOTED, "t01").get_attribute("title")


@pytest.mark.parametrize("scripts", [True, False])
def test_a_narrow_screen_scrolls_the_table_and_not_the_page(board, page, scripts):
    screen(board, PHONE, scripts=scripts)
    board.get(page.as_uri())
    sizes = "return [document.documentElement.scrollWidth, innerWidth]"
    assert board.execute_script(sizes) == [PHONE, PHONE]
    assert find(board, "td.passed .strip").is_displayed()
    inner, outer = board.execute_script(
        "const s = document.querySelector('.scroll'); return [s.scrollWidth, s.clientWidth]"
    )
    assert inner > 2 * outer
    lefts = (
        "document.querySelector('.scroll').scrollLeft = arguments[0];"
        "return [...document.querySelectorAll('tbody tr:first-child > *')].slice(0, 6)"
        ".map(cell => cell.getBoundingClientRect().left)"
    )
    before, after = (board.execute_script(lefts, x) for x in (0, 300))
    assert before[:2] == after[:2], "user and rank stay in sight"
    assert after[5] == before[5] - 300


CONTRASTS = """
const paper = numbers(getComputedStyle(document.querySelector(".scroll")).backgroundColor);
document.querySelector("#tip").hidden = false;
return [...document.querySelectorAll("h1, p, li, li *, summary, button, input, figcaption, "
  + "thead button, tbody th, tbody td, .rank b, tfoot th, tfoot td, .panel :not(svg *), #tip")].map(element => {
  const style = getComputedStyle(element), stripes = style.backgroundImage.match(/rgba?\\([^)]*\\)/g) || [];
  const grounds = [style.backgroundColor, ...stripes].map(text => over(numbers(text), paper));
  const ratios = grounds.map(ground => contrast(ground, over(numbers(style.color), ground)));
  return [element.getAttribute("class") || element.tagName, Math.min(...ratios)];
});
"""


def test_text_is_readable_in_light_and_in_dark(board, page):
    grounds = []
    for scheme in ("light", "dark"):
        screen(board, scheme=scheme)
        board.get(page.as_uri())
        grounds.append(board.execute_script("return getComputedStyle(document.body).backgroundColor"))
        contrasts = board.execute_script(COLOURS + CONTRASTS)
        seen = Counter(word for name, _ in contrasts for word in name.split())
        assert all(seen[word] for word in ("ac", "tle", "plus", "na", "je", "none", "best", "edge", "note"))
        assert [(name, round(ratio, 2)) for name, ratio in contrasts if ratio < 4.5] == []
    light, dark = ([int(number) for number in re.findall(r"\d+", ground)] for ground in grounds)
    assert min(light) > 200 and max(dark) < 60


def test_a_name_that_is_a_script_is_shown_as_text(board):
    from selenium.common.exceptions import NoAlertPresentException

    with pytest.raises(NoAlertPresentException):
        board.switch_to.alert  # noqa: B018
    hover(board, cell(board, ATTACK, "t04"))
    assert find(board, "#tip b").text == f"{ATTACK}, t04"
    assert board.execute_script("return document.scripts.length") == 1


def test_without_scripts_the_ranking_and_the_reasons_are_shown(board, page):
    screen(board, scripts=False)
    board.get(page.as_uri())
    assert users(board) == [QUOTED, ATTACK, ARABIC, "eve", "f", LONG]
    assert cell(board, ARABIC, "t02").get_attribute("title") == "TLE: 7.31/6.00 s, output correct"
    assert not any(one.is_displayed() for one in board.find_elements("css selector", "button, input"))


def test_the_whole_board_fits_on_paper(board):
    a4_landscape = round((297 - 2 * 8) / 25.4 * 96)
    screen(board, a4_landscape, "dark", "print")
    widths = board.execute_script("return [document.querySelector('table').scrollWidth, document.body.scrollWidth]")
    assert max(widths) <= a4_landscape
    assert board.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
