"""The float64 oracle on the fastest device: the GPU if there is one that works, else the CPU."""

from hw4cli.device.gpu import Gpu
from hw4cli.errors import MachineError
from hw4cli.plans.ladder import FALLBACK
from hw4cli.problem.casefile import Floats
from hw4cli.problem.generate import Oracle, cpu_oracle
from hw4cli.text.progress import Advance


def best_oracle(causal: bool = False) -> tuple[Oracle, str]:
    """The float64 oracle, of causal attention if asked, on the GPU if one works, else on the CPU; and its description.

    On the GPU it is the kernel `float64`, which shares no code with the others; the tests compare it with the CPU's
    oracle.
    """

    try:
        gpu = Gpu()
    except MachineError:
        return cpu_oracle(causal)

    def on_gpu(block: Floats, advance: Advance) -> Floats:
        answer: Floats = gpu.attention(block, FALLBACK, causal)
        advance(answer.shape[0] * answer.shape[1])
        return answer

    return on_gpu, f"float64 on {gpu.name}"
