"""A program of one file around a kernel, as the homework wants it: hw4 INPUTFILE OUTPUTFILE.

The text is made of the kernel's own, of what it needs of its headers, and of kernels/host: from there come the files
(files.h), the launches (launch_NAME.cuh, formulas.h) and the main program (alone.cuh). A kernel is compiled for a tile
by macros; in one file it is a class template, whose parameters these macros are.
"""

import re
import struct
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hw4cli import __version__
from hw4cli.device.ownkernel import kernel_named
from hw4cli.errors import InputError
from hw4cli.lab.handin.declarations import SOME, Declaration, UncutError, blanked, decided, declarations_of, words_in
from hw4cli.plans.flash import FLASH_COST, LONGEST_SPLIT
from hw4cli.plans.native import AMD, WIDTHS
from hw4cli.plans.plan import AMD_DEVICES, DEVICES, Plan, Variant
from hw4cli.problem.workload import Workload
from hw4cli.resources import data_path, is_own_kernel, kernel_path, kernel_source, spliced

NVCC, HIP = "nvcc", "hip"
BUILD = {
    NVCC: "nvcc -O3 -std=c++14 -arch=native -o hw4 {file}",
    HIP: "hipcc -O3 -std=c++14 --offload-arch=gfx90a -o hw4 {file}",
}
# Rows and keys whose tile a program takes for all: such are most of the time.
LONG = 8192
CLASS = "Tiled"
# What the host's text calls numbers that the plans know.
CONSTANTS = {"LONGEST_SPLIT": LONGEST_SPLIT, "SPLIT_COST": FLASH_COST}
_EMPTY = re.compile(r"#define (\w+)\([^)]*\)$")
_HEX = re.compile(r"\b0x([0-9a-fA-F.]+)p([+-]?\d+)f\b")
_PARAMETERS = re.compile(r"\(\s*(?:const\s+)?Params\s*&?\s*(\w+)\s*\)")
_LINE = re.compile(r'^#line \d+ "[^"]*"\n', re.M)


@dataclass(frozen=True)
class Tile:
    """A tile that the program has: for rows of so many columns, on GPUs that give a block so many bytes."""

    columns: int
    room: int
    macros: Mapping[str, int]
    shared: int


def program_text(kernel: str, target: str, file: str) -> str:
    """The text of a program `file` that computes with a kernel, a rung's name or PATH.cu, for nvcc or for hipcc.

    Raises InputError if the kernel is none, or cannot stand alone.
    """
    entry = kernel_named(kernel)
    reason = refusal(entry, target)
    if reason:
        raise InputError(f"{kernel} cannot be exported{' for AMD' * (target == HIP)}: {reason}")
    plans = _plans(entry, target)
    tiles = _tiles(plans)
    symbols = [launch.symbol for launch in max((plan.launches for _, plan in plans), key=len)]
    parameters = [name for name in tiles[0].macros if len({tile.macros.get(name) for tile in tiles}) > 1]
    parameters = [name for name in tiles[0].macros if name in {*parameters, *_NEEDED & {*tiles[0].macros}}]
    constants = {name: value for name, value in tiles[0].macros.items() if name not in parameters}
    try:
        text = _kernel_text(kernel, target, parameters, constants)
        own = declarations_of(text)
        made = _Made(own, parameters, symbols)
        host = declarations_of(_host_text(entry.alone, symbols, target))
        return _whole(kernel, target, file, made, host, tiles, parameters, constants)
    except UncutError as error:
        raise InputError(f"{kernel} cannot be exported: {error}") from None


_NEEDED = frozenset({"D", "BR", "BC", "THREADS", "BLOCKS"})  # that launches ask for


def refusal(entry: Variant, target: str) -> str:
    """Why a kernel cannot stand in a program of one file; "" if it can."""
    if entry.on_tensor_cores:
        return (
            "what it takes to multiply on tensor cores is in many files"
            + ("; `make hw4` builds a program of it" if entry.native else "")
            + "; flash is the fastest that can"
        )
    if not entry.alone:
        return "it is compiled for one head size, and a program is for all"
    if target == HIP and entry.least_cc:
        return f"it needs compute capability {entry.least_cc / 10}"
    return ""


