"""What a reader does with a class's board in a real browser: look for someone, open a panel, choose the colours."""

import time
from datetime import UTC, datetime

import pytest
from boardpage import head, settle, tip, users
from boards import crowd
from browser import PHONE, WIDTH, find, hover, opened, press, screen

from hw4cli.judge.scoring.record import Rules
from hw4cli.judge.scoring.scoreboard import page

USERS = 40
SHOWN = "return [...document.querySelectorAll(arguments[0])].filter(one => one.checkVisibility()).length"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    return written(tmp_path_factory.mktemp("crowd") / "board.html", USERS)


def written(path, users):
    """The board of so many users, as a page."""
    path.write_text(page(crowd(users), Rules(), "hw4", datetime(2026, 5, 3, tzinfo=UTC)))
    return path


@pytest.fixture
def reader(chromium, crowded):
    """The board, open; at the end nothing was asked for but the page itself, and nothing complained."""
    with opened(chromium, crowded.as_uri()):
        yield chromium
        chromium.execute_script("localStorage.clear()")


def look_for(browser, text):
    field = find(browser, "#search")
    field.clear()
    field.send_keys(text)


def panel(browser):
    """The panel that is shown, if one is."""
    return browser.execute_script(
        "const panel = document.querySelector('.panel:target'); return panel?.checkVisibility() ? panel : null"
    )


def owner(browser):
    """Whose panel is shown."""
    return browser.execute_script("return document.querySelector('.panel:target h2').textContent")


def colour(browser):
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


LIGHT, DARK = "rgb(250, 250, 248)", "rgb(20, 23, 26)"


def test_the_search_finds_names_in_any_script(reader):
    names = {"jose": "José Álvarez", "ÁLVAREZ jo": "José Álvarez", "петр": "Ольга Петрова", "李": "李明"}
    names |= {"nguyen phuong": "Nguyễn Thị Hồng Phương-Anh", "לוי": "שרה לוי", "शर्म": "नेहा शर्मा"}
    for text, name in names.items():
        look_for(reader, text)
        assert users(reader) == [name]
        assert find(reader, "#found").text == f"1 of {USERS}"


def test_who_is_not_found_is_told_and_escape_brings_everyone_back(reader):
    look_for(reader, "nobody of the kind")
    assert (users(reader), find(reader, "#found").text) == ([], "nobody of that name")
    press(reader, "ESCAPE")
    assert (len(users(reader)), find(reader, "#found").text) == (USERS, "")


def test_the_arrows_go_through_those_who_were_found(reader):
    look_for(reader, "student.02")
    shown = users(reader)
    assert 1 < len(shown) <= 10
    reader.execute_script("body.querySelector('[tabindex=\"0\"]').focus()")
    for name in shown[:3]:
        assert tip(reader) == f"{name}\n{name}"
        press(reader, "ARROW_DOWN")
    press(reader, "ARROW_UP", times=9)
    assert tip(reader).startswith(shown[0])


def closed(browser):
    """Whether the panel closes: the browser goes back in its history, which takes it a moment."""
    deadline = time.monotonic() + 10
    while panel(browser) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    return panel(browser) is None


def test_the_keyboard_opens_a_panel_and_closes_it(reader):
    name = users(reader)[2]
    reader.execute_script("body.rows[0].cells[0].focus()")
    press(reader, "ARROW_DOWN", "ARROW_DOWN", "ARROW_RIGHT", "ARROW_RIGHT", "ENTER")
    shown = panel(reader)
    assert owner(reader) == name
    assert reader.switch_to.active_element == shown
    press(reader, "TAB")
    assert reader.switch_to.active_element.get_attribute("aria-label") == "Close"
    press(reader, "ENTER")
    assert closed(reader)
    assert reader.switch_to.active_element.text == name
    press(reader, "ENTER")
    assert panel(reader) == shown
    press(reader, "ESCAPE")
    assert closed(reader) and reader.switch_to.active_element.text == name


def test_a_click_on_a_name_opens_a_panel_and_back_closes_it(reader):
    link = find(reader, "tbody tr:nth-child(5) a")
    link.click()
    assert owner(reader) == link.text
    box, table = panel(reader).rect, find(reader, ".scroll").rect
    assert box["x"] >= table["x"] + table["width"], "it stands beside the board, not on it"
    reader.back()
    assert closed(reader)


@pytest.mark.parametrize("scripts", [True, False])
def test_a_link_leads_to_a_users_panel(reader, scripts):
    row = find(reader, "tbody tr:nth-child(35)")
    name, place = row.find_element("tag name", "bdi").text, row.find_element("tag name", "a").get_attribute("href")
    screen(reader, scripts=scripts)
    reader.get("about:blank")
    reader.get(place)
    assert owner(reader) == name
    if scripts:
        row, table = find(reader, "tbody tr:nth-child(35) th").rect, find(reader, ".scroll").rect
        assert table["y"] <= row["y"] <= table["y"] + table["height"], "and the row is in sight"
    find(reader, ".panel:target .close").click()
    assert panel(reader) is None


