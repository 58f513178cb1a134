"""Every kernel of the registry on random legal shapes, executed on the CPU and watched: a right kernel has no finding.

    python -m benchmarks.measure.random_shapes --seconds 3600 [--seed N] [--kernels NAME ...] [-o FILE.json]

Each round draws, for each kernel, a GPU (of the compute capability and the number of multiprocessors that launches
depend on), the numbers' type, the head size and the mask, which a kernel is compiled for; then some shapes, many of
them odd: rows, keys, heads that share keys, an offset, the data and the order of threads. What a kernel does not take
(a MachineError of its plan) is drawn again. Whatever is found is printed with what repeats it, and makes the exit
status 1.
"""

import argparse
import json
import multiprocessing
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.measure.scripts import end_with
from hw4cli.emulator.build import ASAN, RACE, checking_builds, shared_object
from hw4cli.emulator.check import DATA, check_kernel, some_rows
from hw4cli.emulator.library import GAP, ORDERS, Library, Schedule, Watched, space
from hw4cli.errors import MachineError
from hw4cli.lab.arrays import check as arrays
from hw4cli.plans import columns
from hw4cli.plans.columns import COLUMNS, Copied
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.kernels16 import ENTRIES16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import ABSMAX, ABSMAX_CHUNK, Matrix, absmax_launch, magnitudes
from hw4cli.plans.plan import AMD_DEVICES, DEVICES, DeviceProperties
from hw4cli.plans.registry import KERNELS
from hw4cli.problem.casefile import magnitudes_of
from hw4cli.problem.workload import FLOAT32, MAX_D, Workload, stored_d
from hw4cli.resources import kernel_path

SHAPES = 6  # of each draw of what a kernel is compiled for
WORK = 6_000_000  # B·Nq·Nk·d at most: some seconds, watched
LIMIT = 300.0  # seconds of processor time for one shape
LENGTHS = (*range(1, 70), 127, 128, 129, 191, 255, 256, 257, 300, 384, 511, 513, 640, 777, 1025, 1500)
TRIES = 200
SMALL_TYPES = {2: np.uint16, 4: np.uint32}


@dataclass(frozen=True)
class Draw:
    """A kernel, the GPU that it is planned for, its shape, the data and the order of threads."""

    kernel: str
    props: DeviceProperties
    work: Workload
    data: str
    schedule: Schedule
    build: str = RACE

    def __str__(self) -> str:
        work, props = self.work, self.props
        mask = f", causal with offset {work.offset}" if work.causal else ""
        sizes = (
            f"batch {work.batch}, heads {work.heads} and {work.kv_heads}, rows {work.Nq}, keys {work.Nk}, d {work.d}"
        )
        return (
            f"{self.kernel} on {work.dtype}, {sizes}{mask}, offset {work.offset}, {self.data}, {self.schedule.order} "
            f"{self.schedule.seed}, build {self.build}, {props.architecture} with {props.sms} multiprocessors"
        )


def draws(kernel: str, rng: random.Random) -> list[Draw]:
    """Some shapes for a kernel compiled in one way; none if nothing legal comes up."""
    for _ in range(TRIES):
        props = rng.choice([*DEVICES.values(), *AMD_DEVICES.values()])
        props = replace(props, sms=rng.choice((1, 2, 3, 7, 30, props.sms)))
        like = _family(kernel, rng)
        found = [_drawn(kernel, props, like, rng) for _ in range(SHAPES)]
        if legal := [one for one in found if one and _is_legal(one)]:
            return legal
    return []


def _family(kernel: str, rng: random.Random) -> Workload:
    """What a kernel is compiled for: the type, the head size, the mask."""
    entry = KERNELS[kernel]
    types = getattr(entry, "types", ()) if kernel not in VARIANTS else (FLOAT32,)
    dtype = rng.choice(types or (FLOAT32,))
    d = rng.choice((32, 64, 128, rng.randint(1, MAX_D), rng.randint(1, MAX_D)))
    if kernel not in VARIANTS:  # who calls these gives rows that they can load
        d = stored_d(d, 4 if dtype == FLOAT32 else 2)
    return Workload(dtype, 1, 1, 1, 1, 1, d, rng.random() < 0.5)


