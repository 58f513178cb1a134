"""A command whose help shows its options in groups."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

COLUMN = 28  # of the options' names, at most: what is longer gets a line of its own


class Sections(click.Command):
    """A command with `sections`: the names of its options by the title of their group. The others come last."""

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups, their columns in line with each other."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = {option.name: record for option in options if (record := option.get_help_record(ctx))}
        width = min(COLUMN, max(len(names) for names, _ in records.values()))
        grouped = {name for names in self.sections.values() for name in names}
        others = [name for name in records if name not in grouped]
        for title, names in {**self.sections, "Other options": others}.items():
            with formatter.section(title):
                formatter.write_dl([(records[name][0].ljust(width), records[name][1]) for name in names], COLUMN)
