"""A page as PDF, by a browser that is installed."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from hw4cli.errors import InputError, MachineError
from hw4cli.system.files import NewFile, check_place

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 120.0  # that a browser may take
MAGIC = b"%PDF"  # what a PDF file begins with


def browser() -> str | None:
    """The browser that prints; None if there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def check_browser(page: Path) -> None:
    """Raise MachineError if no browser prints a page."""
    if browser() is None:
        raise MachineError(
            "a PDF needs Chromium, which is not installed (Debian, Ubuntu: apt install chromium); any browser can "
            f"open {page} and print it"
        )


def check_target(path: Path) -> None:
    """Raise InputError unless a PDF file can be at a place, and replaces none but a PDF there."""
    check_place(path)
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if head and head != MAGIC:
        raise InputError(f"{path} is not a PDF, and would be replaced: choose another name")


def print_page(page: Path, target: Path) -> None:
    """Print a page into a PDF file. MachineError if the browser is missing or fails; raises as NewFile does."""
    check_browser(page)
    with tempfile.TemporaryDirectory(prefix="hw4-pdf-", ignore_cleanup_errors=True) as folder:
        printed = Path(folder) / "page.pdf"
        # The page runs no script and asks for nothing: its policy forbids both. Chromium's sandbox does not start for
        # root, nor in most containers.
        switches = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        switches += [f"--user-data-dir={folder}/profile", "--no-pdf-header-footer", f"--print-to-pdf={printed}"]
        command = [str(browser()), *switches, page.resolve().as_uri()]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=SECONDS, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise MachineError(f"Chromium did not print {page} within {SECONDS:g} s") from None
        except OSError as error:
            raise MachineError(f"Chromium cannot be started: {error.strerror}") from None
        if not printed.is_file() or not printed.read_bytes().startswith(MAGIC):
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            said = f": {lines[-1]}" if lines else ""
            raise MachineError(f"Chromium made no PDF of {page}{said}")
        with NewFile(target) as file:
            file.write(memoryview(printed.read_bytes()))
