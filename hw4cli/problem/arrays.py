"""Cases as NumPy arrays: made, read, written and compared. The public interface (hw4cli/__init__.py) exports these."""

from pathlib import Path

import numpy as np

from hw4cli.errors import InputError
from hw4cli.problem.casefile import FLOAT32, HEADER, Floats, InputFile, open_regular, read_exactly
from hw4cli.problem.rules import TOLERANCE
from hw4cli.problem.suite import uniform
from hw4cli.problem.verdict import Comparison
from hw4cli.problem.workload import Workload, check_floats, is_whole
from hw4cli.system.files import NewFile


def random_input(shape: Workload, seed: int) -> Floats:
    """A float32 array (B, 3, N, d) of values uniform in [-3, 3): Q, K and V of each batch, as `hw4 gen` makes them.

    The same shape and seed give the same bytes on every machine. Raises InputError for another shape than a case's, or
    a seed that is no integer from 0 on.

    >>> from hw4cli import Shape
    >>> random_input(Shape(2, 4, 8), seed=1).shape
    (2, 3, 4, 8)
    """
    shape.check("the shape")
    if not is_whole(seed) or seed < 0:
        raise InputError(f"seed is {seed}: give an integer, 0 or more")
    block = np.empty((shape.B, 3, shape.N, shape.d), FLOAT32)
    flat, start = block.reshape(-1), 0
    for chunk in uniform(seed, block.size):
        flat[start : start + len(chunk)] = chunk
        start += len(chunk)
    return block


def read_input(path: str | Path) -> Floats:
    """Q, K and V of an input file, a float32 array (B, 3, N, d).

    Raises InputError if the file is missing, too short, too long, or has a header that no case has.

    >>> from hw4cli import Shape
    >>> path = write_input("in", random_input(Shape(2, 4, 8), seed=1))
    >>> Q, K, V = read_input(path).swapaxes(0, 1)
    >>> Q.shape
    (2, 4, 8)
    """
    with InputFile(Path(path)) as inputs:
        return inputs.batches(0, inputs.shape.B)


def write_input(path: str | Path, block: Floats) -> Path:
    """Write Q, K and V, a float32 array (B, 3, N, d), as an input file; its path.

    Raises InputError if the array has another type or shape, MachineError if the file cannot be written.

    >>> Q = K = V = np.zeros((2, 4, 8), np.float32)
    >>> write_input("in", np.stack([Q, K, V], axis=1)).stat().st_size
    780
    """
    shape = Workload.of_block(block)
    shape.check("the array")
    with NewFile(Path(path)) as file:
        file.write(memoryview(HEADER.pack(shape.B, shape.N, shape.d)))
        file.write(np.ascontiguousarray(block, FLOAT32))
    return Path(path)


def read_output(path: str | Path, shape: Workload) -> Floats:
    """O of an output file, a float32 array (B, N, d). Raises InputError if the file is missing or has another size.

    >>> path = write_output("out", np.zeros((2, 4, 8), np.float32))
    >>> from hw4cli import Shape
    >>> read_output(path, Shape(2, 4, 8)).shape
    (2, 4, 8)
    """
    path = Path(path)
    out = np.empty((shape.B, shape.N, shape.d), FLOAT32)
    with open_regular(path) as file:
        if (size := path.stat().st_size) != shape.output_bytes:
            raise InputError(f"{path} has {size:,} bytes, but an output of shape {shape} has {shape.output_bytes:,}")
        read_exactly(file, out, 0, path)
    return out


def write_output(path: str | Path, output: Floats) -> Path:
    """Write O, a float32 array (B, N, d), as an output file; its path. Raises as `write_input` does.

    >>> write_output("out", np.zeros((2, 4, 8), np.float32)).stat().st_size
    256
    """
    check_floats("an output", output, "(B, N, d)")
    Workload.one_head(*output.shape).check("the array")
    with NewFile(Path(path)) as file:
        file.write(np.ascontiguousarray(output, FLOAT32))
    return Path(path)


def compare(output: Floats, answer: Floats, tolerance: float = TOLERANCE) -> Comparison:
    """Compare an output with its answer, two float32 arrays of one shape, as the judge does.

    An element is right if it is finite and within `tolerance` of the answer. The result has `right`, `wrong` and
    `not_finite` (numbers of elements), `max_error`, and a sentence, `reason()`. Raises InputError if they are no arrays
    or differ in shape, or if the tolerance is no number from 0 on; ValueError if the answer holds NaN or Inf.

    >>> answer = np.zeros((2, 4, 8), np.float32)
    >>> compare(answer + np.float32(0.001), answer).right
    True
    >>> compare(answer + np.float32(0.1), answer).wrong
    64
    """
    for what, array in (("the output", output), ("the answer", answer)):
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise InputError(f"{what} must be a float32 array (B, N, d), but this is a {type(array).__name__}")
    if isinstance(tolerance, str) or not tolerance >= 0:
        raise InputError(f"tolerance is {tolerance}: it must be a number, 0 or more")
    if output.shape != answer.shape:
        raise InputError(f"the output has shape {output.shape}, the answer {answer.shape}")
    comparison = Comparison(tolerance)
    comparison.add(np.ascontiguousarray(output, FLOAT32).reshape(-1), np.ascontiguousarray(answer, FLOAT32).reshape(-1))
    return comparison


def read(path: str | Path) -> tuple[Floats, Floats, Floats]:
    """Q, K and V of an input file as `attention` takes them: float32 arrays (B, 1, N, d), of one head each.

    Raises InputError as `read_input` does.

    >>> q = k = v = np.zeros((2, 1, 4, 8), np.float32)
    >>> q, k, v = read(write("in", q, k, v))
    >>> q.shape
    (2, 1, 4, 8)
    """
    block = read_input(path)
    return block[:, :1], block[:, 1:2], block[:, 2:]


def write(path: str | Path, *arrays: Floats) -> Path:
    """Write Q, K and V as an input file, or O alone as an output file; its path.

    Arrays are float32 (B, heads, N, d), each head a batch of the file, or (B, N, d). Raises InputError if their number,
    type or shapes do not fit, MachineError if the file cannot be written.

    >>> o = np.zeros((2, 3, 4, 8), np.float32)
    >>> write("in.out", o).stat().st_size
    768
    """
    shapes = [getattr(array, "shape", None) for array in arrays]
    if len(arrays) not in (1, 3) or len(set(shapes)) != 1 or len(shapes[0] or ()) not in (3, 4):
        described = (str(shape) if shape else f"a {type(x).__name__}" for x, shape in zip(arrays, shapes, strict=True))
        found = ", ".join(described) or "nothing"
        raise InputError(f"give Q, K and V, or O alone, all of one shape (B, heads, N, d), but these are {found}")
    flat = [array.reshape(-1, *array.shape[-2:]) for array in arrays]
    return write_output(path, flat[0]) if len(arrays) == 1 else write_input(path, np.stack(flat, axis=1))
