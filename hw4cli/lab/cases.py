"""The cases of a benchmark: of files, and of arrays in one of the passes, forward, backward, or one after the other."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from hw4cli.device.gpu import Gpu
from hw4cli.errors import MachineError
from hw4cli.lab.arrays import expected
from hw4cli.lab.arrays.expected import Errors
from hw4cli.lab.arrays.inputs import EXPONENT, on_device, with_gradients
from hw4cli.lab.arrays.named import NamedWorkload, described
from hw4cli.lab.contender import Contender, KernelResult, WrongAnswerError
from hw4cli.lab.tables import BACKWARD, BOTH, FORWARD
from hw4cli.plans.ladder import FALLBACK, VARIANTS
from hw4cli.plans.plan import Plan
from hw4cli.problem.casefile import Floats
from hw4cli.problem.suite import uniform
from hw4cli.problem.verdict import Comparison
from hw4cli.problem.workload import FLOAT32, Workload

CHECK_CHUNK = 1 << 20  # floats copied back at a time to be checked, which stay in the cache meanwhile

PASSES = {"fwd": FORWARD, "bwd": BACKWARD, "both": BOTH}  # as users name them
# Operations, of the forward pass's 2*B*H*Nq*Nk*(d+dv), and bytes, of its Q, K, V and O, by the field's convention: the
# backward pass has five products where the forward pass has two, and reads or writes each of eight arrays.
FLOPS = {FORWARD: 1.0, BACKWARD: 2.5, BOTH: 3.5}
BYTES = {FORWARD: 1.0, BACKWARD: 2.0, BOTH: 3.0}
CONVENTIONS = {
    FORWARD: "2*B*H*Nq*Nk*(d+dv), where V has dv columns; causal: half of it",
    BACKWARD: "2.5 times the forward pass's 2*B*H*Nq*Nk*(d+dv) (5 products for 2); causal: half of it",
    BOTH: "3.5 times the forward pass's 2*B*H*Nq*Nk*(d+dv) (7 products for 2); causal: half of it",
}
MEMORY = {
    FORWARD: "Q, K, V and O once",
    BACKWARD: "Q, K, V, O, dO, dQ, dK and dV once",
    BOTH: "Q, K, V, O, dO, dQ, dK and dV once; Q, K, V and O once more",
}


# ---- Files


@dataclass(frozen=True)
class FileCase:
    """The numbers of a case's file, in one array (B, 3, N, d). `sgemm`: TFLOP/s that cuBLAS reaches here, if known."""

    name: str
    work: Workload
    seed: int
    sgemm: float | None = None

    @property
    def flops(self) -> float:
        """Operations, by the field's convention."""
        return self.work.flops

    @property
    def bytes(self) -> float:
        """Q, K, V and O once."""
        return self.work.moved_bytes

    def planned(self, gpu: Gpu) -> list[Plan]:
        """The kernel in float64."""
        return [VARIANTS[FALLBACK].plan(self.work, gpu.props)]

    def opened(self, gpu: Gpu, plan: Plan | None = None) -> "FileData":
        """The case's arrays on a GPU. Raises MachineError, which names the plan's kernel, if they do not fit."""
        return FileData(gpu, self, plan)

    def guarded(self, gpu: Gpu) -> AbstractContextManager[None]:
        """Nothing: data and kernels say themselves what lacks memory."""
        return nullcontext()

    def row(self, contender: Contender, status: str, reason: str, **found: Any) -> KernelResult:
        """What became of a contender."""
        tflops = found.get("tflops")
        return KernelResult(
            kernel=contender.name,
            case=self.name,
            shape=self.work.sizes,
            status=status,
            reason=reason,
            causal=self.work.causal,
            seed=self.seed,
            sgemm_percent=100 * tflops / self.sgemm if tflops and self.sgemm else None,
            **found,
        )


