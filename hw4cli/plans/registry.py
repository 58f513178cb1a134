"""The kernels: every entry of the families' modules, in the order in which they stand there.

An entry's name is its file kernels/NAME.cu, the prefix of its symbols, and the value of --kernel. Its formulas (tiles,
threads, shared memory, launches, splits) stand beside it.
"""

from hw4cli.plans import flash, scalar, tensor
from hw4cli.plans.plan import Variant

DEFAULT = "flash"
FALLBACK = "float64"
FAMILIES = (scalar, flash, tensor)  # each rung's file says what it changes against the one before
ENTRIES = [entry for family in FAMILIES for entry in vars(family).values() if isinstance(entry, Variant)]
# FALLBACK, which is not a rung but the way out, comes last.
VARIANTS = {entry.name: entry for entry in sorted(ENTRIES, key=lambda entry: entry.name == FALLBACK)}
