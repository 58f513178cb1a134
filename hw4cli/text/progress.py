"""The progress of a long computation."""

import threading
from collections.abc import Callable

Advance = Callable[[int], None]  # called with the amount that was just done


class Progress:
    """How much is done, of how much: in bytes, rows, or whatever takes equal time. Any thread adds, any reads."""

    def __init__(self, total: int = 0) -> None:
        self.total, self.done = total, 0
        self._lock = threading.Lock()

    def grow(self, amount: int) -> None:
        """There is so much more to do."""
        with self._lock:
            self.total += amount

    def add(self, amount: int) -> None:
        """Add an amount that was just done."""
        with self._lock:
            self.done += amount
