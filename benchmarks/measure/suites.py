"""Run a folder of CUDA programs with known mistakes on the CPU, and count: suites.py FOLDER [OPTIONS] -- ARGUMENTS.

Programs whose path matches --buggy (a regular expression) should have a finding, the others none. --list FILE says it
for each program instead, a line each: its path in the folder, "buggy", "right" or "excluded", and for the last the
reason, with tabs between; it is to be written before the first run. --kind KIND counts findings of that kind alone,
--note KIND a kind of note as a finding. --main makes a main for files that have a kernel alone, as GPUVerify's: their
second line says --blockDim and --gridDim. --sample N takes N of each, by a seed. The programs are fetched by whoever
runs this: docs/emulator.md names the suites, and what was found.
"""

import argparse
import json
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hw4cli.emulator.program.execute import ENDED, execute
from hw4cli.errors import Hw4Error

BUGGY, RIGHT, EXCLUDED = "buggy", "right", "excluded"
FOUND, CLEAN, NOT_RUN = "found", "clean", "not run"
_KERNEL = re.compile(r"__global__[^;{()]*?(?:__launch_bounds__\s*\([^)]*\)[^;{()]*?)?\b(\w+)\s*\(")
_SIZE = r"--{}=(\[[\d,\s]+\]|\d+)"
_EQUAL = re.compile(r"__requires\(\s*(\w+)\s*==\s*(\d+)\s*\)")
# A verifier's words: conditions hold or the kernel is not for this main; invariants of proofs say nothing here.
_WORDS = """#include <cassert>
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#define __requires(...)
#define __ensures(...)
#define __assume(...)
#define __invariant(...) true
#define __global_invariant(...)
#define __assert(...) assert((__VA_ARGS__))
namespace cooperative_groups { template <class G> void synchronize(const G& group) { group.sync(); } }
"""
# Arrays of zeros for pointers, 1 for numbers, or what __requires says.
_MAIN = """
template <class T> struct hw4_value {{
    static T of(double x) {{
        if constexpr (std::is_convertible_v<double, T>) return (T)x;
        else return T{{}};
    }}
}};
template <class T> struct hw4_value<T*> {{
    static T* of(double) {{
        if constexpr (std::is_function_v<T>) return nullptr;
        void* p;
        cudaMalloc(&p, 4 << 20), cudaMemset(p, 0, 4 << 20);
        return (T*)p;
    }}
}};
template <class... P, size_t... I> void hw4_start(void (*kernel)(P...), std::index_sequence<I...>) {{
    const double given[] = {{{values}, 0}};
    std::tuple<typename std::remove_cv<P>::type...> all{{hw4_value<typename std::remove_cv<P>::type>::of(given[I])...}};
    if ({cooperative}) {{
        void* pointers[] = {{(void*)&std::get<I>(all)..., nullptr}};
        cudaLaunchCooperativeKernel(kernel, dim3({grid}), dim3({block}), pointers);
    }} else {{
        hw4::Kernel{{"{kernel}", {{__builtin_FILE(), __builtin_LINE()}}}}.with(dim3({grid}), dim3({block}))(
            kernel, std::get<I>(all)...);
    }}
    cudaGetLastError();
}}
template <class... P> void hw4_start(void (*kernel)(P...)) {{ hw4_start(kernel, std::index_sequence_for<P...>()); }}
int main() {{ hw4_start({kernel}); }}
"""


@dataclass(frozen=True)
class Options:
    """What counts, and how programs are run."""

    arguments: tuple[str, ...]
    include: tuple[Path, ...]
    define: tuple[str, ...]
    kinds: frozenset[str]
    notes: frozenset[str]
    seconds: float
    makes_main: bool


