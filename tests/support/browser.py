"""A real browser for the tests of pages: Debian's chromium, without a window. Skipped where there is none."""

import json
import os
import shutil
from contextlib import contextmanager

import pytest
from needs import skip_without

WIDTH, PHONE = 1280, 360
# For scripts on colours: their numbers, one over another, and the contrast of two (WCAG), 1 to 21.
COLOURS = """
const numbers = text => {
  const found = text.match(/[\\d.]+/g).map(Number);
  const mixed = text.startsWith("color(srgb "); // of color-mix()
  return mixed ? found.map((share, i) => i < 3 ? 255 * share : share) : found;
};
const over = ([r, g, b, a = 1], below) => [r, g, b].map((c, i) => c * a + below[i] * (1 - a));
const bright = color => color.map(c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
const contrast = (one, other) => {
  const [low, high] = [bright(one), bright(other)].sort((a, b) => a - b);
  return (high + .05) / (low + .05);
};
"""


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    skip_without("chromium", "chromedriver")
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for switch in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1280,900"):
        options.add_argument(f"--{switch}")
    folder = tmp_path_factory.mktemp("chromium")
    options.add_argument(f"--user-data-dir={folder / 'profile'}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(programs[1], env={**os.environ, "TMPDIR": str(folder)})
    driver = webdriver.Chrome(options, service)
    yield driver
    driver.quit()


def screen(browser, width=WIDTH, scheme="light", media="", scripts=True):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})


def visit(browser, address):
    """The page at an address, opened anew and complete: a browser on a busy machine may say so too early."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get("about:blank")  # or an address that differs in its fragment alone would open nothing
    browser.get(address)
    there = "return document.readyState === 'complete' && location.href !== 'about:blank'"
    WebDriverWait(browser, 120).until(lambda it: it.execute_script(there))


@contextmanager
def opened(browser, address):
    """The page at an address, open; at the end nothing was asked for but the page itself, and nothing complained."""
    screen(browser)
    browser.get("about:blank")
    browser.get_log("browser"), browser.get_log("performance")
    visit(browser, address)
    yield
    screen(browser)
    assert browser.get_log("browser") == []
    page = address.partition("#")[0]
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    asked = {request["request"]["url"].partition("#")[0] for request in sent if request["documentURL"].startswith(page)}
    assert {url for url in asked if not url.startswith(("blob:", "data:"))} == {page}


def find(browser, selector):
    from selenium.webdriver.common.by import By

    return browser.find_element(By.CSS_SELECTOR, selector)


def press(browser, *keys, times=1):
    from selenium.webdriver import ActionChains, Keys

    for _ in range(times):
        for key in keys:
            ActionChains(browser).send_keys(getattr(Keys, key)).perform()


def hover(browser, element):
    from selenium.webdriver import ActionChains

    ActionChains(browser).move_to_element(element).perform()
