"""A CUDA program's files compiled for the CPU into one executable, which is kept beside the GPU's machine code.

A file is preprocessed first, against the headers of kernels/emulator/program, as launches may come out of macros; then
its launches become calls (launches.py), and a C++ compiler makes a program of it, while others compile the runtime,
where it is not kept yet. Three builds: `plain` is for the answer
alone, `race` has the compiler's hooks before every load and store, the host's too, and `counts` besides one at the
begin of each piece of straight code.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hw4cli.emulator import build as kernels
from hw4cli.emulator.build import COUNTS, PLAIN, RACE, Compiler, Run, check_counting, find_compiler
from hw4cli.emulator.program.launches import MARKED_FILE, blanked, named_by, with_calls
from hw4cli.emulator.program.ptx import with_instructions
from hw4cli.emulator.program.refusals import check_words, missing_function, missing_header
from hw4cli.emulator.program.thrust import thrust_options
from hw4cli.errors import InputError
from hw4cli.problem.cpu import workers
from hw4cli.resources import data_path

LANGUAGE = (
    "-std=c++17",
    "-w",
    "-fpermissive",
    "-fno-strict-aliasing",
    "-ffp-contract=fast",
    "-fno-tree-vectorize",
    "-fno-finite-loops",  # an endless loop stays one
)
_SAYS_OPENMP = re.compile(r"#\s*pragma\s+omp\b|\bomp\.h\b")  # else it is compiled as by nvcc, which knows no OpenMP
_OPENMP = ("GOMP_", "__kmpc_", "omp_")  # how its functions' names begin
PRELUDE = "kernels/emulator/program/prelude.h"
NOT_ON_THE_CPU = "hopper"  # instructions that programs cannot name
ON_DEMAND = ("tensor",)  # units of the runtime that few programs use
# Libraries in program/libraries, and the namespaces whose functions they have, as names in objects begin.
LIBRARIES = {"blas": ("3hw44blas", "cublasGetStatus"), "random": ("3hw46random",)}
SUFFIXES = (".cu", ".cpp", ".cc", ".cxx", ".c", ".hip")
# Memory that a kernel allocates is a GPU's: what a program's own code calls is the runtime's.
ALLOCATORS = {
    "malloc": "hw4_malloc_here",
    "free": "hw4_free_here",
    "_Znwm": "hw4_new_here",
    "_Znam": "hw4_new_array_here",
    "_ZdlPv": "hw4_delete_here",
    "_ZdaPv": "hw4_delete_array_here",
    "_ZdlPvm": "hw4_delete_sized_here",
    "_ZdaPvm": "hw4_delete_array_sized_here",
}
MOST_PRELUDES = 6  # of 60 MB each: watched or not, for several GPUs
MOST_EXECUTABLES = 300  # of 1 MB each
MOST_LETTERS = 40  # of a program's name in that of what is kept
_GLOBAL = re.compile(r"__global__[^;{()]*?(?:__launch_bounds__\s*\([^)]*\)[^;{()]*?)?\b(\w+)\s*\(")
_MARK = re.compile(rf"^#\s*(\d+)\s+{MARKED_FILE}((?:\s\d)*)\n", re.M)
_WINDOW = re.compile(
    r"\b(?:extern\b[^;(){}]*\bthread_local|thread_local\b[^;{}]*?\bextern)\b[^;{}]*?(\w+)\s*\[\s*\]\s*;"
)
# A __constant__ variable up to where its name ends; before it, the words of its declaration (prelude.h).
_CONSTANT = re.compile(r"(?P<before>[^;{}()#\n]*)\bHW4_CONSTANT\b(?P<behind>[^;={(]*)")
_NO_SECTION = re.compile(r"\b(?:const|constexpr|template|inline|extern)\b|HW4_CONSTANT")
_SECTION = '__attribute__((section("hw4_constants")))'
# A function's name in that of a variable in it: `void ns::tiles<32>(float*, int)::row`.
_FUNCTION = re.compile(r"(?:.*[\s:])?(\w+)(?:<.*>)?\(.*\)::\w+$")


@dataclass(frozen=True)
class Source:
    """A program's files; where it finds headers, and macros that are set, as NAME or NAME=VALUE."""

    files: tuple[Path, ...]
    include: tuple[Path, ...] = ()
    define: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its first file."""
        return self.files[0].name

    @property
    def hip(self) -> bool:
        """Whether it is written for AMD's GPUs."""
        pattern = re.compile(r"^\s*#\s*include\s*[<\"]hip/", re.M)
        return any(path.suffix == ".hip" or pattern.search(read(path)) for path in self.files)

    @property
    def kernels(self) -> frozenset[str]:
        """The names of functions that are declared __global__."""
        return frozenset(name for path in self.files for name in _GLOBAL.findall(blanked(read(path))))


