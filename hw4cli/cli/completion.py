"""`hw4 completion`: the script by which a shell completes commands, options, cases, kernels and files."""

import click

from hw4cli.cli.terminal.params import OneOf

SHELLS = ["bash", "zsh", "fish"]


@click.command()
@click.argument("shell", type=OneOf(SHELLS), metavar="|".join(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script for a shell's Tab key.

    \b
    ~/.bashrc                   eval "$(hw4 completion bash)"
    ~/.zshrc, behind compinit   eval "$(hw4 completion zsh)"
    ~/.config/fish/config.fish  hw4 completion fish | source

    docs/commands.md shows where to keep the script instead, so that shells start as fast as before.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "hw4", "_HW4_COMPLETE").source(), nl=False)
