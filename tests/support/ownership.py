"""Which elements a thread holds, worked out from a layout by its definition."""

import numpy as np

from hw4cli.plans.plan import Linear


def owners(layout, rows, columns, threads):
    """The thread of each element (rows, columns); of several that hold it, the first."""
    i, j = np.indices((rows, columns))
    if isinstance(layout, Linear):
        return (i * layout.width + j) % threads
    found = np.zeros((rows, columns), int)
    for index, digits in ((i, layout.rows), (j, layout.columns)):
        for size, stride in digits:
            found += index % size * stride
            index = index // size
    return found


def held(layout, thread, rows, columns, threads):
    """Whether a thread holds each element."""
    first = owners(layout, rows, columns, threads)
    copies, apart = getattr(layout, "copies", 1), getattr(layout, "apart", 0)
    return np.any([first + n * apart == thread for n in range(copies)], axis=0)
