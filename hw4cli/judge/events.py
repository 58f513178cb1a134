"""The events of judging, for whoever shows them: of one program, and of a class."""

from hw4cli.judge.scoring.record import Result, Standing
from hw4cli.problem.suite import Case
from hw4cli.text.words import print_message


class Listener:
    """Receives the events of a session; this one ignores them."""

    def running(self, case: Case, run: int, runs: int) -> None:
        """Run number `run` (from 1) of `runs` of a case starts, warm-ups included."""

    def judged(self, result: Result, skipped: bool) -> None:
        """A case is judged; `skipped` if the journal had all its runs already."""

    def ended(self, standing: Standing) -> None:
        """All cases are judged, or Ctrl-C was pressed; the results are written next."""

    def say(self, message: str) -> None:
        """Any other message, while the judge waits for a GPU, say; this one prints it."""
        print_message(message)


class ClassListener:
    """Receives the events of a class's judging; this one ignores them."""

    def started(self, user: str) -> Listener:
        """The judging of a student starts; the events of that session go to the listener returned."""
        return Listener()

    def judged(self, standing: Standing, skipped: bool) -> None:
        """A student is judged; `skipped` if that was done before, and nothing was run."""

    def progress(self, done: int, total: int, seconds_left: float | None) -> None:
        """`done` of `total` students are judged; `seconds_left` is an estimate for the others, once there is one."""

    def failed(self, user: str, message: str) -> None:
        """The judge failed on a student."""

    def say(self, message: str) -> None:
        """Any other message."""
