"""PyTorch's own samples of scaled_dot_product_attention through hw4cli.torch.attention: each right, or refused."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
samples = pytest.importorskip(
    "torch.testing._internal.common_methods_invocations",
    reason="torch's samples are not here, or need a package that is not",
    exc_type=ImportError,
)

from test_autograd import EPSILON  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import hw4cli.torch  # noqa: E402

REFUSED = "dropout_p is 0.5: there is no dropout here, give 0"
(INFO,) = (op for op in samples.op_db if op.name == "nn.functional.scaled_dot_product_attention")


def answer(function, sample, dtype):
    """O and the gradients of the tensors, the mask among them, of a loss that weighs each element of O otherwise."""
    mask = sample.kwargs.get("attn_mask")
    given = [sample.input, *sample.args, *([] if mask is None else [mask])]
    leaves = [x.detach().to(dtype).requires_grad_() for x in given]
    masked = {} if mask is None else {"attn_mask": leaves[3]}
    o = function(*leaves[:3], **sample.kwargs | masked)
    weights = torch.arange(o.numel(), dtype=torch.float64, device=o.device).reshape(o.shape).sin()
    return [o.detach(), *torch.autograd.grad((o * weights).sum(), leaves)]


@pytest.mark.parametrize("dtype", EPSILON, ids=str)
def test_each_of_torchs_samples_is_answered_right_or_refused_in_a_sentence(dtype):
    found = Counter()
    for sample in INFO.sample_inputs("cpu", dtype, requires_grad=True):
        try:
            got = answer(hw4cli.torch.attention, sample, dtype)
        except ValueError as error:
            assert str(error) == REFUSED, f"{sample.summary()}: {error}"
            found["refused"] += 1
            continue
        found["right"] += 1
        right, theirs = (answer(scaled_dot_product_attention, sample, wide) for wide in (torch.float64, dtype))
        for one, other, expected in zip(got, theirs, right, strict=True):
            assert one.shape == expected.shape and one.dtype == dtype
            error, torchs = (float((x.double() - expected).abs().max()) for x in (one, other))
            rounded = EPSILON[dtype] * max(1.0, float(expected.abs().max()))
            assert error <= max(rounded, 2 * torchs), sample.summary()
    assert found["right"] >= 13 and found["refused"] >= 8, found
