"""The ladder: the kernels in float32, in the order in which their families' modules have them.

An entry's name is the value of --kernel. Who computes files needs these entries alone; registry.py has all others, too.
"""

from hw4cli.plans import flash, scalar, tensor
from hw4cli.plans.plan import Variant

DEFAULT = "flash"
FALLBACK = "float64"
FAMILIES = (scalar, flash, tensor)  # each rung's file says what it changes against the one before
ENTRIES = [entry for family in FAMILIES for entry in vars(family).values() if isinstance(entry, Variant)]
# FALLBACK, which is not a rung but the way out, comes last.
VARIANTS = {entry.name: entry for entry in sorted(ENTRIES, key=lambda entry: entry.name == FALLBACK)}