def _plans(entry: Variant, target: str) -> list[tuple[int, Plan]]:
    """The plans of long rows for every kind of GPU, with the bytes that a block may have there; the most first."""
    devices = [AMD_DEVICES[AMD]] if target == HIP else sorted(DEVICES.values(), key=lambda props: -props.shared_limit)
    found = []
    for d in WIDTHS:
        for props in devices:
            props = replace(props, warpgroups=False)
            found.append((props.shared_limit, entry.plan(Workload.one_head(1, LONG, d), props)))
    return found


def _tiles(plans: Sequence[tuple[int, Plan]]) -> list[Tile]:
    """The tiles of each number of columns, from those that need the most room to the one for all."""
    found: list[Tile] = []
    for room, plan in plans:
        tile = Tile(plan.d, room, plan.macros, plan.launches[plan.main].shared)
        last = found[-1] if found else None
        if last and last.columns == tile.columns and last.macros == tile.macros:
            found.pop()
        found.append(tile)
    return found


def _kernel_text(kernel: str, target: str, parameters: Sequence[str], constants: Mapping[str, int]) -> str:
    """The kernel and what it includes, as far as the target and the tiles decide it."""
    known = {**dict.fromkeys(parameters, SOME), **constants, **({"__HIP__": 1} if target == HIP else {})}
    text = decided(kernel_source(kernel, hip=target == HIP), known, frozenset({"__HIP__", "STAMPS", "SCALED"}))
    for name in (match[1] for line in text.split("\n") if (match := _EMPTY.match(line.strip()))):
        text = re.sub(rf"^#define {name}\(.*\n", "", text, flags=re.M)
        text = re.sub(rf" ?\b{name}\([^()]*\);", "", text)
    text = "\n".join(line for line in text.split("\n") if not line.endswith("// for the stamps"))
    if not constants.get("CAUSAL"):
        text = _without_mask(text)
    return _HEX.sub(_decimal, text)


# What the kernels do for causal attention and changed scores alone, as they write it.
_MASK = "(?:CAUSAL|WINDOW|HOLES|SCORED)"
_PAIRS = r"(?:[^():;]|\((?:[^()]|\([^()]*\))*\))*"  # an expression without a colon outside of parentheses
_OF_THE_MASK = (
    r"^( *)if \(CAUSAL\) \{\n(?:\1 .*\n|\n)*\1\}\n",  # a block
    rf"^ *if \({_MASK}\b[^\n]*;[^\n]*\n",  # a statement
    rf"\b{_MASK}\b[^?;\n]*\? {_PAIRS} : ",  # what is chosen then
    rf" && \(!{_MASK} \|\| [^()]*\)",  # a further condition
    rf" \|\| \({_MASK} && [^()]*\)",  # another way to be hidden
    r"^#define HOLES [^\n]*\n",
)


def _without_mask(text: str) -> str:
    """A text without what kernels do for causal attention and changed scores alone, which such a program does not
    compute. What is left, if anything is, asks for the macros CAUSAL and WINDOW, which are 0."""
    for pattern in _OF_THE_MASK:
        text = re.sub(pattern, "", text, flags=re.M)
    return text


def _without_causal(comment: str) -> str:
    """A comment of whole lines without its sentences about causal attention, windows and changed scores."""
    if not re.search("Causal: |WINDOW: |HOLES: ", comment):
        return comment
    indent = re.match(r" *", comment)
    words = " ".join(line.strip().removeprefix("//").strip() for line in comment.split("\n"))
    words = re.sub(r"\s*\(?(?:Causal|WINDOW|HOLES): [^.]*\.\)?", "", words).strip()
    prefix = f"{indent[0] if indent else ''}// "
    return textwrap.fill(words, 116, initial_indent=prefix, subsequent_indent=prefix) if words else ""


def _decimal(match: re.Match[str]) -> str:
    """A hexadecimal number of float32, which C++14 does not have, in decimal digits that mean the same."""
    value = struct.unpack("f", struct.pack("f", float.fromhex(f"0x{match[1]}p{match[2]}")))[0]
    digits = next(text for n in range(1, 18) if float(text := f"{value:.{n}g}") == value)
    return (digits if any(letter in digits for letter in ".e") else f"{digits}.0") + "f"


