"""hw4: FlashAttention forward on a GPU, from file to file, with its judge and its laboratory.

This module is the public Python interface; docs/api.md shows it. `import hw4cli` imports nothing else: each name is
loaded from its module when it is first used.
"""

TYPE_CHECKING = False  # type checkers take it for True; importing typing would delay the answer to Ctrl-C
if TYPE_CHECKING:
    from hw4cli.arrays.attention import attention as attention
    from hw4cli.arrays.gradients.backward import attention_backward as attention_backward
    from hw4cli.arrays.shards.backward import attention_backward_of_shards as attention_backward_of_shards
    from hw4cli.arrays.shards.forward import attention_of_each as attention_of_each
    from hw4cli.arrays.shards.forward import attention_of_shards as attention_of_shards
    from hw4cli.device.gpu import Gpu as Gpu
    from hw4cli.emulator.program.kernel import Emulation as Emulation
    from hw4cli.emulator.program.kernel import emulate as emulate
    from hw4cli.errors import Hw4Error as Hw4Error
    from hw4cli.errors import InputError as InputError
    from hw4cli.errors import MachineError as MachineError
    from hw4cli.lab.arrays.inputs import generate as generate
    from hw4cli.lab.session import bench as bench
    from hw4cli.problem.arrays import compare as compare
    from hw4cli.problem.arrays import random_input as random_input
    from hw4cli.problem.arrays import read as read
    from hw4cli.problem.arrays import read_input as read_input
    from hw4cli.problem.arrays import read_output as read_output
    from hw4cli.problem.arrays import write as write
    from hw4cli.problem.arrays import write_input as write_input
    from hw4cli.problem.arrays import write_output as write_output
    from hw4cli.problem.oracle import exact_attention as exact_attention
    from hw4cli.problem.verdict import Comparison as Comparison
    from hw4cli.problem.workload import Shape as Shape
    from hw4cli.stream.tiled import tiled_attention as tiled_attention

__version__ = "0.3.0"

_MODULES = {
    "Comparison": "problem.verdict",
    "Emulation": "emulator.program.kernel",
    "Gpu": "device.gpu",
    "Hw4Error": "errors",
    "InputError": "errors",
    "MachineError": "errors",
    "Shape": "problem.workload",
    "attention": "arrays.attention",
    "attention_backward": "arrays.gradients.backward",
    "attention_backward_of_shards": "arrays.shards.backward",
    "attention_of_each": "arrays.shards.forward",
    "attention_of_shards": "arrays.shards.forward",
    "bench": "lab.session",
    "compare": "problem.arrays",
    "emulate": "emulator.program.kernel",
    "exact_attention": "problem.oracle",
    "generate": "lab.arrays.inputs",
    "random_input": "problem.arrays",
    "read": "problem.arrays",
    "read_input": "problem.arrays",
    "read_output": "problem.arrays",
    "tiled_attention": "stream.tiled",
    "write": "problem.arrays",
    "write_input": "problem.arrays",
    "write_output": "problem.arrays",
}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(f"{__name__}."):  # a package of others is missing
            raise
        raise ImportError(f"there is no hw4cli.{name} here: this is the judge alone, which computes nothing") from None
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
