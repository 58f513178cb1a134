"""The registry: an entry for each kernel, which says all that is known of it.

An entry's name is its file kernels/NAME.cu and the prefix of its symbols. Its formulas (tiles, threads, shared memory,
launches, splits) stand beside it, in its family's module:

- the ladder, in float32 (ladder.py: scalar.py, flash.py, tensor.py): `Variant`s;
- of 16-bit numbers (kernels16.py) and of gradients (gradients.py): `ArrayKernel`s, which are asked from the fastest on;
- what is launched beside them (launch.py, choice.py, columns.py, tables.py): the range check, the choice by what it
  finds, the copies of rows, and what writes tables. What puts the splits of the keys together is a launch of the kernel
  that has splits.

All take a mask.
"""

from hw4cli.plans import choice, columns, launch, tables
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.kernels16 import ENTRIES16, KERNELS16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import Kernel

HELPERS = {entry.name: entry for entry in (launch.ABSMAX, choice.CHOICE, columns.COLUMNS, tables.WRITER)}
KERNELS: dict[str, Kernel] = {**VARIANTS, **ENTRIES16, **GRADIENTS, **HELPERS}
ARRAY_KERNELS = (*KERNELS16, *GRADIENTS)  # of arrays, that users name
