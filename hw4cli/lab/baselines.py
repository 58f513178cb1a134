"""The baseline: PyTorch's attention, as implementations in the same benchmark."""

from typing import Any

from hw4cli.device.gpu import Gpu
from hw4cli.errors import MachineError
from hw4cli.lab.bench import Implementation, Work
from hw4cli.problem.workload import Workload

BACKENDS = {"torch efficient": "EFFICIENT_ATTENTION", "torch math": "MATH"}


def torch_implementations(gpu: Gpu) -> list[Implementation]:
    """PyTorch's float32 scaled_dot_product_attention by each backend. MachineError if there is no PyTorch."""
    try:
        import torch
    except ImportError:
        raise MachineError("--peers torch needs PyTorch, which is not installed here") from None
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 is compared with float32

    def implementation(name: str, backend: str) -> Implementation:
        def prepare(shape: Workload) -> tuple[Work, dict[str, Any]]:
            return lambda inputs, _: attention(gpu, torch, backend, inputs, shape.causal), {}

        return Implementation(name, prepare)

    return [implementation(name, backend) for name, backend in BACKENDS.items()]


def attention(gpu: Gpu, torch: Any, backend: str, inputs: Any, causal: bool = False) -> Any:
    """One call of PyTorch's attention on a cupy array (n, 3, N, d), a batch as a sequence of one head; O (n, N, d)."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.from_dlpack(inputs[:, part]).unsqueeze(1) for part in range(3))
    try:
        with torch.no_grad(), sdpa_kernel(getattr(SDPBackend, backend)):
            result = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
        raise MachineError(f"PyTorch: {str(error).splitlines()[0]}") from None
    return gpu.cupy.from_dlpack(result.squeeze(1))
