"""Tables of sequences for the kernels of gradients (kernels/spans.cuh): of each tile of rows, or of keys, its sequence.

In scratch, what there is of rows lies in whole tiles of each sequence, in the order of the tables, and so does what
there is of keys.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.plan import Plan
from hw4cli.problem.workload import Workload

SPAN_BYTES = 48  # of Span in kernels/spans.cuh


class Owned(NamedTuple):
    """What blocks take: tiles of so many rows, or of keys."""

    tile: int
    keys: bool = False

    def count(self, work: Workload) -> int:
        """How many there are in a head of all sequences; 0 where there are none."""
        lengths = (span.keys if self.keys else span.rows for span in work.sequences)
        return sum(ceil_div(length, self.tile) for length in lengths)


def with_tables(plan: Plan, work: Workload, scratch: tuple[int, int], owned: Sequence[Owned]) -> Plan:
    """The plan with a table for each kind of tiles behind its scratch, in which tiles have so many rows and keys.

    Sequences whose tiles take the longest come first in a table: of rows, those of the most keys; of keys, those of the
    most rows."""
    if not work.sequences:
        return plan
    import numpy as np  # which is not needed to name kernels, as where words are completed

    spans = np.array(work.sequences, np.int32)
    lengths = spans[:, 2], spans[:, 4]  # rows, keys
    orders = [np.argsort(-other, kind="stable") for other in reversed(lengths)]

    def counted(of_keys: bool, tile: int) -> tuple[Any, Any]:
        """Of each sequence, how many tiles come before it, and how many it has."""
        tiles, before = -(-lengths[of_keys] // tile), np.zeros(len(spans), np.int32)
        before[orders[of_keys]] = tiles[orders[of_keys]].cumsum() - tiles[orders[of_keys]]
        return before, tiles

    places = [counted(of_keys, scratch[of_keys])[0] for of_keys in (False, True)]
    tables = []
    for tile, of_keys in owned:
        before, tiles = counted(of_keys, tile)
        entries = np.column_stack([spans, before, tiles, *places, np.zeros((len(spans), 1), np.int32)])
        some = entries.astype(np.int32)[orders[of_keys]]
        tables.append(np.repeat(some, tiles[orders[of_keys]], axis=0).tobytes())
    at = ceil_div(plan.scratch, SPAN_BYTES) * SPAN_BYTES
    table = b"".join(tables)
    return replace(plan, layout=plan.layout._replace(size=at + len(table), sequences=at), table=table)


def table_addresses(plan: Plan, work: Workload, scratch: int, owned: Sequence[Owned]) -> list[int]:
    """Where the tables lie, if there are any; else 0."""
    at, found = scratch + plan.layout.sequences, []
    for one in owned:
        found.append(at if plan.table else 0)
        at += SPAN_BYTES * one.count(work)
    return found
