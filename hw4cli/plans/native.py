"""What `make hw4` compiles beside kernels/host/hw4.cu, made from the plans: `python3 -m hw4cli.plans.native FOLDER`;
with `hip` behind FOLDER, what `make hw4-amd` compiles.

FOLDER/plans.h has, for the architecture that is compiled for, the configurations of split8, split and flash: head size,
lengths, tile, launches, shared memory. What depends on the file and the GPU follows by kernels/host/formulas.h.
FOLDER/kernels.cuh has a kernel for each configuration. Needs Python's standard library alone.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hw4cli.plans.bounds import LARGEST_N, SAFE, TYPICAL, bound
from hw4cli.plans.common import NO_LIMIT
from hw4cli.plans.dispatch import auto_by_length
from hw4cli.plans.flash import FLASH_COST, LONGEST_SPLIT
from hw4cli.plans.ladder import DEFAULT, VARIANTS
from hw4cli.plans.launch import SQUARES_BELOW
from hw4cli.plans.plan import AMD_DEVICES, DEVICES, DeviceProperties, Plan
from hw4cli.plans.tensor import ABSMAX_BYTES, ONE_PIECE, SPLIT_COST, tile_bytes
from hw4cli.problem.terms import LARGEST16
from hw4cli.problem.workload import HEAD_SIZES, MAX_D, Magnitudes, Workload
from hw4cli.resources import kernel_source

# Architectures, and the compute capability whose plans each takes: the first condition that holds. One that is none of
# DEVICES takes those of the nearest with as much shared memory, but no split: how its tensor cores add is not known.
TARGETS = {
    **{f"== {cc}0": cc for cc in DEVICES},
    **{">= 1200": 120, ">= 900": 90, "== 870": 80, ">= 800": 86},
}
OLDEST = min(DEVICES)
AMD = "gfx90a"  # whose plans all of AMD's architectures take: a block has as much shared memory on each
KERNELS = tuple(name for name, entry in VARIANTS.items() if entry.native)  # by their numbers in the program
# Head sizes that there are kernels for; rows of any other get zero columns up to the next one, with which the kernels
# compute anyway.
WIDTHS = (*HEAD_SIZES, MAX_D)
GEFORCE = (86, 89, 120)  # that GeForce cards have, too: the program does not ask which one it runs on
HEAD = ("#pragma once", "// Made by hw4cli/plans/native.py from the plans of the kernels.")


@dataclass(frozen=True)
class Configuration:
    """A kernel for a head size and for lengths from `least` to `most`: what the program knows of its plan."""

    kernel: str
    d: int
    least: int
    most: int
    plan: Plan
    squares: int = 0  # split: the largest product of Q's and K's squares (kernels/absmax.cuh) for which it is proven

    @property
    def name(self) -> str:
        """The namespace that the kernel is in."""
        return f"{self.kernel}_{self.d}_{self.least}"

    @property
    def code(self) -> tuple[object, ...]:
        """What its kernels are compiled from."""
        return self.kernel, *sorted(self.plan.macros.items())

    @property
    def numbers(self) -> dict[str, int]:
        """The members of `struct Configuration`."""
        macros, tensor = self.plan.macros, VARIANTS[self.kernel].pieces is not None
        converts = tensor and not macros["INBLOCK"]
        return {
            "kernel": KERNELS.index(self.kernel),
            "d": self.d,
            "least": self.least,
            "most": self.most,
            "BR": macros["BR"],
            "BC": macros["BC"],
            "resident": macros["BLOCKS"],
            "threads": macros["THREADS"],
            "shared": self.plan.launches[self.plan.main].shared,
            "convert_threads": macros["CONVERT_THREADS"] if converts else 0,
            "convert_chunks": macros["CONVERT_CHUNKS"] if converts else 0,
            "combine_threads": macros["COMBINE_THREADS"],
            "absmax_bytes": ABSMAX_BYTES if tensor else 0,
            "tile_bytes": tile_bytes(self.d, macros, macros["PV_PIECES"]) if converts else 0,
            "stats_wanted": int(tensor),
            "squares": self.squares,
            "longest": NO_LIMIT if tensor else LONGEST_SPLIT,
            "cost": SPLIT_COST if tensor else FLASH_COST,
        }


def native_properties(cc: int | str) -> DeviceProperties:
    """A GPU as the program sees it: warpgroups want an architecture of their own, sm_90a. AMD's have a name."""
    return AMD_DEVICES[cc] if isinstance(cc, str) else replace(DEVICES[cc], warpgroups=False)


def configurations(cc: int | str, known: bool = True) -> list[Configuration]:
    """What the program has for a compute capability: for each head size, in the order in which they are tried."""
    props = native_properties(cc)

    def configuration(kernel: str, d: int, least: int, last: int) -> Configuration:
        squares = proven_squares(d, last, props) if VARIANTS[kernel].pieces == ONE_PIECE else 0
        return Configuration(
            kernel, d, least, last, VARIANTS[kernel].plan(Workload.one_head(1, least, d), props), squares
        )

    return [
        configuration(kernel, d, least, last)
        for d in WIDTHS
        for kernel, first, most in _kernels(d, props, known)
        for least, last in _lengths(kernel, d, props, first, most)
    ]


