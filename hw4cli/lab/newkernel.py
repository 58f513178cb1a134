"""A new kernel from one of the ladder: its file, under its own name, and the entry that would make it a rung."""

import re

from hw4cli.errors import InputError
from hw4cli.plans.ladder import FAMILIES, VARIANTS
from hw4cli.plans.plan import DEVICES, Variant
from hw4cli.problem.workload import Workload
from hw4cli.resources import data_path

NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
CODE_OR_NOT = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\b({})\b'  # comments and strings; or one of some names
# Words of C++ and CUDA that a kernel cannot be called.
WORDS = """
alignas alignof and asm auto bitand bitor bool break case catch char class compl const constexpr continue decltype
default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long
mutable namespace new noexcept not nullptr operator or private protected public register return short signed sizeof
static static_assert static_cast struct switch template this throw true try typedef typeid typename union unsigned
using virtual void volatile wchar_t while xor dim3 threadIdx blockIdx blockDim gridDim warpSize half main all
"""
VECTOR = re.compile(r"(u?(char|short|int|long|longlong)|float|double)[1-4]")
SHAPES = [Workload.one_head(B, N, d) for B, N in ((1, 128), (1, 8192), (1000, 2048)) for d in (32, 64, 128)]
LABELS = {
    "Idea": "(what it does, and why that should be faster)",
    "Geometry": "(how many blocks, of how many threads; which rows and keys are whose)",
    "Shared": "(what lies in shared memory, and in how many bytes)",
    "Limits": "(which d, N and GPUs it is for; what it takes of scratch; what holds it back)",
    "Source": "(the paper, report or program that the idea is from)",
}


def check_name(name: str) -> None:
    """Raise InputError unless a kernel can be called so: an identifier that neither C++ nor the ladder has taken."""
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} is not a name for a kernel: take letters, digits and _, a letter first")
    if name in WORDS.split() or VECTOR.fullmatch(name):
        raise InputError(f"{name!r} is not a name for a kernel: it is a word of CUDA C++, or of hw4")
    files = {path.stem for path in data_path("kernels").glob("*.cu")}
    if name in files or any(name.upper() in vars(family) for family in FAMILIES):
        raise InputError(f"{name!r} is taken: hw4 has a kernel, or a constant, of this name")


def symbols(base: Variant) -> set[str]:
    """Every symbol that a kernel launches for some shape on some GPU."""
    plans = [base.plan(shape, props) for props in DEVICES.values() if props.cc >= base.least_cc for shape in SHAPES]
    return {launch.symbol for plan in plans for launch in plan.launches}


def text_of(name: str, base: str) -> str:
    """The text of NAME.cu: the code of a kernel, its symbols renamed, below a header that is to be filled in."""
    text = data_path(f"kernels/{base}.cu").read_text(encoding="utf-8")
    code = re.sub(r"\A(//[^\n]*\n)+", "", text)
    old = re.compile(CODE_OR_NOT.format("|".join(sorted(symbols(VARIANTS[base])))), re.DOTALL)

    def renamed(match: re.Match[str]) -> str:
        return name + match[1].removeprefix(base) if match[1] else match[0]

    labels = {"Like": base, **LABELS, "Before": f"{base}. (what changes against it)"}
    header = [
        f"// {name}: (what it is, in half a sentence)",
        "//",
        *(f"// {k + ':':<9} {v}" for k, v in labels.items()),
    ]
    return "\n".join(header) + "\n" + old.sub(renamed, code)


def entry(name: str, base: str) -> str:
    """The entry that makes it a rung."""
    bound = VARIANTS[base].error_bound
    return (
        f'{name.upper()} = {base.upper()}.like(\n    "{name}",\n    "what it does, in half a sentence",\n'
        f"    error_bound={bound:g},  # what its tests allow, for elements in [-3, 3)\n)\n"
    )


def place(base: str) -> str:
    """The module that holds the entry of a kernel, as a path in the source tree."""
    family = next(family for family in FAMILIES if VARIANTS[base] in vars(family).values())
    return family.__name__.replace(".", "/") + ".py"