def read(path: Path) -> str:
    """A source file's text. Raises InputError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


@dataclass(frozen=True)
class Program:
    """A program for the CPU: its executable, and whether its loads and stores can be watched, or are counted."""

    source: Source
    executable: Path
    watched: bool
    lanes: int
    counted: bool = False


def compile_program(
    source: Source,
    *,
    cc: int = 80,
    lanes: int = 32,
    watched: bool = True,
    counted: bool = False,
    run: Run = subprocess.run,
) -> Program:
    """The program for a GPU of a compute capability with so many lanes in a warp, watched, or else counted, or neither;
    kept, if there is a place.

    `run` starts the compiler and waits for it. Raises InputError if the program does not compile or needs what is not
    there on the CPU, MachineError if there is no compiler, or none that `counted` can do with.
    """
    compiler = find_compiler()
    if counted:
        check_counting()
    headers = data_path("kernels/emulator")
    build = COUNTS if counted else RACE if watched else PLAIN
    options = _options(compiler, build, cc, lanes)
    own = [f"-I{path}" for path in dict.fromkeys([*(file.resolve().parent for file in source.files), *source.include])]
    own += [f"-D{name}" for name in source.define]
    texts = [*kernels.texts(headers), *kernels.texts(headers / "program")]
    more = sorted(path for path in (headers / "program").rglob("*/*") if path.is_file())
    texts += [path.read_text(encoding="utf-8") for path in more]
    known = (options, own, compiler.version, *texts)
    with tempfile.TemporaryDirectory(prefix="hw4-") as folder, ThreadPoolExecutor(workers()) as pool:
        files = [file.resolve() for file in source.files]
        folders = [*dict.fromkeys([*(file.parent for file in files), *source.include])]
        includes = [f"-I{headers}/program/include", f"-I{headers}/program"]
        read_files = [read(file) for file in files]
        thrust = thrust_options(read_files, folders, Path(folder, "thrust.h"))
        openmp = [] if any(_SAYS_OPENMP.search(text) for text in read_files) else ["-include", f"{folder}/openmp.h"]
        Path(folder, "openmp.h").write_text("#undef _OPENMP\n", encoding="utf-8")

        def preprocess(at: int) -> tuple[str, str]:
            target = Path(folder, f"{at}.ii")
            keep = () if compiler.clang else ("-fpch-preprocess",)

            def preprocessed(prelude: Sequence[str]) -> None:
                words = [compiler.path, *options, *prelude, *openmp, *own, *includes, *thrust, "-fopenmp"]
                words += ["-E", *keep, "-x", "c++", str(files[at]), "-o", str(target)]
                _check(run, words, files[at].name, folder)

            try:
                preprocessed(prelude)
            except InputError as error:
                if "PCH" not in str(error):
                    raise
                preprocessed(["-include", str(data_path(PRELUDE))])  # a macro has a name that the parsed one uses
            return _parted(target.read_text(encoding="utf-8", errors="replace"), files[at])

        prelude = _prelude(compiler, options)
        given = list(pool.map(preprocess, range(len(files))))
        target = _executable(source, given, known)
        if kernels.is_kept(target):
            return Program(source, target, watched and not counted, lanes, counted)
        if _keep_prelude(compiler, options, folder, run):
            prelude = _prelude(compiler, options)
            given = list(pool.map(preprocess, range(len(files))))
        made = []
        for (before, text), file in zip(given, source.files, strict=True):
            own_text = _with_constants(with_instructions(text))
            check_words(_users(own_text), file.name)
            made.append(before + with_calls(own_text, file.name)[0])
        runtime = pool.submit(_runtime, compiler, build, run)

        def compile_one(at: int) -> Path:
            text, made_object = Path(folder, f"{at}.ii"), Path(folder, f"{at}.o")
            text.write_text(made[at], encoding="utf-8")
            words = [
                compiler.path,
                *options,
                "-fopenmp",
                "-x",
                "c++-cpp-output",
            ]  # what GCC has parsed is known by that
            _check(run, [*words, "-c", str(text), "-o", str(made_object)], source.files[at].name, folder)
            renamed = [f"--redefine-sym={old}={new}" for old, new in ALLOCATORS.items()]
            if compiler.clang and build == RACE:
                renamed += [f"--redefine-sym={name}=__tsan_{name}" for name in ("memcpy", "memmove", "memset")]
            _check(run, ["objcopy", *renamed, str(made_object)], source.files[at].name, folder)
            return made_object

        objects = list(pool.map(compile_one, range(len(made))))
        asked = {symbol for path in objects for symbol in _asked_for(path, run)}
        libraries = _libraries(compiler, build, asked, run)
        windows = _windows(objects, set(_WINDOW.findall("\n".join(_users(text) for _, text in given))), run)
        # Only for a program that uses it: Clang comes without OpenMP's library.
        libraries_of_host = ["-fopenmp"] if any(symbol.startswith(_OPENMP) for symbol in asked) else []
        linked = Path(folder, "program")

        def link(parts: Sequence[Path]) -> None:
            # The runtime first: of what both have, such as std::string, it takes its own, which is not watched.
            words = [compiler.path, "-no-pie", *windows, *map(str, [*parts, *libraries, *objects])]
            _check(run, [*words, *libraries_of_host, "-lpthread", "-lm", "-o", str(linked)], source.name, folder)

        try:
            link(runtime.result())
        except _UnlinkedError:
            link([*runtime.result(), *_runtime(compiler, build, run, ON_DEMAND)])
        linked.chmod(0o755)
        target = kernels.keep(linked, target)
        _remove_old("hw4-executable-*", MOST_EXECUTABLES)
    return Program(source, target, watched and not counted, lanes, counted)


def _parted(text: str, file: Path) -> tuple[str, str]:
    """A preprocessed text as what is read before the file, and the file's own."""
    begins = (mark.start() for mark in _MARK.finditer(text) if mark[1] == "1" and named_by(mark[2]) == str(file))
    at = next(begins, 0)
    return text[:at], text[at:]


