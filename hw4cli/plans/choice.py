"""A choice on the GPU between kernels that are all launched (kernels/choice.cu), and what their launches know of it."""

import struct
from collections.abc import Sequence
from dataclasses import replace

from hw4cli.plans.launch import ABSMAX, ABSMAX_THREADS
from hw4cli.plans.limits import CLASSES, Limits
from hw4cli.plans.plan import Kernel, Launch, Plan

CHOICE = Kernel("choice", "which of several kernels computes, by how large Q, K and V are")
LIMITED = 4  # kernels before the last; kernels/choice.cu
LAUNCH = Launch(CHOICE.name, 1, 32, 0)
CODE = Plan(CHOICE.name, {}, (Launch(ABSMAX.name, 0, ABSMAX_THREADS, 0), LAUNCH))  # however much is read
# Before the kernels' own scratch, which begins at a multiple of what theirs does: what is found; and the choice.
CHOICE_AT, SCRATCH = 256, 512
_HEAD, _LIMITS = struct.Struct("<2Qd2i"), struct.Struct(f"<3d{1 + CLASSES}f4x")
_MEMBERS = struct.Struct("<QI4x")


def arguments(scratch: int, ratio: float, d: int, limits: Sequence[Limits]) -> bytes:
    """The one argument of the choice, ChoiceParams. `ratio`: of the scores' scale to 1/sqrt(d)."""
    each = (_LIMITS.pack(one.element, one.squares, one.usual, one.least_v, *one.most_v) for one in limits)
    head = _HEAD.pack(scratch, scratch + CHOICE_AT, ratio, d, len(limits))
    return (head + b"".join(each)).ljust(_HEAD.size + LIMITED * _LIMITS.size, b"\0")


def members(scratch: int, number: int) -> bytes:
    """What the argument of a kernel ends with that is one of those to choose from."""
    return _MEMBERS.pack(scratch + CHOICE_AT, number)


def chosen(plan: Plan) -> Plan:
    """The plan of a kernel whose launches compute only where they are chosen."""
    return replace(plan, macros={**plan.macros, "CHOSEN": 1})