def _host_text(launches: str, symbols: Sequence[str], target: str) -> str:
    """The host's part: formulas, files, launches, the main program."""
    folder = data_path("kernels/host")
    pieces = []
    for name in ("gpu.h", "formulas.h", "files.h", "alone.h", f"launch_{launches}.cuh", "alone.cuh"):
        pieces.append(spliced(folder / name, ()) + "\n")
    text = re.sub(r'^#include "[^"]*"\n', "", "".join(pieces), flags=re.M)
    text = decided(text, {"__HIP__": 1} if target == HIP else {}, frozenset({"__HIP__"}))
    text = re.sub(r"^#define cuda\w+ hip\w+\n", "", text, flags=re.M)  # _in_hip renames
    for number, symbol in enumerate(symbols):
        text = re.sub(rf"\bKERNEL{number}\b", symbol, text)
    return text


def _reached(found: Sequence[Declaration], roots: Iterable[str]) -> set[int]:
    """The declarations that roots mention, and those that these mention, and so on."""
    of_name: dict[str, list[int]] = {}
    for at, one in enumerate(found):
        for name in one.names:
            of_name.setdefault(name, []).append(at)
    reached: set[int] = set()
    left = [at for name in roots for at in of_name.get(name, [])]
    while left:
        at = left.pop()
        if at not in reached:
            reached.add(at)
            left += [other for name in found[at].mentions for other in of_name.get(name, [])]
    return reached


class _Made:
    """The kernel's declarations, in three parts: those for any tile, those of the class, and the kernels."""

    def __init__(self, found: Sequence[Declaration], parameters: Sequence[str], symbols: Sequence[str]) -> None:
        missing = [symbol for symbol in symbols if not any(symbol in d.names and d.kind == "kernel" for d in found)]
        if missing:
            raise UncutError(f"it has no kernel {missing[0]}")
        reached = _reached(found, symbols)
        names = {name for at in reached for name in found[at].names} | {*parameters}
        declared = {name for one in found for name in one.names}
        for at, one in enumerate(found):  # what is stated of the numbers that are there is stated there, too
            if one.kind == "assert" and not (one.mentions & declared) - names:
                reached.add(at)
        kept = [found[at] for at in sorted(reached)]
        self.dependent = _closure(kept, {*parameters})
        self.general = [one for one in kept if one.kind == "define" or not self._inside(one)]
        self.members = [one for one in kept if one.kind != "define" and self._inside(one)]
        self.kernels = [one for one in self.members if one.kind == "kernel"]
        self.macros_in_heads: set[str] = set()
        self._check()

    def _inside(self, one: Declaration) -> bool:
        return one.kind == "kernel" or bool({*one.names, *one.mentions} & self.dependent)

    def _check(self) -> None:
        for one in [*self.general, *self.members]:
            lines = [line for line in one.text.split("\n") if re.match(r"\s*#\s*if", line)]
            if asked := frozenset().union(*map(words_in, [*lines, *one.conditions])) & self.dependent:
                raise UncutError(f"{one.file}: an #if asks for {min(asked)}, which a program has several values of")
        for one in self.members:
            if one.kind == "variable" and not re.match(r"(?:static\s+)?constexpr\b", one.text):
                raise UncutError(f"{one.file}: {' '.join(one.text.split())[:50]}: its size depends on the tile")
            if one.kind == "kernel" and not _PARAMETERS.search(blanked(one.text)):
                raise UncutError(f"{one.file}: {one.names[0]} takes something else than one Params")


def _closure(kept: Sequence[Declaration], dependent: set[str]) -> set[str]:
    """All names that depend on some names: whose declarations mention them, or mention a macro that does."""
    while True:
        more = {name for one in kept if one.mentions & dependent for name in one.names} - dependent
        if not more:
            return dependent
        dependent = dependent | more


def _written(found: Sequence[Declaration], indent: str, change: Callable[[Declaration], str]) -> list[str]:
    """Declarations with their comments and conditions; an empty line between those that a comment leads."""
    lines: list[str] = []
    open_now: tuple[str, ...] = ()
    was_long = was_define = False
    for one in found:
        text = change(one)
        long, define = bool(one.comment) or "\n" in text, one.kind == "define"
        apart = long or was_long or define != was_define
        if apart and lines and (one.conditions == open_now or not one.conditions or not open_now):
            if one.conditions != open_now:
                lines += _changed(open_now, ())
                open_now = ()
            lines.append("")
        was_long, was_define = long, define
        if one.conditions != open_now:
            lines += _changed(open_now, one.conditions)
            open_now = one.conditions
        for line in [*filter(None, _without_causal(one.comment).split("\n")), *text.split("\n")]:
            lines.append(line if line.startswith("#") or not line else indent + line)
    return [*lines, *_changed(open_now, ())]