def _with_constants(text: str) -> str:
    """The text with its __constant__ variables in a section of their own, where the runtime knows that kernels write to
    them. What is const needs none: no compiler lets it be written, nor lets it lie beside what is not."""

    def placed(match: re.Match[str]) -> str:
        before, behind = match["before"], match["behind"]
        section = "" if _NO_SECTION.search(before) or _NO_SECTION.search(behind) else _SECTION
        return f"{before}{section}{behind}"

    return re.sub(r"\bHW4_CONSTANT\b", "", _CONSTANT.sub(placed, text))


def _executable(source: Source, given: Sequence[tuple[str, str]], known: Sequence[object]) -> Path:
    """Where a program is kept: by its own text, whichever way the prelude is read."""
    digest = kernels.digest([list(_lines(text)) for _, text in given], *known)
    return kernels.place_of(f"hw4-executable-{source.files[0].stem[:MOST_LETTERS]}-{digest}")


def _lines(text: str) -> Iterator[tuple[str, int, str]]:
    """A preprocessed text's lines with their files and numbers, without empty ones: where a header that the prelude has
    is included again, marks and empty lines are left of it if the prelude was parsed, and nothing else."""
    file, number = "", 0
    for line in text.splitlines():
        if mark := _MARK.match(f"{line}\n"):
            file, number = mark[2], int(mark[1])
            continue
        if line.strip():
            yield file, number, line
        number += 1


def _options(compiler: Compiler, build: str, cc: int, lanes: int) -> list[str]:
    optimised = "-O2" if build == PLAIN else "-O1"  # a host's code, too, whose functions are small ones of templates
    chosen = [*LANGUAGE, kernels.LINES, "-fno-pie", *kernels.processor(), *compiler.options(build, optimised)]
    chosen += [f"-D__CUDA_ARCH__={cc * 10}", "-DEMU_PROGRAM"]
    if not compiler.clang:
        chosen.append("-fno-extern-tls-init")  # shared memory has no constructors
    return [*chosen, *(["-D__HIP__=1", "-D__HIP_PLATFORM_AMD__=1", "-D__HIPCC__=1"] if lanes == 64 else [])]


