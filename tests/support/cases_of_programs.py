"""Programs of tests/emulator/programs that have many cases: the first argument names one, "right" behind it asks for
its right twin, and a comment with the case's name marks the lines that a finding must name.
"""

import re
from functools import cache
from pathlib import Path

from hw4cli.emulator.program.build import Source, compile_program
from hw4cli.emulator.program.execute import run_program

PROGRAMS = Path(__file__).parents[1] / "emulator/programs"


@cache
def compiled(path, watched):
    """A program, compiled once for all tests of a process."""
    return compile_program(Source((path,)), watched=watched)


class Program:
    """One of them, by its name."""

    def __init__(self, name):
        self.path = PROGRAMS / f"{name}.cu"

    def ran(self, case, *more, **options):
        """What an execution of a case finds."""
        return run_program(compiled(self.path, True), [case, *more], **options)

    def lines(self, case):
        """The lines that a comment marks with a case, as findings name them: mistakes.cu:31."""
        text = self.path.read_text().splitlines()
        mark = re.compile(rf"// {case}(?![\w-])")
        return [f"{self.path.name}:{number}" for number, line in enumerate(text, 1) if mark.search(line)]

    def said(self, case, kind, words=""):
        """Sentences of a kind with these words that an execution of a case finds, one at least."""
        wrong = self.ran(case)
        said = [str(one) for one in wrong.findings if one.kind == kind and words in one.sentence]
        assert said, wrong
        return said
