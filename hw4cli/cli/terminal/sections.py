"""A command whose help fits one screen: options that are seldom needed are shown by --help-all alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from hw4cli.text.words import counted

COLUMN = 28  # of the options' names, at most: what is longer gets a line of its own
ALL = "--help-all"


class Sections(click.Command):
    """A command with `rare`: the names of the options that `--help` leaves out; and `sections`: the names of options by
    the title of their group, where `--help-all` shows groups. The others come last."""

    def __init__(
        self, *args: Any, rare: Sequence[str], sections: Mapping[str, Sequence[str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.rare, self.sections = tuple(rare), dict(sections or {})
        self.params.append(
            click.Option(
                [ALL],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show this with all options and exit.",
            )
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that are often needed; or all, in groups, their columns in line with each other."""
        everything = ctx.meta.get(ALL, False)
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = {
            option.name: record
            for option in options
            if (everything or option.name not in self.rare) and (record := option.get_help_record(ctx))
        }
        width = min(COLUMN, max(len(names) for names, _ in records.values()))
        sections = self.sections if everything else {}
        grouped = {name for names in sections.values() for name in names}
        others = [name for name in records if name not in grouped]
        for title, names in {**sections, "Other options" if sections else "Options": others}.items():
            with formatter.section(title):
                formatter.write_dl([(records[name][0].ljust(width), records[name][1]) for name in names], COLUMN)
        if not everything:
            hidden = [option for option in options if option.name in self.rare and not option.hidden]
            formatter.write_paragraph()
            formatter.write_text(f"{counted(len(hidden), 'further option')}: {ctx.command_path} {ALL}")


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()