class FileData:
    """A case's inputs (B, 3, N, d) and outputs (B, N, d) on a GPU, and the answer, by the kernel in float64."""

    word = FLOAT32  # the type of torch's by which results are compared

    def __init__(self, gpu: Gpu, case: FileCase, plan: Plan | None) -> None:
        shape = case.work
        self.case, self._gpu, self._plan = case, gpu, plan or gpu.plan(FALLBACK, shape)
        with gpu.translated_errors(self._plan, shape):
            self.inputs = upload_case(gpu, shape, case.seed)
            self.outputs = gpu.empty((shape.B, shape.N, shape.d))

    @property
    def operands(self) -> tuple[Any, ...]:
        """Q, K and V as (batch, 1, N, d)."""
        return tuple(self.inputs[:, part][:, None] for part in range(3))

    def expect(self) -> None:
        """Compute the answer."""
        shape, plan = self.case.work, self._gpu.plan(FALLBACK, self.case.work)
        with self._gpu.translated_errors(plan, shape):
            answer = self._gpu.empty((shape.B, shape.N, shape.d))
            self._gpu.compute(plan, self.inputs, answer)
            self._expected: Floats = answer.get().reshape(-1)

    def check(self, contender: Contender) -> tuple[float, dict[str, Any]]:
        """Run once, with NaN in the output before, and compare every element."""
        outputs, comparison = self.outputs, Comparison()
        with self._gpu.translated_errors(replace(self._plan, variant=contender.name), self.case.work):
            outputs.data.memset(0xFF, outputs.nbytes)
            contender.run()
            self._gpu.wait()
            got = contender.answer()[0].reshape(-1)
            for start in range(0, got.size, CHECK_CHUNK):
                part = slice(start, start + CHECK_CHUNK)
                comparison.add(got[part].get(), self._expected[part])
        if not comparison.right:
            raise WrongAnswerError(comparison.reason(self.case.work))
        return comparison.max_error, {}


def upload_case(gpu: Gpu, shape: Workload, seed: int) -> Any:
    """The case's inputs (B, 3, N, d) on the GPU: the values of its file."""
    inputs = gpu.empty((shape.B, 3, shape.N, shape.d))
    flat, start = inputs.reshape(-1), 0
    for chunk in uniform(seed, 3 * shape.elements):
        flat[start : start + len(chunk)].set(chunk)
        start += len(chunk)
    return inputs


# ---- Arrays


@dataclass(frozen=True)
class ArrayResult(KernelResult):
    """One contender on one workload; `shape` is (batch * heads, Nq, d)."""

    dtype: str = FLOAT32
    heads: int = 1
    kv_heads: int = 1
    Nk: int = 0
    dv: int = 0  # V's columns, where these are not as many as Q's
    layout: str = "BHND"
    distribution: str = ""
    ours: bool = True
    direction: str = FORWARD  # which pass; "pass" in a record
    relative_error: float | None = None  # of the answer's norm
    checked_rows: int | None = None
    repeats: bool | None = None  # whether a second run gave the same bits


@dataclass(frozen=True)
class ArrayCase:
    """A workload of arrays, and the pass that is measured."""

    workload: NamedWorkload
    direction: str = FORWARD

    @property
    def name(self) -> str:
        """As a table has it."""
        return self.workload.name

    @property
    def work(self) -> Workload:
        """What is computed."""
        return self.workload.work

    @property
    def flops(self) -> float:
        """Operations, by the field's convention."""
        return FLOPS[self.direction] * self.work.flops

    @property
    def bytes(self) -> float:
        """What must be read and written once, by the field's convention."""
        return BYTES[self.direction] * self.work.moved_bytes

    def planned(self, gpu: Gpu) -> list[Plan]:
        """Nothing: NumPy or CuPy computes what is compared with."""
        return []

    def opened(self, gpu: Gpu, plan: Plan | None = None) -> "ForwardData":
        """The case's arrays on a GPU."""
        return ForwardData(gpu, self) if self.direction == FORWARD else GradientData(gpu, self)

    @contextmanager
    def guarded(self, gpu: Gpu) -> Iterator[None]:
        """Turn a GPU's lack of memory into a MachineError."""
        try:
            yield
        except gpu.cupy.cuda.memory.OutOfMemoryError:
            raise MachineError(f"the GPU has not enough memory for {described(self.work)}") from None

    def row(self, contender: Contender, status: str, reason: str, **found: Any) -> ArrayResult:
        """What became of a contender."""
        work = self.work
        return ArrayResult(
            kernel=contender.name,
            case=self.name,
            shape=(work.B, work.Nq, work.d),
            status=status,
            reason=reason,
            causal=work.causal,
            seed=self.workload.seed,
            dtype=work.dtype,
            heads=work.heads,
            kv_heads=work.kv_heads,
            Nk=work.Nk,
            dv=work.dv,
            layout=self.workload.layout,
            distribution=self.workload.distribution,
            ours=contender.ours,
            direction=self.direction,
            **found,
        )


