"""Run a folder of CUDA programs with known mistakes on the CPU, and count: suites.py FOLDER [OPTIONS] -- ARGUMENTS.

Programs whose path matches --buggy (a regular expression) should have a finding, the others none. --list FILE says it
for each program instead, a line each: its files in the folder with blanks between, "buggy", "right" or "excluded", for
the last the reason, options of its own, NAME=VALUE as macros and <FILE as its standard input, and its arguments, with
tabs between; it is to be written before the first run. --cost runs each program unwatched, too, and compares time and
memory. --kind KIND counts findings of that kind alone, --note KIND a kind of note as a finding. --main makes a main
for files that have a kernel alone, as GPUVerify's: their second line says --blockDim and --gridDim. --sample N takes N
of each, by a seed. The programs are fetched by whoever runs this: docs/emulator.md names the suites, and what was
found.
"""

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure.scripts import end_with
from hw4cli.emulator.program.execute import ENDED, Execution, execute
from hw4cli.errors import Hw4Error

BUGGY, RIGHT, EXCLUDED = "buggy", "right", "excluded"
FOUND, CLEAN, NOT_RUN = "found", "clean", "not run"
_KERNEL = re.compile(r"__global__[^;{()]*?(?:__launch_bounds__\s*\([^)]*\)[^;{()]*?)?\b(\w+)\s*\(")
_SIZE = r"--{}=(\[[\d,\s]+\]|\d+)"
_DEFINE = re.compile(r"-D(\w+)=(\w+)")
_EQUAL = re.compile(r"__requires\(\s*(\w+)\s*==\s*(\d+|blockDim\.x)\s*\)")
# A verifier's words: conditions hold or the kernel is not for this main; invariants of proofs say nothing here.
_WORDS = """#include <cassert>
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#if __has_include(<curand_kernel.h>)
#include <curand_kernel.h>
#endif
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#define __requires(...)
#define __ensures(...)
#define __assume(...)
#define __invariant(...) true
#define __global_invariant(...)
#define __requires_fresh_array(...)
#define __assert(...) assert((__VA_ARGS__))
namespace cooperative_groups { template <class G> __device__ void synchronize(const G& group) { group.sync(); } }
"""
# Arrays whose words are 0 to 63 in turn, or zeros, for pointers; 1 for numbers, or what __requires says.
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
        static const std::vector<int> words = [] {{
            std::vector<int> made(1 << 20);
            for (size_t i = 0; i < made.size() && {counted}; i++) made[i] = (int)(i % 64);
            return made;
        }}();
        cudaMalloc(&p, 4 << 20), cudaMemcpy(p, words.data(), 4 << 20, cudaMemcpyHostToDevice);
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
#ifdef __NVCC__
        kernel<<<dim3({grid}), dim3({block})>>>(std::get<I>(all)...);
#else
        hw4::Kernel{{"{kernel}", {{__builtin_FILE(), __builtin_LINE()}}}}.with(dim3({grid}), dim3({block}))(
            kernel, std::get<I>(all)...);
