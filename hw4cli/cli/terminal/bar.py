"""What a terminal's stderr shows of runs that take long: a progress bar, or a table that is filled."""

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from hw4cli.text.progress import Progress
from hw4cli.text.tables import plain
from hw4cli.text.words import print_message, printable

if TYPE_CHECKING:
    import rich.live
    import rich.progress

PERIOD = 0.1  # seconds between two updates


class Bar:
    """A with-block during which a bar shows a `Progress`, from `delay` seconds on; at the end it disappears.

    There is none without a terminal, or if it is not `wanted`. rich is imported only when the bar appears.
    """

    def __init__(self, title: str, progress: Progress, delay: float, wanted: bool = True) -> None:
        self._title, self._progress, self._delay = title, progress, delay
        self._thread = threading.Thread(target=self._show, daemon=True) if wanted and os.isatty(2) else None
        self._ended = threading.Event()
        self._bar: rich.progress.Progress | None = None

    def __enter__(self) -> Self:
        if self._thread:
            with suppress(RuntimeError):  # no more threads: no bar
                self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread and self._thread.ident:
            self._thread.join()

    def print_message(self, sentence: str) -> None:
        """Print a message of the command on stderr, above the bar if there is one."""
        if self._bar:
            self._bar.console.print(f"hw4: {printable(sentence)}", markup=False, highlight=False)
        else:
            print_message(sentence)

    def _show(self) -> None:
        if self._ended.wait(self._delay):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(24),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        console = Console(stderr=True)
        with Progress(
            *columns,
            console=console,
            transient=True,
            auto_refresh=False,  # no thread of rich's own, which may outlive the bar
            redirect_stdout=False,
            redirect_stderr=False,
        ) as bar:
            task, self._bar = bar.add_task(self._title, total=None), bar
            while not self._ended.wait(PERIOD):
                bar.update(task, total=self._progress.total or None, completed=self._progress.done, refresh=True)
            self._bar = None


class LiveTable:
    """A with-block during which a terminal's stderr shows rows that change; at the end they disappear.

    Nothing is shown without a terminal that can move its cursor; rich is imported only for one that can. What is
    printed on stderr in the block stands above the rows.
    """

    def __init__(self, header: Sequence[str]) -> None:
        self._header, self._rows = header, dict[object, Sequence[str]]()
        self._live: rich.live.Live | None = None
        self._next = 0.0

    def __enter__(self) -> Self:
        if os.isatty(2) and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown"):
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._live = Live(console=console, transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def update(self, row: object, cells: Sequence[str]) -> None:
        """Show a row, or show it anew; the screen changes a few times a second. Of many rows, the last are in sight."""
        self._rows[row] = cells
        if self._live and time.monotonic() >= self._next:
            from rich.text import Text

            size = self._live.console.size
            last = list(self._rows.values())[3 - size.height :]
            self._live.update(Text(plain(self._header, last, size.width), no_wrap=True), refresh=True)
            self._next = time.monotonic() + PERIOD