def _prelude(compiler: Compiler, options: Sequence[str]) -> list[str]:
    """The options that have the compiler read prelude.h first: parsed already, where that is kept."""
    parsed = _parsed_prelude(compiler, options)
    return ["-include", str(parsed.with_suffix("") if parsed.exists() else data_path(PRELUDE))]


def _parsed_prelude(compiler: Compiler, options: Sequence[str]) -> Path:
    """Where prelude.h is kept for a compiler, parsed; Clang reads the text."""
    header = data_path(PRELUDE)
    read_by_it = [
        *(header.parent.parent / name for name in ("language.h", "numbers.h", "runtime.h")),
        *sorted(header.parent.glob("*.h")),
    ]
    digest = kernels.digest(options, compiler.version, *map(read, read_by_it))
    return kernels.cache_folder() / f"hw4-prelude-{digest}" / "prelude.h.gch"


def _keep_prelude(compiler: Compiler, options: Sequence[str], folder: str, run: Run) -> bool:
    """Before a program is compiled: keep the prelude parsed, if it is not; whether that was done.

    The first program reads the text, which takes a second. To parse and keep it takes three times as long, and is
    worth it for the second one. Where there is no room for it, the text is read.
    """
    kept = _parsed_prelude(compiler, options)
    if compiler.clang or kept.exists():
        return False
    if not kept.parent.exists():
        with suppress(OSError):
            kept.parent.mkdir(exist_ok=True)
        return False
    made = Path(folder, "prelude.gch")
    words = [compiler.path, *options, "-fopenmp", "-x", "c++-header", str(data_path(PRELUDE)), "-o", str(made)]
    _check(run, words, kept.stem, folder)
    try:
        kernels.put(made, kept)
    except OSError:
        return False
    _remove_old("hw4-prelude-*", MOST_PRELUDES)
    return True


def _remove_old(pattern: str, most: int) -> None:
    """Remove all but the newest of what is kept under such names: a class has many versions of many programs."""
    found = []
    for path in kernels.cache_folder().glob(pattern):
        with suppress(OSError):  # another process has removed it
            found.append((path.stat().st_mtime, path))
    for _, path in sorted(found, reverse=True)[most:]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _runtime(compiler: Compiler, build: str, run: Run, on_demand: Sequence[str] = ()) -> list[Path]:
    """The runtime, compiled as a part of a program: with threads of the host's, and code that cannot be moved. The
    units `on_demand` alone, or all but those."""
    headers = data_path("kernels/emulator")
    units = kernels.units_of(headers, without=NOT_ON_THE_CPU)
    units = {unit: files for unit, files in units.items() if (unit in ON_DEMAND) == bool(on_demand)}
    if not on_demand:
        units["program"] = tuple(sorted(headers.glob("program/*.cpp")))  # begins a process: what it uses is made before
    return _compiled(compiler, build, units, [], run)


def _libraries(compiler: Compiler, build: str, asked: Collection[str], run: Run) -> list[Path]:
    """The libraries, compiled, whose functions a program asks for."""
    folder = data_path("kernels/emulator/program")
    wanted = [name for name, heads in LIBRARIES.items() if any(head in symbol for symbol in asked for head in heads)]
    if not wanted:
        return []
    known = [read(path) for path in sorted((*folder.glob("libraries/*"), *folder.glob("include/*.h")))]
    return _compiled(compiler, build, {name: (folder / f"libraries/{name}.cpp",) for name in wanted}, known, run)


def _compiled(
    compiler: Compiler, build: str, units: Mapping[str, Sequence[Path]], known: Sequence[str], run: Run
) -> list[Path]:
    """Units of the runtime, and what else they depend on, compiled as parts of a program."""
    headers = data_path("kernels/emulator")
    options = [*LANGUAGE, "-fno-pie", *kernels.processor(), "-DEMU_PROGRAM"]
    folders = (headers, headers / "program")
    texts = [read(path) for folder in folders for path in sorted((*folder.glob("*.h"), *folder.glob("*.cpp")))]
    return kernels.compile_runtime(compiler, build, options, units, [*texts, *known], "program", run)


