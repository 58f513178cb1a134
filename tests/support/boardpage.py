"""What is to be seen of a board's page in a real browser."""

from browser import find


def settle(browser):
    """Let the page notice what has changed around it: that comes with the next frame."""
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def users(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('tbody tr:not([hidden]) bdi')].map(name => name.textContent)"
    )


def head(browser, name):
    return browser.execute_script(
        "return [...document.querySelectorAll('thead th')].find(th => th.textContent === arguments[0])", name
    )


def cell(browser, user, case):
    """A user's cell of a case, in sight."""
    element = browser.execute_script(
        "const named = row => row.querySelector('bdi').textContent === arguments[0];"
        "const row = [...document.querySelectorAll('tbody tr')].find(named);"
        "return row.cells[6 + arguments[1]]",
        user,
        int(case[1:]),
    )
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", element)
    return element


def tip(browser):
    """The text of the tip, if it is shown."""
    return find(browser, "#tip").text


def click(browser, name):
    """Click the heading's button."""
    head(browser, name).find_element("tag name", "button").click()
