"""The leaderboard's page in a real browser: index, ranks, a user's history, keyboard, sizes, colours."""

import re

import pytest
from browser import COLOURS, PHONE, find, opened, press, screen
from leaderboards import ARABIC, ATTACK

from hw4cli.show.leaderboard.page import user_id

RANKS = """
const board = document.querySelectorAll('.board')[arguments[0]];
return [...board.querySelectorAll('tbody tr')].filter(row => row.checkVisibility())
  .map(row => [row.cells[0].innerText.trim(), row.querySelector('bdi').textContent]);
"""
PANEL = "return [...document.querySelectorAll('.panel')].filter(one => one.checkVisibility()).map(one => one.id)"
CONTRASTS = """
const paper = numbers(getComputedStyle(document.querySelector(".board")).backgroundColor);
return [...document.querySelectorAll("h1, h2, p, p b, li *, .card *, label, th, td, td small, .rank b, a, figcaption")]
  .map(element => {
    const style = getComputedStyle(element), ground = over(numbers(style.backgroundColor), paper);
    return [element.tagName + "." + element.className, contrast(ground, over(numbers(style.color), ground))];
  }).filter(([_, ratio]) => ratio < 4.5);
"""


def open_panel(browser):
    """The panel that is open, when it has come to rest."""
    browser.execute_async_script(
        "const done = arguments[0]; Promise.all(document.getAnimations().map(one => one.finished)).then(() => done())"
    )
    return find(browser, ".panel:target")


@pytest.fixture
def browser(chromium, leaderboard_page):
    with opened(chromium, leaderboard_page.as_uri()):
        yield chromium


def test_the_index_leads_to_each_board_and_back(browser):
    cards = browser.find_elements("css selector", ".card")
    assert len(cards) == len(browser.find_elements("css selector", ".board")) == 8
    assert "leads with 0.8389 ms since 2026-05-07; 7 entries" in cards[2].text
    cards[2].click()
    assert find(browser, ".board:target h2").text == "t28 (4, 16384, 64) float32"
    find(browser, ".board:target .back").click()
    assert browser.current_url.endswith("#boards")


def test_ranks_are_of_all_entries_or_of_the_best_of_each_user(browser):
    every = browser.execute_script(RANKS, 2)
    assert every == [
        ["=1", ARABIC],
        ["=1", "ann"],
        ["=3", "ann"],
        ["=3", ATTACK],
        ["5", "ann"],
        ["6", "ben"],
        ["7", "ann"],
    ]
    find(browser, "#best").click()
    assert browser.execute_script(RANKS, 2) == [["=1", ARABIC], ["=1", "ann"], ["3", ATTACK], ["4", "ben"]]
    press(browser, "SPACE")
    assert browser.execute_script(RANKS, 2) == every


def test_published_results_look_different_and_have_no_rank(browser):
    styles = browser.execute_script(
        "return [...document.querySelectorAll('.board tbody th')]"
        ".map(cell => [cell.closest('.published') !== null, getComputedStyle(cell).fontStyle])"
    )
    assert {(True, "italic"), (False, "normal")} == {tuple(one) for one in styles}
    published = find(browser, ".board.others")
    assert "13.617" in published.text and "not ranked" in published.text
    assert published.find_elements("css selector", ".rank") == []


def test_a_name_opens_its_history_by_keyboard_and_escape_returns_to_the_name(browser):
    browser.execute_script("document.querySelectorAll('.board')[2].querySelectorAll('tbody a')[1].focus()")
    press(browser, "ENTER")
    assert browser.execute_script(PANEL) == [user_id("ann")]
    assert browser.switch_to.active_element.get_attribute("id") == user_id("ann")
    panel = open_panel(browser)
    assert panel.text.count("benchmark") == 5
    assert len(panel.find_elements("css selector", ".times")) == 1, "one dot makes no line"
    press(browser, "ESCAPE")
    assert browser.execute_script(PANEL) == []
    assert browser.switch_to.active_element.text == "ann"
    browser.get(f"{browser.current_url.partition('#')[0]}#{user_id('zoe')}")
    assert f"wrong: test: {ATTACK} of 16 elements are off" in open_panel(browser).text
    find(browser, ".panel:target .close").click()
    assert browser.execute_script(PANEL) == []


@pytest.mark.parametrize("scripts", [True, False])
def test_a_phone_scrolls_tables_and_not_the_page(browser, leaderboard_page, scripts):
    screen(browser, PHONE, scripts=scripts)
    browser.get(f"{leaderboard_page.as_uri()}#{user_id('ann')}")
    sizes = "const p = document.querySelector('.panel:target');"
    sizes += "return [document.documentElement.scrollWidth, p.scrollWidth - p.clientWidth]"
    assert browser.execute_script(sizes) == [PHONE, 0]
    assert browser.execute_script(PANEL) == [user_id("ann")]


def test_text_is_readable_in_light_and_in_dark_and_a_button_switches(browser, leaderboard_page):
    grounds = []
    for scheme in ("light", "dark"):
        screen(browser, scheme=scheme)
        browser.get(leaderboard_page.as_uri())
        grounds.append(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
        assert browser.execute_script(COLOURS + CONTRASTS) == []
    light, dark = ([int(number) for number in re.findall(r"\d+", ground)] for ground in grounds)
    assert min(light) > 200 and max(dark) < 60
    find(browser, "#theme").click()
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == grounds[0]
    find(browser, "#theme").click()


def test_a_name_that_is_a_script_is_text(browser):
    assert find(browser, "h1").text == ATTACK
    assert browser.execute_script("return document.scripts.length") == 1


def test_the_charts_line_goes_down_to_the_fastest(browser):
    """Of the board with seven entries: a dot for each, and the line's end at the lowest."""
    dots, line = browser.execute_script(
        "const chart = document.querySelectorAll('.board')[2].querySelector('.times');"
        "return ['.dots', '.best'].map(name => chart.querySelector(name).getAttribute('d'))"
    )
    heights = [int(y) for y in re.findall(r"M\d+ (\d+)", dots)]
    assert len(heights) == 7
    assert int(re.findall(r"V(\d+)", line)[-1]) == max(heights)
