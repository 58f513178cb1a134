"""The lab page of the kept records, open in a browser, and what its tests do there."""

import pytest
from browser import find, opened
from records import KEPT_RECORDS

from hw4cli.show.labpage import page
from hw4cli.show.records import load


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("lab") / "lab.html"
    path.write_text(page([load(record) for record in KEPT_RECORDS], "hw4 lab"))
    return path.as_uri()


@pytest.fixture
def lab(chromium, address):
    """The page, open; at the end nothing was asked for but the page itself, and nothing complained."""
    with opened(chromium, address):
        yield chromium


def texts(browser, selector):
    script = "return [...document.querySelectorAll(arguments[0])].map(one => one.textContent)"
    return browser.execute_script(script, selector)


def choose(browser, name, value):
    from selenium.webdriver.support.ui import Select

    Select(find(browser, f"#{name}")).select_by_value(value)


def state(browser):
    return dict(browser.execute_script("return [...new URLSearchParams(location.hash.slice(1))]"))


def at(browser, **chosen):
    """The page with something chosen by its address."""
    browser.execute_script("location.hash = new URLSearchParams(arguments[0])", chosen)


def toggle(browser, kernel):
    return find(browser, f"#legend button[data-key='{kernel}']")