def _drawn(kernel: str, props: DeviceProperties, like: Workload, rng: random.Random) -> Draw | None:
    keys, rows = rng.choice(LENGTHS), rng.choice(LENGTHS)
    if rng.random() < 0.3:
        rows = keys
    batch, kv_heads = rng.choice((1, 1, 2, 3, 5, 9)), rng.choice((1, 1, 2, 3))
    heads = kv_heads * rng.choice((1, 1, 2, 4))
    offset = keys - rows if rng.random() < 0.5 else rng.randint(-rows, keys)
    if kernel in VARIANTS:
        rows = min(rows, keys)  # as a part of a file's rows
        first = rng.randint(0, keys - rows)
        work = some_rows(batch, keys, like.d, first, rows, like.causal)
        if rows == keys:
            work = Workload.one_head(batch, keys, like.d, like.causal)
    else:
        work = replace(like, batch=batch, heads=heads, kv_heads=kv_heads, Nq=rows, Nk=keys)
        work = replace(work, offset=offset if like.causal else 0)
    if work.B * work.Nq * work.Nk * work.d > WORK:
        return None
    data = rng.choice(DATA if kernel in VARIANTS else (arrays.NORMAL, arrays.UNEVEN, arrays.GROWING))
    build = ASAN if kernel in VARIANTS and rng.random() < 0.1 and ASAN in checking_builds() else RACE
    return Draw(kernel, props, work, data, Schedule(rng.choice(ORDERS[:3]), rng.randint(0, 999)), build)


def _is_legal(draw: Draw) -> bool:
    """Whether the kernel takes it."""
    kernel, props, work = draw.kernel, draw.props, draw.work
    try:
        if kernel in VARIANTS:
            VARIANTS[kernel].plan(work, props)
        elif entry := {**ENTRIES16, **GRADIENTS}.get(kernel):
            if props.gfx or not entry.takes(work.stored, props):  # the emulation of arrays plans for NVIDIA's GPUs
                return False
            return entry.plan(work, props).variant == kernel  # half hands short rows to half_short
    except MachineError:
        return False
    return True


def problems(draw: Draw) -> list[str]:
    """What is found on it."""
    if draw.kernel in VARIANTS:
        found = check_kernel(
            VARIANTS[draw.kernel],
            props=draw.props,
            shape=draw.work,
            data=[draw.data],
            builds=[draw.build],
            lanes=[draw.props.lanes],
            seconds=LIMIT,
        )
        return [*map(str, found)]
    if draw.kernel == ABSMAX.name:
        return _absmax(draw)
    if draw.kernel == COLUMNS.name:
        return _columns(draw)
    trial = arrays.Trial(
        draw.kernel,
        draw.props.cc,
        draw.work,
        draw.data,
        sms=draw.props.sms,
        seed=draw.schedule.seed,
        schedule=draw.schedule,
    )
    return [*arrays.check_trial(trial)]


def _absmax(draw: Draw) -> list[str]:
    """The range check on (B, 3, N, d)."""
    work = draw.work
    block = (
        np.random.default_rng(draw.schedule.seed).uniform(-3, 3, (work.batch, 3, work.Nk, work.d)).astype(np.float32)
    )
    step = absmax_launch(3 * work.batch, work.Nk, work.d)
    made = shared_object(
        kernel_path(step.symbol), {"ABSMAX_CHUNK": ABSMAX_CHUNK}, draw.props.cc, draw.props.lanes, RACE
    )
    noted, findings = Library(made).find_absmax(block, draw.props.lanes, draw.schedule)
    true, upper = np.array(magnitudes_of(block)), np.sqrt(work.d * 2.0**-7)
    found = np.array(magnitudes(noted.tolist()))
    wrong = ~((found >= true * (1 - 2.0**-15)) & (found <= np.hypot(true, upper) * 1.01))
    return [*map(str, findings), *([f"noted {found}, in truth {true}"] if wrong.any() else [])]