def _changed(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The lines between what stands under some conditions and what stands under others."""
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    lines = []
    if same < len(before) and same < len(after) and after[same] == before[same] + "\n#else":
        lines += ["#endif"] * (len(before) - same - 1) + ["#else"]
        same += 1
    else:
        lines += ["#endif"] * (len(before) - same)
    return [*lines, *(line for condition in after[same:] for line in condition.split("\n"))]


def _member(one: Declaration) -> str:
    """A declaration of the class: static, and a kernel a function of the device."""
    if one.kind == "kernel":
        body = one.text[one.text.index("__global__") :]
        match = _PARAMETERS.search(blanked(body))
        assert match
        return f"static __device__ __forceinline__ void {one.names[0]}(const Params& {match[1]})" + body[match.end() :]
    if one.kind in ("function", "variable") and not re.match(r"static\b", one.text):
        template = re.match(r"template\s*<", one.text)
        if not template:
            return f"static {one.text}"
        depth, at = 1, template.end()
        while depth:
            depth += (one.text[at] == "<") - (one.text[at] == ">")
            at += 1
        space = re.match(r"\s*", one.text[at:])
        assert space
        return f"{one.text[:at]}{space[0] or ' '}static {one.text[at + space.end() :]}"
    return one.text


def _global(one: Declaration, dependent: set[str]) -> str:
    """The kernel itself, for a class T: what is in its head of the class is named so."""
    head = one.text[one.text.index("__global__") :]
    head = blanked(head[: blanked(head).index("{")])
    match = re.search(rf"\b{one.names[0]}\s*\(", head)
    assert match
    before = _of_the_class(" ".join(head[: match.start()].split()), dependent)
    return f"template <class T> {before}\n{one.names[0]}(const Params p) {{ T::{one.names[0]}(p); }}"


def _of_the_class(text: str, dependent: set[str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda match: f"T::{match[0]}" if match[0] in dependent else match[0], text)


def _whole(
    kernel: str,
    target: str,
    file: str,
    made: _Made,
    host: Sequence[Declaration],
    tiles: Sequence[Tile],
    parameters: Sequence[str],
    constants: Mapping[str, int],
) -> str:
    tile_macros = {one.names[0] for one in made.general if one.kind == "define" and one.mentions & made.dependent}
    heads = frozenset().union(*(words_in(_global(one, set())) for one in made.kernels))
    in_heads = tile_macros & heads
    bodies = frozenset().union(*(words_in(_member(one)) for one in made.members))
    if in_heads & bodies:
        raise UncutError(f"{', '.join(in_heads & bodies)} is a macro of the tile, in a kernel's head and elsewhere")
    members = made.dependent - tile_macros

    def general(one: Declaration) -> str:
        return _of_macro(one.text, members) if one.names and one.names[0] in in_heads else one.text

    declared = {name for one in [*made.general, *made.members] for name in one.names}
    host_names = {name for one in host for name in one.names}
    used_by_host = _reached(host, ["main", "launch"])
    words = frozenset().union(*(host[at].mentions for at in used_by_host))
    parts = [host[at] for at in sorted(used_by_host) if host[at].kind != "other"]
    clash = (declared & host_names & {name for one in parts for name in one.names}) - {"ceil_div"}
    if clash:
        raise UncutError(f"its {min(clash)} is called as a function of the program around it: give it another name")
    asked = [name for name in CONSTANTS if name in words]
    launch_at = next(at for at, one in enumerate(parts) if "compute" in one.names)
    numbers = {**constants, **{name: CONSTANTS[name] for name in asked}}
    used = frozenset().union(*(one.mentions for one in [*made.general, *made.members, *parts]))
    constant_lines = [f"constexpr int {name} = {value};" for name, value in numbers.items() if name in used]
    general_lines = _written(made.general, "", general)
    member_lines = _written(made.members, "    ", _member)
    text = "\n".join(
        [
            *_head(kernel, target, file),
            "",
            *(["#include <hip/hip_runtime.h>", ""] if target == HIP else []),
            *sorted({one.text for one in host if _included(one.text, parts)}),
            "",
            _rule("What the kernel is made of"),
            "",
            *constant_lines,
            *([""] if constant_lines else []),
            *general_lines,
            "",
            _rule("The kernel"),
            "",
            *_header_of(kernel),
            f"template <{', '.join(f'int {name}_' for name in parameters)}>",
            f"struct {CLASS} {{",
            f"    static constexpr int {', '.join(f'{name} = {name}_' for name in parameters)};",
            "",
            *member_lines,
            "};",
            "",
            *(_global(one, members) for one in made.kernels),
            "",
            _rule("The program"),
            "",
            *_written(parts[:launch_at], "", lambda one: one.text),
            "",
            *_choice(tiles, parameters),
            "",
            *_written(parts[launch_at:], "", lambda one: one.text),
            "",
        ]
    )
    text = re.sub(r"\n{3,}", "\n\n", text)
    return _in_hip(text) if target == HIP else text


def _included(text: str, parts: Sequence[Declaration]) -> bool:
    """Whether a line includes a header of C++'s that the host's parts need."""
    if not text.startswith("#include <") or ".h>" in text:
        return False
    return "algorithm" not in text or any(re.search(r"\bstd::(?:max|min)\(", part.text) for part in parts)


def _of_macro(text: str, members: set[str]) -> str:
    head, name, body = re.split(r"(#define \w+)", text)[0], *re.split(r"(#define \w+)", text)[1:]
    return head + name + _of_the_class(body, members)


def _choice(tiles: Sequence[Tile], parameters: Sequence[str]) -> list[str]:
    """The function that chooses a tile."""
    lines = [
        "// The tile for rows of so many columns: the first for which a block may have as much shared memory (`room`).",
        "void launch_for(int columns, const Params& p, int room) {",
    ]
    for number, tile in enumerate(tiles):
        last = number + 1 == len(tiles) or tiles[number + 1].columns != tile.columns
        conditions = [] if number + 1 == len(tiles) else [f"columns == {tile.columns}"]
        conditions += [] if last else [f"room >= {tile.room}"]
        values = ", ".join(str(tile.macros[name]) for name in parameters)
        call = f"launch<{CLASS}<{values}>>(p, {tile.shared});"
        head = f"if ({' && '.join(conditions)}) return " if conditions else ""
        lines.append(f"    {head}{call}")
    return [*lines, "}"]


def _rule(title: str) -> str:
    return f"// ---- {title} ".ljust(110, "-")


def _head(kernel: str, target: str, file: str) -> list[str]:
    """The first comment: what the program is, how it is built, and its licence."""
    name = kernel_path(kernel).name if is_own_kernel(kernel) else kernel
    licence = data_path("LICENSE")
    text = licence.read_text(encoding="utf-8") if licence.is_file() else ""
    holder = next((line for line in text.splitlines() if line.startswith("Copyright")), "Copyright (c) the hw4 authors")
    lines = [
        f"{file}: O = softmax(Q K^T / sqrt(d)) V for each of B batches, by the kernel {name}.",
        "",
        "    hw4 INPUTFILE OUTPUTFILE",
        "",
        "An input is int32 B, N and d, then for each batch Q, K and V; an output is O of each batch. All are rows of d",
        "floats, d from 1 to 128. Exit status: 0 all right, 2 wrong usage or a bad file, 3 the machine cannot.",
        "",
        f"Build: {BUILD[target].format(file=file)}",
        f"Made by `hw4 export {name} --for {target}`, hw4 {__version__}. Comments name files of its source.",
        f"{holder}. MIT licence: use, copy, change and give on as you like, and keep this line.",
    ]
    return [f"// {line}".rstrip() for line in lines]


def _header_of(kernel: str) -> list[str]:
    """The kernel's own first comment."""
    lines = kernel_path(kernel).read_text(encoding="utf-8").split("\n")
    end = next(at for at, line in enumerate(lines) if not line.startswith("//"))
    return lines[:end]


def _in_hip(text: str) -> str:
    """The runtime's names in HIP, by the table of kernels/host/gpu.h."""
    table = dict(
        re.findall(r"^#define (cuda\w+) (hip\w+)$", data_path("kernels/host/gpu.h").read_text(encoding="utf-8"), re.M)
    )
    return re.sub(r"\bcuda[A-Z]\w*", lambda match: table.get(match[0], match[0]), text)