def _asked_for(path: Path, run: Run) -> list[str]:
    """The symbols that an object does not have itself."""
    listed = run(["nm", "-u", str(path)], capture_output=True, text=True, errors="replace").stdout
    return [word for word in listed.split() if word != "U"]


def _windows(objects: Sequence[Path], names: set[str], run: Run) -> list[str]:
    """The linker's options that make what is declared extern __shared__, under whatever name, the runtime's window."""
    if not names:
        return []
    found: dict[str, None] = {}
    for path in objects:
        listed = _asked_for(path, run)
        plain = run(
            ["c++filt"], input="\n".join(listed), capture_output=True, text=True, errors="replace"
        ).stdout.split("\n")
        for symbol, shown in zip(listed, plain, strict=False):
            runtimes = symbol.startswith(("_ZTH", "_ZTW")) or shown.startswith(
                "emu::"
            )  # one may be called as one of its own
            if shown.split("::")[-1] in names and not runtimes:
                found[symbol] = None
    return [f"-Wl,--defsym={symbol}=hw4_window" for symbol in found]


@cache
def shared_arrays(executable: Path) -> tuple[tuple[int, int, str, str], ...]:
    """A program's static shared arrays: where they begin among its thread-local variables, their bytes, the function
    that they are in ("" if they are in none), their names. Without a name: the byte by which the compiler knows whether
    an array of a class, such as half, has been made."""
    words = ["readelf", "--symbols", "--wide", "--demangle", str(executable)]
    listed = subprocess.run(words, capture_output=True, text=True, errors="replace", check=True).stdout
    found = set()
    for line in listed.splitlines():
        fields = line.split(maxsplit=7)
        if len(fields) == 8 and fields[3] == "TLS" and int(fields[2], 0) and fields[6] != "UND":
            name = fields[7]
            if name.startswith("guard variable"):
                found.add((int(fields[1], 16), int(fields[2], 0), "", ""))
            elif not name.startswith(("hw4", "emu::", "TLS ")):
                function = _FUNCTION.match(name)
                found.add(
                    (int(fields[1], 16), int(fields[2], 0), function[1] if function else "", name.split("::")[-1])
                )
    return tuple(sorted(found))


def _users(text: str) -> str:
    """Of a preprocessed text the user's own part, with its line marks; what comes from the system's and the emulator's
    headers is left out."""
    runtime = str(data_path("kernels/emulator"))
    pieces, end, own = [], 0, True
    for mark in _MARK.finditer(text):
        if own:
            pieces.append(text[end : mark.start()])
        path = named_by(mark[2])
        own = not ("3" in mark[3].split() or path.startswith(("/usr/", "<", runtime)))
        if own:
            pieces.append(mark[0])
        end = mark.end()
    return "".join([*pieces, text[end:] if own else ""])


class _UnlinkedError(InputError):
    """A program calls what is not there."""


def _check(run: Run, command: Sequence[str], name: str, folder: str) -> None:
    """Run a compiler. Raises InputError with its first error if it fails."""
    done = kernels.compiler_run(command, name, folder, run)
    if not done.returncode:
        return
    if sentence := missing_header(done.stderr) or missing_function(done.stderr):
        raise InputError(sentence)
    if "cannot find -lomp" in done.stderr:
        raise InputError(f"{name} uses OpenMP, whose library clang++ lacks here: install libomp-dev, or set CXX=g++")
    if _UNDEFINED.search(done.stderr):
        raise _UnlinkedError(f"{name} does not compile for the CPU: {first_error(done.stderr)}")
    raise InputError(f"{name} does not compile for the CPU: {first_error(done.stderr)}")


_ERROR = re.compile(r"^(?P<place>[^\n:]+:\d+):(?:\d+:)? (?:fatal )?error: (?P<words>.*)$", re.M)
_UNDEFINED = re.compile(r"undefined reference to [`']?(?P<name>[^'\n]*)'?")


def first_error(errors: str) -> str:
    """The first error in a compiler's or linker's words, in a line."""
    if found := _ERROR.search(errors):
        return f"{found['place'].rsplit('/', 1)[-1]}: {found['words']}"
    if found := _UNDEFINED.search(errors):
        return f"it calls {found['name']}, which no file has: name all files of the program"
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[0] if lines else "the compiler says nothing"