def _kernels(d: int, props: DeviceProperties, known: bool) -> Iterator[tuple[str, int, int]]:
    """Kernels and their lengths, as auto prefers them for rows of so many keys. Those on tensor cores, if the
    architecture is `known`, where their error is proven to be small enough for the assignment's range and lengths."""
    lengths = auto_by_length(props, "", d)
    no_gain = {"split"} if props.cc in GEFORCE else set()
    for kernel in lengths[-1][1]:
        least = next(least for least, kernels, _ in lengths if kernel in kernels)
        if kernel not in KERNELS:
            continue
        if not VARIANTS[kernel].pieces:
            yield kernel, least, NO_LIMIT
        elif known and kernel not in no_gain and bound(kernel, TYPICAL, d, LARGEST_N, props) <= SAFE:
            yield kernel, least, LARGEST_N


def proven_squares(d: int, N: int, props: DeviceProperties) -> int:
    """The largest product of the squares of two rows' norms for which split's error is proven to be at most SAFE, for
    elements of V up to the assignment's; each norm less than what kernels can add up.

    By norms alone the bound is convex in the logarithm of their quotient: largest where one is largest.
    """
    longest, least, most = math.sqrt(SQUARES_BELOW), 0, int(SQUARES_BELOW)

    def proven(squares: int) -> bool:
        product = math.sqrt(squares)
        norms = ((longest, product / longest), (product / longest, longest))
        found = [Magnitudes(LARGEST16, LARGEST16, TYPICAL.v, *pair) for pair in norms]
        return all(bound("split", values, d, N, props) <= SAFE for values in found)

    most *= most
    while least + 1 < most:
        middle = (least + most) // 2
        least, most = (middle, most) if proven(middle) else (least, middle)
    return least


def _lengths(kernel: str, d: int, props: DeviceProperties, least: int, most: int) -> list[tuple[int, int]]:
    """The lengths, cut where the macros change. Macros that are the same at both ends are so between them."""

    def macros(N: int) -> dict[str, int]:
        return {**VARIANTS[kernel].plan(Workload.one_head(1, N, d), props).macros}

    if macros(least) == macros(most):
        return [(least, most)]
    middle = (least + most) // 2
    first, second = _lengths(kernel, d, props, least, middle), _lengths(kernel, d, props, middle + 1, most)
    if macros(middle) == macros(middle + 1):
        return [*first[:-1], (first[-1][0], second[0][1]), *second[1:]]
    return [*first, *second]


def plans_h(hip: bool = False) -> str:
    """Each architecture's configurations, as plain C++."""
    members = configurations(90)[0].numbers
    lines = [*HEAD]
    lines.append(f"constexpr float LARGEST = {TYPICAL.v};  // elements for which split and split8 are proven")
    lines.append(f"constexpr float SQUARES_BELOW = {SQUARES_BELOW};  // kernels/absmax.cuh")
    lines.append(f"enum Kernel {{ {', '.join(map(str.upper, KERNELS))} }};")
    lines += ["struct Configuration {", *(f"    long long {name};" for name in members), "};"]
    for directive, cc, known in _targets(hip):
        lines += [directive, "constexpr Configuration CONFIGURATIONS[] = {"]
        for entry in configurations(cc, known):
            lines.append(f"    {{{', '.join(map(str, entry.numbers.values()))}}},  // {entry.name}")
        lines.append("};")
    return "\n".join([*lines, "#endif", ""])


def kernels_cuh(hip: bool = False) -> str:
    """The kernels of configurations, each code in a namespace of its own; and which has which, in their order."""
    struct = "struct Kernels { const void *convert, *rows, *combine; };"
    lines = [*HEAD, f"{struct}  // launched before; always; if there are splits"]
    for directive, cc, known in _targets(hip):
        lines.append(directive)
        found = configurations(cc, known)
        spaces = {entry.code: entry.name for entry in reversed(found)}  # lengths of the same code share one
        for entry in found:
            if spaces[entry.code] != entry.name:
                continue
            steps = {f"{entry.kernel}{step}": f"{entry.name}{step or '_rows'}" for step in ("_convert", "_combine", "")}
            macros = {**entry.plan.macros, **steps}
            lines += [f"#undef {name}\n#define {name} {value}" for name, value in macros.items()]
            lines += [f"namespace {entry.name} {{", f'#include "{entry.kernel}.cuh"', "}"]
            lines += [f"#undef {name}" for name in macros]
        lines.append("const Kernels KERNELS[] = {")
        for entry in found:
            name = spaces[entry.code]
            convert = f"{name}_convert" if entry.numbers["tile_bytes"] else ""
            combine = "" if entry.plan.macros.get("INBLOCK") else f"{name}_combine"
            symbols = [convert, f"{name}_rows", combine]
            words = (f"(const void*){name}::{step}" if step else "nullptr" for step in symbols)
            lines.append(f"    {{{', '.join(words)}}},")
        lines.append("};")
    return "\n".join([*lines, "#endif", ""])


def _targets(hip: bool) -> Iterator[tuple[str, int | str, bool]]:
    if hip:
        yield "#ifdef __HIP__", AMD, False
        return
    word = "#if"
    for condition, cc in TARGETS.items():
        yield f"{word} __CUDA_ARCH_LIST__ {condition}", cc, condition == f"== {cc}0"
        word = "#elif"
    yield "#else", OLDEST, False


def write(folder: Path, hip: bool = False) -> None:
    """Put all that `make hw4`, or `make hw4-amd`, includes into a folder. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plans.h").write_text(plans_h(hip), encoding="utf-8")
    (folder / "kernels.cuh").write_text(kernels_cuh(hip), encoding="utf-8")
    for kernel in (DEFAULT,) if hip else KERNELS:
        (folder / f"{kernel}.cuh").write_text(kernel_source(kernel, hip), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), hip=sys.argv[2:] == ["hip"])
