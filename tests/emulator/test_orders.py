"""What threads may rely on of each other: fences, scopes of atomics, volatile words, locks."""

import re
from functools import cache
from pathlib import Path

import pytest
from needs import needs

from hw4cli.emulator.program.build import Source, compile_program
from hw4cli.emulator.program.execute import run_program

pytestmark = needs("g++|clang++")
ORDERS = Path(__file__).parent / "programs/orders.cu"


@cache
def orders():
    return compile_program(Source((ORDERS,)))


def line_of(name, number):
    """The line of orders.cu that a comment names, by its number among those of that name."""
    lines = [n for n, line in enumerate(ORDERS.read_text().splitlines(), 1) if re.search(rf"// {name}$", line)]
    return f"orders.cu:{lines[number]}"


SAID = {  # words of the sentence, with lines by their number in {}
    "message": "a __threadfence() is missing before {1}, which says that it is done, as {2} reads",
    "reader": "a __threadfence() is missing behind {1}, which reads that it is done",
    "block-fence": "a __threadfence() is missing before {1}, which says that it is done",
    "warps": "a __threadfence_block() is missing before {1}, which says that it is done",
    "block-atomic": "an atomic of block scope is none for other blocks",
    "volatile-data": "volatile accesses have no order",
    "volatile-writes": "nothing orders blocks of one launch",
    "volatile-plain": "nothing orders blocks of one launch",
    "in-turns": "a __threadfence() is missing before {1}, which says that it is done",
    "lock-taken": "a __threadfence() is missing between {0}, which takes the lock, and {1}",
    "lock-given": "a __threadfence() is missing before {1}, which says that it is done",
    "last-block": "a __threadfence() is missing before",
    "referred": "a __threadfence() is missing before {1}, which says that it is done",
    "narrow": "an atomic of block scope is none for other blocks",
}


@pytest.mark.parametrize("name", SAID)
def test_an_order_that_is_missing_is_a_race_which_says_what_is_missing_where(name):
    wrong = run_program(orders(), [name])
    said = [str(one) for one in wrong.findings if one.kind == "race"]
    words = re.sub(r"\{(\d)\}", lambda number: line_of(name, int(number[1])), SAID[name])
    assert any(words in sentence for sentence in said), wrong
    right = run_program(orders(), [name, "right"])
    assert right.right, right