class ForwardData:
    """A workload's arrays on the GPU, and what O should be."""

    def __init__(self, gpu: Gpu, case: ArrayCase) -> None:
        self.case, self._gpu = case, gpu
        self.word = "int32" if case.work.dtype == FLOAT32 else "int16"  # the type by which results are compared
        self.arrays = on_device(case.workload, gpu.cupy)

    @property
    def operands(self) -> tuple[Any, ...]:
        """Q, K and V as (batch, heads, N, d), in words."""
        return self.arrays.q, self.arrays.k, self.arrays.v

    def expect(self) -> None:
        """Compute what the rows that are looked at should be."""
        self._rows = expected.expected_rows(self.case.workload, self.arrays)

    def clear(self) -> None:
        """Let what is to be written hold NaN."""
        self.arrays.o.data.memset(0xFF, self.arrays.o.nbytes)

    def errors(self, results: tuple[Any, ...]) -> Errors:
        """How far the results are from what they should be."""
        return expected.errors_of_rows(self.case.workload, self._rows, results[0])

    def problem(self, found: Errors) -> str | None:
        """Why results with these errors are wrong, or None."""
        return expected.problem(found, expected.ALLOWED[self.case.work.dtype], "the answer")

    def check(self, contender: Contender) -> tuple[float, dict[str, Any]]:
        """Run twice, with NaN in the results before; compare one answer with the other, and with what it should be."""
        self.clear()
        contender.run()
        first = tuple(x.copy() for x in contender.answer())
        self.clear()
        contender.run()
        repeats = all(_same(x, y) for x, y in zip(first, contender.answer(), strict=True))
        self._gpu.wait()
        off = self.errors(first)
        reason = next(filter(None, map(self._not_finite, first)), None) or self.problem(off)
        if contender.ours and contender.repeats and not repeats:
            reason = reason or "a second run gave other bits"
        if reason:
            raise WrongAnswerError(reason)
        return off.largest, {"relative_error": off.relative, "checked_rows": off.rows, "repeats": repeats}

    def _not_finite(self, words: Any) -> str | None:
        exponent = EXPONENT[self.case.work.dtype]
        count = int(((words & exponent) == exponent).sum())
        return f"{count:,} elements are NaN or Inf" if count else None


class GradientData(ForwardData):
    """The same with dO, and what dQ, dK and dV should be. `o` and `lse` are for whoever computes gradients to fill."""

    def __init__(self, gpu: Gpu, case: ArrayCase) -> None:
        super().__init__(gpu, case)
        self.arrays = self.gradients = with_gradients(case.workload, self.arrays, gpu.cupy)

    def expect(self) -> None:
        """Compute what the heads that are looked at should be."""
        try:
            self._heads = expected.expected_gradients(self.case.workload, self.gradients, self._gpu.cupy)
        except (ImportError, RuntimeError, OSError, MemoryError):  # no cuBLAS, or no memory for it
            self._heads = expected.expected_gradients(self.case.workload, self.gradients)

    def clear(self) -> None:
        """Let the gradients hold NaN."""
        for x in (self.gradients.dq, self.gradients.dk, self.gradients.dv):
            x.data.memset(0xFF, x.nbytes)

    def errors(self, results: tuple[Any, ...]) -> Errors:
        """How far dQ, dK and dV are from what they should be, the last three results."""
        dq, dk, dv = results[-3:]
        return expected.errors_of_gradients(self.case.workload, self._heads, (dq, dk, dv))

    def problem(self, found: Errors) -> str | None:
        """Why gradients with these errors are wrong, or None."""
        return expected.problem(found, expected.ALLOWED_OF_GRADIENTS[self.case.work.dtype], "a gradient")


def _same(first: Any, second: Any) -> bool:
    return not bool((first != second).any())
