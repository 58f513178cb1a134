"""A kernel in a file of the user's own: launched as the rung that it names is.

    // Like: naive                      takes naive's tiles, threads, shared memory, launches and scratch
    // Tile: BR=32 BC=8 THREADS=256     optional: macros of that rung with other values

Its symbols are called after the file, as naive's are after naive.cu; one that it does not have may keep naive's name.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hw4cli.errors import InputError, KernelError, os_error
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES, Variant
from hw4cli.problem.workload import Workload
from hw4cli.resources import is_own_kernel, kernel_source
from hw4cli.system.reading import read_regular

LIKE = re.compile(r"^//[ \t]*Like:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
TILE = re.compile(r"^//[ \t]*Tile:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
MACRO = re.compile(r"([A-Z]+)=([1-9]\d{0,5})")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
ANY_SHAPE = Workload.one_head(1, 4096, 64)


def kernel_named(name: str) -> Variant:
    """The rung of this name, or the kernel in the file of this name.

    Raises InputError if there is no such kernel, if the file cannot be read, or if its launch lines are wrong.
    """
    if is_own_kernel(name):
        return _read(name)
    if name not in VARIANTS:
        raise InputError(f"there is no kernel {name!r}: choose from {', '.join(VARIANTS)}")
    return VARIANTS[name]


def _read(name: str) -> Variant:
    if any(letter in '"\\' or not letter.isprintable() for letter in Path(name).name):
        raise InputError(f"the compiler takes no file called {Path(name).name!r}: give it a name of letters and digits")
    try:
        text = read_regular(Path(name)).decode()
        source = kernel_source(name)
    except FileNotFoundError:
        raise InputError(f"there is no file {name}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{name}, or a header of it, is not UTF-8 text at byte {error.start}") from None
    except OSError as error:
        raise InputError(str(os_error(error, f"read {name}"))) from None
    base = _base(name, text)
    macros = _macros(name, text, base)
    called = {*re.findall(r"(\w+)\s*\(", COMMENT.sub(" ", source))}
    stem = Path(name).stem

    def symbol(old: str) -> str:
        own = stem + old.removeprefix(base.name)
        keeps = not own.isidentifier() or (own not in called and old in called)
        return old if keeps else own

    tile = {key: value for key, value in macros.items() if key in ("BR", "BC")}
    rest = {key: value for key, value in macros.items() if key not in tile}
    return base.like(
        name,
        f"a kernel of your own, launched as {base.name} is",
        symbol,
        tile=lambda shape, props: {**base.tile(shape, props), **tile},
        derived=lambda shape, tile, props: {**base.derived(shape, tile, props), **rest},
    )


def _base(name: str, text: str) -> Variant:
    match = LIKE.search(text)
    if not match:
        raise InputError(
            f"{name} does not state how it is launched: name the kernel whose launches it takes in a line such as "
            f"`// Like: naive` (or {', '.join(list(VARIANTS)[1:])}); a part of a program is checked with the "
            "file that has its main"
        )
    if match[1] not in VARIANTS:
        from difflib import get_close_matches

        close = get_close_matches(match[1], VARIANTS, n=1)
        meant = f"did you mean {close[0]}?" if close else f"choose from {', '.join(VARIANTS)}"
        raise InputError(f"{_place(name, text, match)}: there is no kernel {match[1]!r} to be like: {meant}")
    return VARIANTS[match[1]]


def _macros(name: str, text: str, base: Variant) -> Mapping[str, int]:
    """The macros of the line `// Tile:`, none if there is no such line."""
    match = TILE.search(text)
    if not match:
        return {}
    plans = [base.plan(ANY_SHAPE, props) for props in DEVICES.values() if props.cc >= base.least_cc]
    known = dict.fromkeys(key for plan in plans for key in plan.macros if key != "D")
    found = {}
    for word in match[1].replace(",", " ").split():
        macro = MACRO.fullmatch(word)
        if not macro or macro[1] not in known:
            raise InputError(
                f"{_place(name, text, match)}: {word!r} sets no macro of {base.name}, which are {', '.join(known)}: "
                "write as in `// Tile: BR=32 BC=16`"
            )
        found[macro[1]] = int(macro[2])
    return found


def _place(name: str, text: str, match: re.Match[str]) -> str:
    return f"{name}:{text.count(chr(10), 0, match.start()) + 1}"


def check_symbols(variant: str, there: Sequence[str], symbols: Sequence[str], others: Sequence[str] = ()) -> None:
    """Before every launch, on a GPU or on the CPU: raise KernelError if the code of a user's kernel lacks one of the
    functions that will be launched; `there` are those that it has, and it may have the others."""
    from hw4cli.device.compilerlog import missing_symbol

    if lacking := missing_symbol(there, symbols, others):
        raise KernelError(f"{variant} {lacking}")
