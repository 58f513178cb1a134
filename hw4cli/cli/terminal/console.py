"""The terminal behind stdout, for what is coloured there."""

import sys

from rich.console import Console

from hw4cli.text.words import columns


def stdout_console(quiet: bool = False) -> tuple[Console, int | None]:
    """A console on stdout, and the width that its lines must keep to: None in a pipe, where lines stay whole."""
    width = columns(sys.stdout)
    # With a width and no height, rich takes 80 columns for any terminal that it does not know.
    console = Console(highlight=False, quiet=quiet, width=width, height=width and 25)
    return console, console.width if console.is_terminal else None
