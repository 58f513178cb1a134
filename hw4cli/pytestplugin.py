"""The pytest fixture `emulate`: kernels of any CUDA file tested on the CPU, in any project (docs/emulator.md)."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def emulate() -> Callable[..., Any]:
    """`hw4cli.emulate`, with the same arguments, for a test: a mistake that is found fails it, with its sentences.

    `finds="race"` expects a mistake of that kind, and fails if there is none; `finds=None` fails for none: the test
    looks at what is returned. Where there is no C++ compiler, the test is skipped.
    """
    from hw4cli import MachineError
    from hw4cli import emulate as run

    def emulated(*arguments: Any, finds: str | None = "", **options: Any) -> Any:
        __tracebackhide__ = True
        try:
            done = run(*arguments, **options)
        except MachineError as error:
            pytest.skip(str(error))
        kinds = [finding.kind for finding in done.findings]
        if finds == "" and not done.right:
            pytest.fail(f"the kernel has mistakes:\n{done}", pytrace=False)
        if finds and finds not in kinds:
            pytest.fail(f"a mistake of the kind {finds!r} was expected, and there is none:\n{done}", pytrace=False)
        return done

    return emulated