#endif
    }}
    cudaGetLastError();
    cudaDeviceSynchronize();
}}
template <class... P> void hw4_start(void (*kernel)(P...)) {{ hw4_start(kernel, std::index_sequence_for<P...>()); }}
int main() {{ hw4_start({kernel}); }}
"""


@dataclass(frozen=True)
class Entry:
    """A program of a suite: its files, what it is, and options of its own."""

    files: tuple[Path, ...]
    what: str
    define: tuple[str, ...] = ()
    stdin: Path | None = None
    arguments: tuple[str, ...] = ()


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
    cost: bool
    counted: bool


def with_main(path: Path, counted: bool = False) -> str:
    """A program of a file with one kernel: it includes the file, and launches the kernel as its second line says,
    on arrays of zeros, or `counted`: of 0 to 63 in turn.

    Raises ValueError if the file says no size or has no kernel.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    kernel = _KERNEL.search(re.sub(r"//[^\n]*", "", text))
    sizes = [re.search(_SIZE.format(name), text) for name in ("gridDim", "blockDim")]
    if not kernel or not all(sizes):
        raise ValueError("it has no kernel, or says no size")
    grid, block = (size[1].strip("[]") for size in sizes if size)
    threads = re.findall(r"\d+", block)
    equal = {name: threads[0] if value == "blockDim.x" else value for name, value in _EQUAL.findall(text)}
    defined = "".join(f"#define {name} {value}\n" for name, value in _DEFINE.findall(text.split("\n", 2)[1]))
    after = re.sub(r"//[^\n]*", "", text)
    after = after[_KERNEL.search(after).end() :].split("{", 1)[0]  # type: ignore[union-attr]
    names = [re.sub(r"\[.*", "", word).split()[-1].lstrip("*&") for word in after.split(",") if word.strip(" )\n")]
    values = ", ".join(equal.get(name.rstrip(")\n "), "1") for name in names) or "1"
    made = _MAIN.format(
        kernel=kernel[1],
        grid=grid,
        block=block,
        values=values,
        cooperative=str("grid_group" in text).lower(),
        counted=str(counted).lower(),
    )
    return f'{_WORDS}{defined}#include "{path.resolve()}"\n#line 1 "main"\n{made}'


def run(entry: Entry, options: Options) -> dict[str, object]:
    """What became of a program: found, clean, or why it did not run; with --cost, also what watching it costs."""
    first = entry.files[0]
    with tempfile.TemporaryDirectory(prefix="hw4-suite-") as folder:
        files = list(entry.files)
        try:
            if options.makes_main:
                files = [Path(folder, f"{first.parent.name}.cu")]
                files[0].write_text(with_main(first, options.counted), encoding="utf-8")

            def executed(watched: bool) -> Execution:
                return execute(
                    files,
                    entry.arguments or options.arguments,
                    include=[*options.include, first.parent],
                    define=[*options.define, *entry.define],
                    seconds=options.seconds,
                    folder=Path(folder),
                    stdin=entry.stdin,
                    watched=watched,
                )

            done = executed(True)
            plain = executed(False) if options.cost and done.end == ENDED else None
        except (Hw4Error, ValueError) as error:
            return {"outcome": NOT_RUN, "why": str(error)}
    cost = {}
    if plain and plain.end == ENDED:
        cost = {"seconds": done.seconds, "plain": plain.seconds, "bytes": done.peak, "plain_bytes": plain.peak}
    found = [*done.findings, *(note for note in done.notes if note.kind in options.notes)]
    if options.kinds:
        found = [one for one in found if one.kind in options.kinds]
    if found:
        kinds = sorted({one.kind for one in found})
        real = any(one.kind not in options.notes for one in found)
        return {"outcome": FOUND, "kinds": kinds, "why": str(found[0]), "note": not real, **cost}
    return {"outcome": CLEAN if done.end == ENDED else NOT_RUN, "why": done.why, **cost}


def expected_of(folder: Path, pattern: str, listed: Path | None) -> list[Entry]:
    """What each program of a folder is: buggy, right or excluded."""
    if listed is None:
        programs = sorted(folder.rglob("*.cu"))
        buggy = [bool(re.search(pattern, str(path.relative_to(folder)))) for path in programs]
        return [Entry((path,), BUGGY if bug else RIGHT) for path, bug in zip(programs, buggy, strict=True)]
    expected: list[Entry] = []
    for line in listed.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        names, what, *more = line.split("\t")
        files = tuple(folder / name for name in names.split())
        if what not in (BUGGY, RIGHT, EXCLUDED) or not all(file.is_file() for file in files):
            raise SystemExit(f"{listed}: a line is FILES, buggy, right or excluded, a reason, options: {line}")
        own = more[1].split() if len(more) > 1 else []
        inputs = [listed.parent / word[1:] for word in own if word.startswith("<")]
        define = tuple(word for word in own if not word.startswith("<"))
        arguments = tuple(more[2].split()) if len(more) > 2 else ()
        expected.append(Entry(files, what, define, inputs[0] if inputs else None, arguments))
    return expected


