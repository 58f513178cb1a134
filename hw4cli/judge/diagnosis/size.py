"""An output of the wrong size: what it probably holds."""

import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hw4cli.problem.casefile import FLOAT32, HEADER, open_regular, read_exactly
from hw4cli.problem.errormap import TILES, listed
from hw4cli.problem.workload import Workload
from hw4cli.text.words import counted

COMPARED = 512  # elements that are compared with the answer's
RIGHT = 0.9  # of them, for the output to hold the answer: some may be wrong for another reason
TEXT = 64  # bytes, at least, that identify text
TYPES = {"<f8": "float64", "<f2": "float16"}


def explain_size(output: Path, answer: Path, shape: Workload, tolerance: float) -> str | None:
    """What a file of the wrong size holds, if that is recognised. InputError if a file cannot be read."""
    with open_regular(output) as file, open_regular(answer) as answers:
        found = os.fstat(file.fileno()).st_size
        start = _bytes_at(file, output, 0, min(found, TEXT))
        if not found:
            return "it is empty"
        if all(32 <= byte < 127 or byte in b"\t\r\n" for byte in start) and found >= TEXT:
            return "it is text, but must be the numbers' bytes as they are in memory"

        for kind, name in TYPES.items():
            dtype = np.dtype(kind)
            if found == shape.elements * dtype.itemsize and _holds(
                (file, output), (answers, answer), shape, dtype, tolerance
            ):
                return f"its numbers are right if they are read as {name}: write float32"
        header = HEADER.pack(shape.B, shape.N, shape.d)
        if start.startswith(header):
            if found == shape.input_bytes:
                return "it is as long as the input and begins like it: write O alone, without header, Q, K and V"
            return "it begins with the input's header: an output has none"
    return _proportion(found, shape)


def _proportion(found: int, shape: Workload) -> str | None:
    """What the number of bytes alone shows."""
    size, batch = shape.output_bytes, shape.output_bytes // shape.B
    if found == 3 * size:
        return "it is as long as Q, K and V together: write O alone"
    if found % size == 0:
        times = found // size
        return f"it is {times} times as long: written more than once, or in numbers of {4 * times} bytes?"
    if found == size + HEADER.size:
        return "it is longer by a header, but an output has none"
    if found % batch == 0:
        return f"it has {counted(found // batch, 'batch', 'batches')} of {shape.B}"
    rows, rest = divmod(found, 4 * shape.B * shape.d)
    tiles = [tile for tile in TILES if rows in _whole(shape.N, tile)]
    if rest or not tiles:
        return None
    way = "down" if rows < shape.N else "up"
    return f"it has N rounded {way} to whole tiles of {listed(tiles, 'or')} rows: {rows} in place of {shape.N}"


def _whole(N: int, tile: int) -> tuple[int, int]:
    """N rounded down and up to whole tiles."""
    return N // tile * tile, -(-N // tile) * tile


def _holds(
    output: tuple[BinaryIO, Path],
    answer: tuple[BinaryIO, Path],
    shape: Workload,
    dtype: "np.dtype[np.floating]",
    tolerance: float,
) -> bool:
    """Whether the output holds the answer in numbers of this type."""
    got, right = np.empty(1, dtype), np.empty(1, FLOAT32)
    places = np.unique(np.linspace(0, shape.elements - 1, COMPARED).astype(np.int64)).tolist()
    near = 0
    for place in places:
        read_exactly(output[0], got, place * dtype.itemsize, output[1])
        read_exactly(answer[0], right, 4 * place, answer[1])
        value, exact = float(got[0]), float(right[0])
        near += abs(value - exact) <= max(tolerance, 2e-3 * abs(exact))
    return near >= RIGHT * len(places)


def _bytes_at(file: BinaryIO, path: Path, start: int, count: int) -> bytes:
    out = np.empty(count, np.uint8)
    if count:
        read_exactly(file, out, start, path)
    return out.tobytes()