def with_main(path: Path) -> str:
    """A program of a file with one kernel: it includes the file, and launches the kernel as its second line says.

    Raises ValueError if the file says no size or has no kernel.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    kernel = _KERNEL.search(re.sub(r"//[^\n]*", "", text))
    sizes = [re.search(_SIZE.format(name), text) for name in ("gridDim", "blockDim")]
    if not kernel or not all(sizes):
        raise ValueError("it has no kernel, or says no size")
    grid, block = (size[1].strip("[]") for size in sizes if size)
    equal = dict(_EQUAL.findall(text))
    after = re.sub(r"//[^\n]*", "", text)
    after = after[_KERNEL.search(after).end() :].split("{", 1)[0]  # type: ignore[union-attr]
    names = [re.sub(r"\[.*", "", word).split()[-1].lstrip("*&") for word in after.split(",") if word.strip(" )\n")]
    values = ", ".join(equal.get(name.rstrip(")\n "), "1") for name in names) or "1"
    made = _MAIN.format(
        kernel=kernel[1], grid=grid, block=block, values=values, cooperative=str("grid_group" in text).lower()
    )
    return f'{_WORDS}#include "{path.resolve()}"\n#line 1 "main"\n{made}'


def run(path: Path, options: Options) -> dict[str, object]:
    """What became of a program: found, clean, or why it did not run."""
    with tempfile.TemporaryDirectory(prefix="hw4-suite-") as folder:
        try:
            if options.makes_main:
                made = Path(folder, f"{path.parent.name}.cu")
                made.write_text(with_main(path), encoding="utf-8")
            done = execute(
                [made if options.makes_main else path],
                options.arguments,
                include=[*options.include, path.parent],
                define=options.define,
                seconds=options.seconds,
                folder=Path.cwd(),
            )
        except (Hw4Error, ValueError) as error:
            return {"outcome": NOT_RUN, "why": str(error)}
    found = [*done.findings, *(note for note in done.notes if note.kind in options.notes)]
    if options.kinds:
        found = [one for one in found if one.kind in options.kinds]
    if found:
        return {"outcome": FOUND, "kinds": sorted({one.kind for one in found}), "why": str(found[0])}
    return {"outcome": CLEAN if done.end == ENDED else NOT_RUN, "why": done.why}


def expected_of(folder: Path, pattern: str, listed: Path | None) -> dict[Path, str]:
    """What each program of a folder is: buggy, right or excluded."""
    programs = sorted(folder.rglob("*.cu"))
    if listed is None:
        return {path: BUGGY if re.search(pattern, str(path.relative_to(folder))) else RIGHT for path in programs}
    expected: dict[Path, str] = {}
    for line in listed.read_text(encoding="utf-8").splitlines():
        name, what, *_ = line.split("\t")
        if what not in (BUGGY, RIGHT, EXCLUDED) or not (folder / name).is_file():
            raise SystemExit(f"{listed}: a line is PATH, buggy, right or excluded, and a reason: {line}")
        expected[folder / name] = what
    return expected


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line, up to the arguments of the programs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--buggy", default="[Bb]ug", help="a regular expression for the paths of programs with a mistake"
    )
    parser.add_argument("--list", type=Path, help="what each program is, a line each")
    parser.add_argument("--main", action="store_true", help="make a main for files that have a kernel alone")
    parser.add_argument("--include", type=Path, action="append", default=[])
    parser.add_argument("--define", action="append", default=[], help="a macro, NAME or NAME=VALUE")
    parser.add_argument("--kind", action="append", default=[], help="count findings of this kind alone")
    parser.add_argument("--note", action="append", default=[], help="a kind of note that counts as a finding")
    parser.add_argument("--sample", type=int, default=0, help="so many of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--record", type=Path)
    return parser.parse_args(words)


def main() -> None:
    """Run the programs, one after the other; each is a line, and a summary the last ones."""
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    given = parse(words[:at])
    options = Options(
        tuple(words[at + 1 :]),
        tuple(given.include),
        tuple(given.define),
        frozenset(given.kind),
        frozenset(given.note),
        given.seconds,
        given.main,
    )
    expected = expected_of(given.folder, given.buggy, given.list)
    lines = []
    for what in (RIGHT, BUGGY):
        paths = [path for path, is_what in expected.items() if is_what == what]
        if given.sample:
            paths = random.Random(given.seed).sample(paths, min(given.sample, len(paths)))
        for path in sorted(paths):
            result = run(path, options)
            lines.append({"program": str(path.relative_to(given.folder)), "expected": what, **result})
            unexpected = "" if result["outcome"] == (FOUND if what == BUGGY else CLEAN) else "UNEXPECTED "
            print(f"{unexpected}{lines[-1]['program']}: {result['outcome']} {result['why']}", flush=True)
            if given.record:
                given.record.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for what in (BUGGY, RIGHT):
        outcomes = [line["outcome"] for line in lines if line["expected"] == what]
        parts = ", ".join(f"{outcomes.count(each)} {each}" for each in (FOUND, CLEAN, NOT_RUN) if each in outcomes)
        print(f"{len(outcomes)} programs {what}: {parts}")
    print(f"{sum(what == EXCLUDED for what in expected.values())} programs excluded")


if __name__ == "__main__":
    main()