def chosen(given: argparse.Namespace) -> list[Entry]:
    """The programs that are run: right ones first, then those with a mistake, of each a sample if one is asked for."""
    expected = expected_of(given.folder, given.buggy, given.list)
    every: list[Entry] = []
    for what in (RIGHT, BUGGY):
        entries = [entry for entry in expected if entry.what == what]
        if given.sample:
            entries = random.Random(given.seed).sample(entries, min(given.sample, len(entries)))
        every += sorted(entries, key=lambda entry: entry.files)
    return every


def options_of(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """A parser with the options that say which programs there are, and how they are compiled."""
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--buggy", default="[Bb]ug", help="a regular expression for the paths of programs with a mistake"
    )
    parser.add_argument("--list", type=Path, help="what each program is, a line each")
    parser.add_argument("--main", action="store_true", help="make a main for files that have a kernel alone")
    parser.add_argument("--include", type=Path, action="append", default=[])
    parser.add_argument("--define", action="append", default=[], help="a macro, NAME or NAME=VALUE")
    parser.add_argument("--counted", action="store_true", help="arrays of that main hold 0 to 63 in turn, not zeros")
    parser.add_argument("--sample", type=int, default=0, help="so many of each kind")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line, up to the arguments of the programs."""
    parser = options_of(argparse.ArgumentParser(description=__doc__.splitlines()[0]))
    parser.add_argument("--kind", action="append", default=[], help="count findings of this kind alone")
    parser.add_argument("--note", action="append", default=[], help="a kind of note that counts as a finding")
    parser.add_argument("--cost", action="store_true", help="measure what watching costs")
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
        given.cost,
        given.counted,
    )
    lines: list[dict[str, Any]] = []
    for entry in chosen(given):
        result = run(entry, options)
        lines.append({"program": str(entry.files[0].relative_to(given.folder)), "expected": entry.what, **result})
        unexpected = "" if result["outcome"] == (FOUND if entry.what == BUGGY else CLEAN) else "UNEXPECTED "
        print(f"{unexpected}{lines[-1]['program']}: {result['outcome']} {result['why']}", flush=True)
        if given.record:
            given.record.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for what in (BUGGY, RIGHT):
        own = [line for line in lines if line["expected"] == what]
        outcomes = [line["outcome"] for line in own]
        parts = ", ".join(f"{outcomes.count(each)} {each}" for each in (FOUND, CLEAN, NOT_RUN) if each in outcomes)
        notes = sum(bool(line.get("note")) for line in own)
        print(f"{len(outcomes)} programs {what}: {parts}" + (f"; {notes} of them by a note alone" if notes else ""))
    excluded = expected_of(given.folder, given.buggy, given.list)
    print(f"{sum(entry.what == EXCLUDED for entry in excluded)} programs excluded")
    if costs := [line for line in lines if "plain" in line]:
        print(cost_of(costs))


def cost_of(lines: Sequence[dict[str, Any]]) -> str:
    """What watching costs: the processor's seconds and the memory, and how many times those of the unwatched run."""
    slower = [line["seconds"] / max(line["plain"], 1e-3) for line in lines]
    watched, plain = (sum(line[key] for line in lines) for key in ("seconds", "plain"))
    most = max(lines, key=lambda line: line["bytes"])
    larger = [line["bytes"] / max(line["plain_bytes"], 1) for line in lines]
    return (
        f"{len(lines)} programs took {watched:.1f} s watched and {plain:.1f} s unwatched: {watched / plain:.1f} times, "
        f"median {statistics.median(slower):.1f}, most {max(slower):.1f}; memory {statistics.median(larger):.2f} times "
        f"(median), at most {most['bytes'] / 1e6:.0f} MB ({most['program']})"
    )


if __name__ == "__main__":
    end_with(main)