def _columns(draw: Draw) -> list[str]:
    """Rows that get zero columns, or lose them."""
    rng = random.Random(draw.schedule.seed)
    element = rng.choice((2, 4))
    given, wide = rng.randint(1, MAX_D), rng.random() < 0.5
    whole = stored_d(given, element)
    if whole == given:
        return []
    source_d, target_d = (given, whole) if wide else (whole, given)
    batch, rows, kind = draw.work.batch, draw.work.Nk, SMALL_TYPES[element]
    source = np.random.default_rng(1).integers(1, 60000, (batch, rows, source_d)).astype(kind)
    sizes = [source.nbytes, element * batch * rows * target_d]
    buffer, starts = space(sizes, GAP)
    places = [buffer[start : start + size] for start, size in zip(starts, sizes, strict=False)]
    places[0][:] = source.reshape(-1).view(np.uint8)
    at = [
        Matrix(int(place.ctypes.data), rows * d, rows * d, d)
        for place, d in zip(places, (source_d, target_d), strict=True)
    ]
    copies = [Copied(at[0], at[1], batch, 1, rows, given, target_d)]
    made = shared_object(kernel_path(COLUMNS.name), {}, draw.props.cc, draw.props.lanes, RACE)
    watched = [
        Watched(int(place.ctypes.data), place.nbytes, at > 0, name)
        for at, (place, name) in enumerate(zip(places, ("given", "made"), strict=True))
    ]
    step = columns.launch_of(copies, element)
    finished, findings = Library(made).launch(
        step, columns.arguments(copies), watched, draw.schedule, lanes=draw.props.lanes
    )
    right = np.zeros((batch, rows, target_d), kind)
    right[..., : min(given, target_d)] = source[..., : min(given, target_d)]
    same = finished and np.array_equal(places[1].view(kind).reshape(right.shape), right)
    return [
        *map(str, findings),
        *([] if same else [f"not the same numbers: elements of {element} bytes, {source_d} columns to {target_d}"]),
    ]


def checked(draw: Draw) -> list[str]:
    """What is found, by a process of its own: a kernel may crash or never end."""
    context = multiprocessing.get_context("fork")
    read, write = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(draw, write))
    process.start()
    write.close()
    try:
        found: list[str] = read.recv()
    except EOFError:
        process.join()
        found = [f"the process ended with {process.exitcode}"]
    process.join()
    return found


def _answer(draw: Draw, to: Connection) -> None:
    """In a process of its own: send what is found."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    to.send(problems(draw))
    to.close()


def rounds(kernels: Sequence[str], seed: int) -> Iterator[list[Draw]]:
    """Draws without end, a list for each kernel in turn."""
    for number in range(seed, sys.maxsize):
        for kernel in kernels:
            yield draws(kernel, random.Random(f"{number} {kernel}"))


def main() -> int:
    """Draw and check until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600, help="how long shapes are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernels", nargs="+", default=[*KERNELS], choices=[*KERNELS], metavar="NAME")
    parser.add_argument("-o", "--output", help="a record, as JSON")
    given: Any = parser.parse_args()
    begin, ran, wrong = time.monotonic(), Counter[str](), list[str]()
    for drawn in rounds(given.kernels, given.seed):
        if time.monotonic() - begin > given.seconds:
            break
        for draw in drawn:
            found = checked(draw)
            ran[draw.kernel] += 1
            for sentence in found:
                wrong.append(f"{draw}: {sentence}")
                print(wrong[-1], flush=True)
        if given.output:
            record = {"seed": given.seed, "seconds": time.monotonic() - begin, "shapes": ran, "found": wrong}
            with open(given.output, "w", encoding="utf-8") as file:  # noqa: PTH123
                json.dump(record, file, indent=1)
    print(f"{len(ran)} kernels, {ran.total()} shapes in {time.monotonic() - begin:.0f} s, {len(wrong)} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    end_with(main)