def test_the_colours_are_the_systems_until_the_reader_chooses(reader):
    switch = find(reader, "#theme")
    assert (colour(reader), switch.text) == (LIGHT, "Dark")
    screen(reader, scheme="dark")
    settle(reader)
    assert (colour(reader), switch.text) == (DARK, "Light")
    switch.click()
    assert (colour(reader), switch.text) == (LIGHT, "Dark")
    reader.refresh()
    assert colour(reader) == LIGHT, "the choice is kept"
    find(reader, "#theme").click()
    assert colour(reader) == DARK
    screen(reader, scheme="light")
    settle(reader)
    assert colour(reader) == LIGHT, "the system's colour again is no choice"


def test_a_users_dots_stand_out_while_the_mouse_is_on_the_row(reader):
    dots = reader.execute_script("return document.querySelectorAll('.dots > g').length")
    assert dots == len([one for one in crowd(USERS) if one.passed])
    assert reader.execute_script(SHOWN, ".dots .me") == 0
    row = find(reader, "tbody tr:nth-child(2) td:nth-child(4)")
    hover(reader, row)
    mine = find(reader, ".dots .me")
    link = find(reader, "tbody tr:nth-child(2) a").get_attribute("href").partition("#")[2]
    assert mine.get_attribute("id") == f"{link}-dots"
    hover(reader, find(reader, "h1"))
    assert reader.execute_script(SHOWN, ".dots .me") == 0


def test_a_phone_shows_every_case_of_a_row_at_once_and_that_there_is_more(reader):
    screen(reader, PHONE)
    strip = find(reader, "tbody .strip").rect
    assert strip["width"] > 100 and strip["x"] + strip["width"] < PHONE - 12
    assert reader.execute_script("return document.documentElement.scrollWidth") == PHONE
    fade = "return getComputedStyle(document.querySelector('.fade'), '::after').display"
    assert reader.execute_script(fade) == "block"
    reader.execute_script("box.scrollLeft = 1e6")
    settle(reader)
    assert reader.execute_script(fade) == "none"
    assert reader.execute_script(SHOWN, ".xs .more") == 0
    board, chart = find(reader, ".scroll").rect, find(reader, ".chart").rect
    assert chart["y"] > board["y"], "who looks for a row need not scroll past the chart"


def test_a_panel_on_a_phone_leaves_its_row_in_sight(reader):
    screen(reader, PHONE)
    reader.execute_script("open(body.rows[30])")
    top = "return arguments[0].getBoundingClientRect().top"
    row, sheet = (reader.execute_script(top, one) for one in (find(reader, "tr.open"), panel(reader)))
    assert -1 <= row < sheet - 20


def test_the_rows_at_the_bottom_stay_in_sight_and_hide_no_cell_that_the_keyboard_reaches(reader):
    foot, table = find(reader, "tfoot").rect, find(reader, ".scroll").rect
    assert table["y"] < foot["y"] and foot["y"] + foot["height"] <= table["y"] + table["height"]
    reader.execute_script("visit(body.rows[0].cells[9]); body.rows[0].cells[9].focus()")
    press(reader, *["ARROW_DOWN"] * 30)
    cell, foot = reader.switch_to.active_element.rect, find(reader, "tfoot").rect
    assert cell["y"] + cell["height"] <= foot["y"] + 1


@pytest.mark.parametrize("wish, name", [("reduce", "none"), ("no-preference", "come")])
def test_a_panel_moves_in_only_where_motion_is_welcome(reader, wish, name):
    reader.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": wish}]}
    )
    find(reader, "tbody a").click()
    assert reader.execute_script("return getComputedStyle(arguments[0]).animationName", panel(reader)) == name


def test_a_class_of_150_opens_and_sorts_without_a_wait(chromium, tmp_path):
    """It takes about half a second; the deadline is for a machine that is busy."""
    with opened(chromium, written(tmp_path / "board.html", 150).as_uri()):
        loaded = chromium.execute_script("return performance.getEntriesByType('navigation')[0].domComplete")
        assert loaded < 5000
        head(chromium, "t30").find_element("tag name", "button").click()
        assert (
            find(chromium, "tbody tr td:last-child").text < find(chromium, "tbody tr:nth-child(50) td:last-child").text
        )
        assert chromium.execute_script("return innerWidth") == WIDTH


def test_the_board_of_a_class_of_200_takes_little_processor_time_to_open(chromium, tmp_path):
    """Half a second on a server of today, for all that the page does until it stands."""
    address = written(tmp_path / "class.html", 200).as_uri()
    chromium.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    seconds = []
    for _ in range(3):
        with opened(chromium, address):
            settle(chromium)
            metrics = chromium.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
            seconds += [metric["value"] for metric in metrics if metric["name"] == "TaskDuration"]
    chromium.execute_cdp_cmd("Performance.disable", {})
    assert 0 < min(seconds) < 2, seconds
