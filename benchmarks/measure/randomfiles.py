"""Random files of scaling.py, and how their outputs are compared: with each other, and with float64."""

import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.measure.scripts import say

Sizes = tuple[int, int, int]
CHUNK = 1 << 24  # elements
SAMPLES = 2, 6  # batches, and rows of each, that are compared with float64


def make(path: Path, shape: Sizes) -> None:
    """A file of random numbers in [-3, 3), by all cores."""
    B, N, d = shape
    with path.open("wb") as file:
        file.write(struct.pack("<iii", B, N, d))
        file.truncate(12 + 12 * B * N * d)
    values = np.memmap(path, "<f4", "r+", 12)

    def fill(start: int) -> None:
        part = np.random.default_rng(start).random(min(CHUNK, values.size - start), np.float32)
        values[start : start + part.size] = 6 * part - 3

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(0, values.size, CHUNK)))


def digest(path: Path) -> str:
    """A checksum of a file, by all cores."""
    data = np.memmap(path, np.uint8, "r")
    with ThreadPoolExecutor() as pool:
        sums = pool.map(lambda at: zlib.crc32(data[at : at + CHUNK].data), range(0, data.size, CHUNK))
        return f"{zlib.crc32(np.array(list(sums), '<u4').tobytes()):08x}"


def worst_error(source: Path, target: Path, shape: Sizes, causal: bool = False) -> float:
    """The largest error of some rows, beside float64."""
    B, N, d = shape
    q, o = np.memmap(source, "<f4", "r", 12).reshape(B, 3, N, d), np.memmap(target, "<f4", "r").reshape(B, N, d)
    worst = 0.0
    for batch in np.linspace(0, B - 1, min(B, SAMPLES[0])).astype(int):
        k, v = (q[batch, part].astype(np.float64) for part in (1, 2))
        some = np.linspace(0, N - 1, SAMPLES[1]).astype(int)
        s = q[batch, 0][some].astype(np.float64) @ k.T / d**0.5
        if causal:
            s[np.arange(N) > some[:, None]] = -np.inf
        p = np.exp(s - s.max(axis=1, keepdims=True))
        worst = max(worst, float(np.abs(p @ v / p.sum(axis=1, keepdims=True) - o[batch][some]).max()))
    return worst


class File:
    """A random file that goes at the end of a block."""

    def __init__(self, path: Path, shape: Sizes, words: str = "") -> None:
        self._path, self._words, self._shape = path, words, shape

    def __enter__(self) -> Path:
        began = time.perf_counter()
        make(self._path, self._shape)
        if self._words:
            say(f"{self._words}, {self._shape}: made in {time.perf_counter() - began:.1f} s")
        return self._path

    def __exit__(self, *_: object) -> None:
        self._path.unlink()
