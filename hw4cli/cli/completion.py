"""`hw4 completion`: the script that lets a shell complete hw4's commands, options, cases, kernels and files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hw4cli.cli.params import OneOf, items

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    Items = list[CompletionItem[str]]

SHELLS = ["bash", "zsh", "fish"]


@click.command()
@click.argument("shell", type=OneOf(SHELLS), metavar="|".join(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes hw4's words on the Tab key.

    \b
    ~/.bashrc                   eval "$(hw4 completion bash)"
    ~/.zshrc, behind compinit   eval "$(hw4 completion zsh)"
    ~/.config/fish/config.fish  hw4 completion fish | source

    README tells where the script can be kept instead, so that shells start as fast as before.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "hw4", "_HW4_COMPLETE").source(), nl=False)


def first_word(commands: "Items", group: click.Group, ctx: click.Context, incomplete: str) -> "Items":
    """What the first word may be: one of the commands, or, since `run` may be left out, its options or a file.

    A shell that is told to look for files itself gets nothing else. Where there are commands, too, it gets the files
    from us: names that the command's own letters begin, so that none needs quotes for what is put in.
    """
    if incomplete.startswith("-"):
        known, run = {item.value for item in commands}, group.get_command(ctx, "run")
        assert run is not None
        with click.Context(run, ctx, "run", resilient_parsing=True) as inner:
            return [*commands, *(item for item in run.shell_complete(inner, incomplete) if item.value not in known)]
    if not commands:
        return items([incomplete], "file")
    return [*commands, *items(_files(incomplete))]


def _files(incomplete: str) -> Sequence[str]:
    """The files and folders here whose names begin so; hidden ones and none at all are not offered."""
    if not incomplete:
        return []
    found = [path.name + "/" * path.is_dir() for path in Path().glob(f"{incomplete}*")]
    return sorted(name for name in found if name.isprintable())
