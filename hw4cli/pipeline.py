"""From file to file: batches in, attention on a device, batches out."""

from collections.abc import Callable
from pathlib import Path

from hw4cli.casefile import Floats, InputFile, NewFile, check_different, magnitudes
from hw4cli.errors import MachineError
from hw4cli.shape import Shape
from hw4cli.stopwatch import Stopwatch, since_process_start
from hw4cli.variants import FALLBACK, float32_suffices

# Input bytes on their way at a time. Large enough that a kernel fills any GPU (t12: 680 batches),
# small enough that four of them and a laptop's browser fit beside each other.
BLOCK_BYTES = 64 << 20

# A device: O (n, N, d) of a block (n, 3, N, d), in float32 or, if `wide`, in float64.
Attention = Callable[[Floats, bool, Stopwatch], Floats]
Say = Callable[[str], None]


def run(
    source: Path,
    target: Path,
    open_device: Callable[[Shape], Attention],
    watch: Stopwatch,
    say: Say,
) -> Shape:
    """Compute the input file's attention into the output file; return the shape.

    The device is opened after the input's header is known to be good and the output's place to be there.
    `say` gets a sentence when blocks had to be computed in float64. Raises InputError and MachineError;
    then, as on Ctrl-C, the old output is untouched.
    """
    with InputFile(source) as inputs:
        check_different(source, target)
        with NewFile(target) as output:
            attention = open_device(inputs.shape)
            watch.add("start", since_process_start())
            wide_batches = 0
            blocks = inputs.blocks(BLOCK_BYTES)
            while True:
                with watch("read"):
                    first, block = next(blocks, (0, None))
                    if block is None:
                        break
                    wide = not float32_suffices(magnitudes(block, first, source), inputs.shape.d)
                wide_batches += len(block) * wide
                result = attention(block, wide, watch)
                with watch("write"):
                    output.write(result)
        if wide_batches:
            say(f"{wide_batches} batch(es) have scores too large for float32 and were computed in float64")
    return inputs.shape


def cpu(_: Shape) -> Attention:
    """The CPU as a device."""
    import numpy as np

    from hw4cli.reference import tiled_attention

    def attention(block: Floats, wide: bool, watch: Stopwatch) -> Floats:
        with watch("kernel"):
            return tiled_attention(block, np.float64 if wide else np.float32)

    return attention


def cuda(kernel: str) -> Callable[[Shape], Attention]:
    """The GPU as a device, with a kernel of the ladder. MachineError, when it is opened, if there is none."""

    def open_device(shape: Shape) -> Attention:
        from hw4cli.gpu import Gpu

        gpu = Gpu()
        gpu.plan(kernel, shape)

        def attention(block: Floats, wide: bool, watch: Stopwatch) -> Floats:
            return gpu.attention(block, FALLBACK if wide else kernel, watch)

        return attention

    return open_device


def auto(kernel: str, say: Say) -> Callable[[Shape], Attention]:
    """The GPU if there is one that works, else the CPU and a sentence that says so."""

    def open_device(shape: Shape) -> Attention:
        try:
            return cuda(kernel)(shape)
        except MachineError as reason:
            say(f"{reason}; using the CPU")
            return cpu(shape)

    return open_device
