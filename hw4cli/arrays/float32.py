"""float32 arrays on a GPU: which kernel of the ladder answers, and its launches."""

from typing import Any

import numpy as np

from hw4cli.arrays.half import Arrays
from hw4cli.arrays.operand import Operand, largest
from hw4cli.arrays.workload import Workload
from hw4cli.compute.bounds import has_bound
from hw4cli.compute.dispatch import AUTO, Choice, candidates
from hw4cli.compute.launch import ABSMAX_BYTES, Matrix, arguments
from hw4cli.device.gpu import Gpu
from hw4cli.errors import InputError
from hw4cli.problem.shape import Shape

WITH_LSE = ("flash", "split", "exact")


def check_float32(work: Workload, operands: tuple[Operand, ...], scale: float) -> None:
    """Raise NotImplementedError for what the float32 kernels do not compute yet."""
    for wrong, what in (
        (work.causal, "causal"),
        (work.kv_heads != work.heads, "with fewer heads of k and v than of q"),
        (work.Nq != work.Nk, "with another number of keys than of rows"),
        (not np.isclose(scale, work.scale, rtol=1e-6), "with another scale than 1/sqrt(d)"),
        (
            any(not _is_packed(x) for x in operands),
            "of arrays that are not contiguous in the order (batch, heads, N, d)",
        ),
    ):
        if wrong:
            raise NotImplementedError(f"float32 attention on a GPU {what} is not written yet: give float16 or bfloat16")


def _is_packed(x: Operand) -> bool:
    """Whether all heads of all batches lie at one distance, and rows one after the other."""
    (batch, heads, N, d), (by_batch, by_head, by_row, _) = x.shape, x.strides
    return (N == 1 or by_row == d) and (batch == 1 or heads == 1 or by_batch == heads * by_head)


def _merged(m: Matrix, work: Workload) -> Matrix:
    """Batches and heads as batches alone."""
    step = m.head if work.heads > 1 else m.batch
    return Matrix(m.data, step, step, work.d)


class Float32OnGpu:
    """The ladder's kernels on one GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def kernel(
        self,
        work: Workload,
        operands: tuple[Operand, ...],
        kernel: str,
        allowed: float | None,
        bounds: tuple[float, float, float] | None,
    ) -> str:
        """The kernel that answers: the one that is named, or the fastest whose error stays within what is allowed.

        Raises ValueError if none keeps it.
        """
        if kernel != AUTO and (allowed is None or not has_bound(kernel)):
            return kernel
        kernels, why = candidates(kernel, self.gpu.props, self.gpu.name, work.d)
        choice = Choice(kernels, why, work.d, work.Nk, self.gpu.props, allowed)
        q, k, v = bounds or tuple(largest(x) for x in operands)
        if not np.isfinite([q, k, v]).all():
            return kernels[-1]
        try:
            return choice.kernel_for((q, k, v))
        except InputError as error:
            raise ValueError(str(error).replace("--max-error", "max_error =")) from None

    def launch(self, work: Workload, arrays: Arrays, kernel: str, stream: Any) -> None:
        """Enqueue a kernel's launches on a stream of cupy's; does not wait."""
        if arrays.lse and kernel not in WITH_LSE:
            raise NotImplementedError(f"kernel {kernel} gives no LSE: {', '.join(WITH_LSE)} do")
        shape = Shape(work.batch * work.heads, work.Nq, work.d)
        plan = self.gpu.plan(kernel, shape)
        q, k, v, o = (_merged(m, work) for m in arrays[:4])
        with stream:
            scratch = self.gpu.cupy.ndarray(plan.scratch, np.uint8)
            if plan.finds_absmax:
                scratch.data.memset_async(0, ABSMAX_BYTES)
            passed = arguments(plan, shape, (q, k, v, o), scratch.data.ptr, arrays.lse)
            params = np.frombuffer(passed, f"V{len(passed)}")
            for function, step in zip(self.gpu.functions(plan), plan.launches, strict=True):
                function((step.grid,), (step.block,), (params,), shared_mem=step.shared)
