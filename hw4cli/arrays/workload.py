"""What is to be computed, apart from where it lies: element type, sizes, heads, the mask."""

import math
from dataclasses import dataclass

from hw4cli.compute.formulas import ceil_div

FLOAT16, BFLOAT16, FLOAT32 = "float16", "bfloat16", "float32"
BOTTOM_RIGHT, TOP_LEFT = "bottom-right", "top-left"


@dataclass(frozen=True)
class Workload:
    """Attention of Q (batch, heads, Nq, d) with K and V (batch, kv_heads, Nk, d).

    Causal: row i sees the keys 0 to i + offset; Nk - Nq as the offset lets the last row see the last key.
    """

    dtype: str
    batch: int
    heads: int
    kv_heads: int
    Nq: int
    Nk: int
    d: int
    causal: bool = False
    offset: int = 0

    @staticmethod
    def square(dtype: str, batch: int, heads: int, N: int, d: int, causal: bool = False) -> "Workload":
        """As many keys as rows, and a head of K and V for each head of Q."""
        return Workload(dtype, batch, heads, heads, N, N, d, causal)

    @property
    def flops(self) -> float:
        """Operations by the field's convention: 4 d for each pair of a row and a key; half of them if causal."""
        return 4 * self.batch * self.heads * self.Nq * self.Nk * self.d / (2 if self.causal else 1)

    @property
    def scale(self) -> float:
        """Of the scores, where nobody gives another: 1/sqrt(d)."""
        return 1 / math.sqrt(self.d)

    def row_tiles(self, rows: int) -> int:
        """Tiles of so many rows in all heads."""
        return self.batch * self.heads * ceil_div(self.Nq, rows)
