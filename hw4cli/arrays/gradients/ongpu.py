"""Gradients of arrays on a GPU: launches on the caller's stream."""

from functools import lru_cache
from typing import Any

from hw4cli.arrays.ongpu import REMEMBERED, Compiled, encode
from hw4cli.device.gpu import Gpu
from hw4cli.device.launcher import Addresses, Prepared, Step, prepared
from hw4cli.plans import gradients as choice
from hw4cli.plans.backward import Arrays
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.formulas import FLOAT
from hw4cli.plans.launch import Matrix, Steps
from hw4cli.plans.plan import Plan
from hw4cli.plans.scoring import Heads
from hw4cli.problem.workload import Span, Workload, runs


class BackwardOnGpu:
    """The kernels of gradients on one GPU; plans, and launches that are prepared for arrays of a geometry, are kept."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.planned = lru_cache(REMEMBERED)(self.plan)
        self.prepared = lru_cache(REMEMBERED)(self._prepare)
        self._compiled = Compiled(gpu)

    def plan(self, work: Workload, kernel: str = AUTO) -> Plan:
        """The launches for a workload by the fastest kernel, or the one named, compiled. Raises MachineError where it
        does not run."""
        planned = choice.plan(work, self.gpu.props, kernel)
        self.gpu.functions(planned)
        return planned

    def as_computed(self, work: Workload, kernel: str) -> Workload:
        """What is asked for where a workload is: one with as many columns of V as of Q, unless a kernel takes fewer."""
        return choice.as_computed(work, self.gpu.props, kernel)

    def launch(self, work: Workload, arrays: Arrays, stream: Any, kernel: str = AUTO) -> None:
        """Enqueue a plan's launches on a stream of cupy's, on the current device; does not wait."""
        steps = tuple(m.steps for m in arrays.matrices)
        launches = self.prepared(work, steps, kernel, arrays.whole)
        scores = (arrays.scores,) if work.score and work.score.gradient else ()
        addresses = *(m.data for m in arrays.matrices), *arrays.views, *scores, arrays.lse, arrays.scratch
        launches.enqueue(addresses, stream.ptr)

    def _prepare(self, work: Workload, steps: tuple[Steps, ...], kernel: str = AUTO, whole: bool = True) -> Prepared:
        """The launches for q, k, v, o, do, dq, dk and dv of these strides: their addresses, those of the arrays that a
        score names, of its gradients if they are wanted, of the LSE and of scratch are asked for. Compiles the kernels,
        on the current device. Where no kernel computes sequences of several lengths at once, they are computed one run
        of equal lengths after the other, each by the kernel that is the fastest for it."""
        if work.sequences and not choice.is_at_once(work, self.gpu.props, kernel):
            parts = [self._of_run(work, run, steps, kernel) for run in runs(work.sequences)]
            return prepared(self.gpu, [step for step, _ in parts], max(scratch for _, scratch in parts))
        planned = self.planned(work, kernel)

        def make(addresses: Addresses) -> bytes:
            matrices = tuple(Matrix(at, *step) for at, step in zip(addresses, steps, strict=False))
            views, scores, (lse, scratch) = _of_score(work, addresses)
            arrays = Arrays(matrices, lse, scratch, whole, views=views, scores=scores)
            return choice.arguments(planned, work, arrays, encode)

        return prepared(self.gpu, (self._compiled.step(planned, make, _count(work)),), planned.scratch)

    def _of_run(self, work: Workload, run: tuple[Span, int], steps: tuple[Steps, ...], kernel: str) -> tuple[Step, int]:
        """The launches of sequences of the same lengths, for the addresses of all arrays; and bytes of scratch."""
        first, count = run
        alone, padded = work.alone(first, count), work.batch > 1
        planned = self.planned(alone, kernel)
        # Of q, k, v, o, do, dq, dk and dv.
        places = [(first.key, first.keys) if n in (1, 2, 6, 7) else (first.row, first.rows) for n in range(8)]
        lse_steps = work.heads * work.Nq if padded else first.rows, work.Nq
        lse_at = FLOAT * (first.batch * work.heads * work.Nq + first.row)

        _, _, rows, keys = work.of_scores
        score_steps = rows * keys, keys
        scores_at = FLOAT * (first.number - work.first_number) * work.heads * rows * keys

        def matrix(at: int, step: Steps, place: tuple[int, int]) -> Matrix:
            (batch, head, row), (start, length) = step, place
            begin = at + work.element * (first.batch * batch + start * row)
            return Matrix(begin, batch if padded else length * row, head, row)

        def make(addresses: Addresses) -> bytes:
            matrices = tuple(map(matrix, addresses, steps, places))
            views, scores, (lse, scratch) = _of_score(work, addresses)
            scores = scores and scores + scores_at
            heads = Heads(work.heads, first_batch=first.number)
            arrays = Arrays(matrices, lse + lse_at, scratch, True, lse_steps, views, scores, heads, score_steps)
            return choice.arguments(planned, alone, arrays, encode)

        return self._compiled.step(planned, make, _count(work)), planned.scratch


def _count(work: Workload) -> int:
    """How many addresses are asked for."""
    return 10 + (len(work.score.arrays) + work.score.gradient if work.score else 0)


def _of_score(work: Workload, addresses: Addresses) -> tuple[tuple[int, ...], int, Addresses]:
    """Of these addresses, those of the arrays that a score names, that of its gradients or 0, and the others behind the
    matrices."""
    rest = addresses[8:]
    views, others = rest[: _count(work) - 10], rest[-2:]
    if work.score and work.score.gradient:
        return views[:-1], views[-1], others
    return views, 0, others
