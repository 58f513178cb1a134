"""The kernels: one entry each, in the order of the ladder.

The entries and their formulas (tiles, threads, shared memory, launches, parts) stand in a module for each family.

An entry's name is its file kernels/NAME.cu, the prefix of its symbols, and the value of --kernel.
"""

from hw4cli.compute.flash import FLASH
from hw4cli.compute.scalar import FLOAT4, FLOAT64, NAIVE, SHARED, SMALLBR, WARP
from hw4cli.compute.tensor import EXACT, SPLIT

# Each rung's file says what it changes against the one before.
LADDER = (NAIVE, SMALLBR, SHARED, WARP, FLOAT4, FLASH, SPLIT, EXACT, FLOAT64)
VARIANTS = {variant.name: variant for variant in LADDER}
DEFAULT = "flash"
FALLBACK = "float64"
