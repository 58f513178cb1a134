"""What threads may rely on of each other: fences, scopes of atomics, volatile words, locks."""

import pytest
from cases_of_programs import Program
from needs import needs

pytestmark = needs("g++|clang++")
ORDERS = Program("orders")

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
    "builtin": "a __threadfence() is missing before {1}, which says that it is done",
    "builtin-narrow": "an atomic of block scope is none for other blocks",
}


@pytest.mark.parametrize("name", SAID)
def test_an_order_that_is_missing_is_a_race_which_says_what_is_missing_where(name):
    assert ORDERS.said(name, "race", SAID[name].format(*ORDERS.lines(name)))
    right = ORDERS.ran(name, "right")
    assert right.right, right
