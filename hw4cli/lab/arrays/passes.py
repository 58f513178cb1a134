"""The passes that are measured: forward, backward, and both one after the other."""

from typing import Any

from hw4cli.lab.arrays import oracle
from hw4cli.lab.arrays.gradients import ALLOWED, exact_gradients_of_some, gradient_errors
from hw4cli.lab.arrays.inputs import on_device, with_gradients
from hw4cli.lab.arrays.named import NamedWorkload
from hw4cli.lab.arrays.oracle import Errors

FORWARD, BACKWARD, BOTH = "forward", "backward", "both"
PASSES = {"fwd": FORWARD, "bwd": BACKWARD, "both": BOTH}  # as users name them
# Operations, of the forward pass's 4*B*H*Nq*Nk*d, and bytes, of its Q, K, V and O, by the field's convention: the
# backward pass has five products where the forward pass has two, and reads or writes each of eight arrays.
FLOPS = {FORWARD: 1.0, BACKWARD: 2.5, BOTH: 3.5}
BYTES = {FORWARD: 1.0, BACKWARD: 2.0, BOTH: 3.0}
CONVENTIONS = {
    FORWARD: "4*B*H*Nq*Nk*d; causal: half of it",
    BACKWARD: "2.5 times the forward pass's 4*B*H*Nq*Nk*d (5 products for 2); causal: half of it",
    BOTH: "3.5 times the forward pass's 4*B*H*Nq*Nk*d (7 products for 2); causal: half of it",
}
MEMORY = {
    FORWARD: "Q, K, V and O once",
    BACKWARD: "Q, K, V, O, dO, dQ, dK and dV once",
    BOTH: "Q, K, V, O, dO, dQ, dK and dV once; Q, K, V and O once more",
}


class Forward:
    """A workload's arrays on the GPU, and what O should be."""

    def __init__(self, case: NamedWorkload, cupy: Any) -> None:
        self.case = case
        self.arrays = on_device(case, cupy)
        self.expected = oracle.exact_rows(case, self.arrays.q, self.arrays.k, self.arrays.v)

    def clear(self) -> None:
        """Let what is to be written hold NaN."""
        self.arrays.o.data.memset(0xFF, self.arrays.o.nbytes)

    def errors(self, results: tuple[Any, ...]) -> Errors:
        """How far the results are from what they should be."""
        return oracle.errors(self.case, self.expected, results[0])

    def problem(self, found: Errors) -> str | None:
        """Why results with these errors are wrong, or None."""
        return oracle.problem(found, oracle.ALLOWED[self.case.work.dtype])


class Backward(Forward):
    """The same with dO, and what dQ, dK and dV should be. `o` and `lse` are for whoever computes gradients to fill."""

    def __init__(self, case: NamedWorkload, cupy: Any) -> None:
        self.case = case
        self.arrays = self.gradients = with_gradients(case, on_device(case, cupy), cupy)
        try:
            self.heads = exact_gradients_of_some(case, self.gradients, cupy)
        except (ImportError, RuntimeError, OSError, MemoryError):  # no cuBLAS, or no memory for it
            self.heads = exact_gradients_of_some(case, self.gradients)

    def clear(self) -> None:
        """Let the gradients hold NaN."""
        for x in (self.gradients.dq, self.gradients.dk, self.gradients.dv):
            x.data.memset(0xFF, x.nbytes)

    def errors(self, results: tuple[Any, ...]) -> Errors:
        """How far dQ, dK and dV are from what they should be, the last three results."""
        dq, dk, dv = results[-3:]
        return gradient_errors(self.case, self.heads, (dq, dk, dv))

    def problem(self, found: Errors) -> str | None:
        """Why gradients with these errors are wrong, or None."""
        return oracle.problem(found, ALLOWED[self.case.work.dtype], "a gradient")


def subject(case: NamedWorkload, direction: str, cupy: Any) -> Forward:
    """What is measured and checked in a pass of a workload."""
    return Forward(case, cupy) if direction == FORWARD else Backward(case, cupy)
