"""The command line: each command parses its arguments, calls one function and prints. Commands are imported when
called."""

import errno
import io
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hw4cli import __version__
from hw4cli.commands import COMMANDS, GROUPS, INSTEAD, OWN_OPTIONS
from hw4cli.errors import READER_GONE, Hw4Error, MachineError, resource_shortage
from hw4cli.text.messages import never_fail
from hw4cli.text.words import print_message

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

MACHINE, INTERRUPTED = MachineError.exit_code, 130


class LazyGroup(click.Group):
    """The commands of COMMANDS; `hw4 IN OUT` is `hw4 run IN OUT`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"{__name__}.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, and import none of them."""
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(max(map(len, COMMANDS))), text) for name, text in group.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """Completions of the first argument: commands, without importing any, or what `run` takes.

        A shell that completes files itself gets nothing else. If there are commands, too, the names of files are added
        here: those that begin with the typed letters, so that no completion needs quotes.
        """
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-") and "run" in COMMANDS:
            run = self.get_command(ctx, "run")
            assert run is not None
            with click.Context(run, ctx, "run", resilient_parsing=True) as inner:
                found = [*click.Command.shell_complete(self, ctx, incomplete), *run.shell_complete(inner, incomplete)]
            return list({item.value: item for item in found}.values())
        commands = [CompletionItem(name, help=help) for name, help in COMMANDS.items() if name.startswith(incomplete)]
        if not commands:
            return [CompletionItem(incomplete, type="file")]
        paths = sorted(Path().glob(f"{incomplete}*")) if incomplete else []
        names = [path.name + "/" * path.is_dir() for path in paths if path.name.isprintable()]
        return [*commands, *map(CompletionItem, names)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `run` in front unless a command, or an option of the group itself, comes first."""
        if args and args[0] not in {*OWN_OPTIONS, *COMMANDS} and "run" not in COMMANDS:
            raise click.UsageError(
                f"there is no command {args[0]!r}: this is the judge alone, which computes nothing", ctx
            )
        if args and args[0] not in {*OWN_OPTIONS, *COMMANDS}:
            if not (args[0].startswith("-") or Path(args[0]).exists() or ctx.resilient_parsing):
                self._refuse_misspelled_command(args, ctx)
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def _refuse_misspelled_command(self, args: list[str], ctx: click.Context) -> None:
        """Raise UsageError if the first argument is not a file and resembles a command's name, or is the only one."""
        from difflib import get_close_matches

        if args[0] in INSTEAD:
            raise click.UsageError(f"there is no command and no file {args[0]!r}: it is {INSTEAD[args[0]]}", ctx)

        close = get_close_matches(args[0], COMMANDS, n=1, cutoff=0.75)
        if close or len(args) == 1:
            instead = "".join(f". Did you mean {name!r}?" for name in close)
            raise click.UsageError(f"there is no command and no file {args[0]!r}{instead}", ctx)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hw4", message="%(prog)s %(version)s")
def cli() -> None:
    """FlashAttention from file to file: O = softmax(QKᵀ/√d)V of B batches.

    \b
    hw4 INPUTFILE OUTPUTFILE  compute (as hw4 run does)
    hw4 gen t01-t10           make cases and their answers
    hw4 judge t01-t10         run hw4 on them, and judge it

    Exit status: 0 all right, 1 judged not right, 2 wrong usage or a bad file, 3 the machine cannot, 130 interrupted,
    141 the output's reader has gone.
    """


if "run" not in COMMANDS:
    cli.help = f"""The judge of the FlashAttention homework, without its solution.

    \b
    hw4 gen t01-t10                     make cases and their answers
    hw4 judge t01-t10                   judge ./hw4 on them
    hw4 verify my.out testcases/t01.out show where an output is wrong

    {cli.help[cli.help.index("Exit status") :] if cli.help else ""}"""


def run_command(args: list[str] | None = None) -> int:
    """Run the command line; returns the exit code. Every problem is one sentence on stderr."""
    never_fail()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without √ gets a question mark, not a traceback
    code = _run(args)
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError as error:
        _discard_stdout()
        reported = code == MACHINE or isinstance(error, BrokenPipeError)
        return code if reported else _problem(f"cannot write the output: {error.strerror}", MACHINE)
    return code


def _run(args: list[str] | None) -> int:
    try:
        result = cli.main(args, prog_name="hw4", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.NoSuchOption as error:
        instead = INSTEAD.get(error.option_name)
        sentence = f"there is no option {error.option_name}: it is {instead}" if instead else error.format_message()
        return _problem(f"{sentence.rstrip('.')}{_help_of(error)}", error.exit_code)
    except click.UsageError as error:
        return _problem(f"{error.format_message().rstrip('.')}{_help_of(error)}", error.exit_code)
    except Hw4Error as error:
        return _problem(str(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        progress = (error.__cause__ or error).args  # click turns KeyboardInterrupt into Abort
        return _problem(": ".join(["interrupted", *map(str, progress)]), INTERRUPTED)
    except (BrokenPipeError, SystemExit) as error:  # click and rich make the second of the first
        if isinstance(error, SystemExit) and error.code != 1:
            raise
        _discard_stdout()
        return READER_GONE
    except (OSError, ImportError, MemoryError, RuntimeError, ValueError) as error:
        if message := resource_shortage(error):
            return _problem(message, MACHINE)
        package = str(getattr(error, "name", "")).partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and package != "hw4cli":
            return _problem(f"the package {package} is missing here: install hw4 again (see docs/install.md)", MACHINE)
        if isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            if error.errno == errno.ENOSPC and not where:
                where = "cannot write the output: "
            return _problem(f"{where}{error.strerror or error}", MACHINE)
        if "Symlink loop" in str(error) or "null byte" in str(error):
            return _problem(f"a file's name leads nowhere: {error}", 2)
        raise


def _help_of(error: click.UsageError) -> str:
    return f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""


def _discard_stdout() -> None:
    """The output's reader has gone, or its disk is full: Python must not write again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _problem(sentence: str, code: int) -> int:
    print_message(sentence)
    return code
