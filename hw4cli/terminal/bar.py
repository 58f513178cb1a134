"""A progress bar on a terminal's stderr, for runs that take long."""

import os
import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from hw4cli.text.progress import Progress
from hw4cli.text.words import print_message, printable

if TYPE_CHECKING:
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
