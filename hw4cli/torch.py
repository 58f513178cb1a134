"""hw4 for PyTorch: `hw4cli.torch.attention`, attention with gradients (docs/api.md). It needs PyTorch."""

try:
    import torch as _torch  # noqa: F401 - whether it is installed
except ImportError:
    raise ImportError("hw4cli.torch needs PyTorch, which is not installed here: pip install torch") from None

from hw4cli.arrays.autograd.attention import attention as attention
from hw4cli.arrays.autograd.transformers import register_in_transformers as register_in_transformers
