"""The kernels of a whole CUDA or HIP program on an architecture, without a GPU: compiled by nvcc, or by NVRTC on what
is the device's of its text, or by hipcc, with their resources and occupancy."""

import ast
import operator
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hw4cli.device.compilerlog import VERBOSE, Usage, first_error, usage
from hw4cli.device.hip.codeobject import CodeResources, kernels_of
from hw4cli.device.kernelcheck import CheckedLaunch, compiler_for
from hw4cli.device.nvrtc import Compiler
from hw4cli.device.occupancy import occupancy
from hw4cli.errors import CompileError, InputError, MachineError
from hw4cli.plans.plan import DeviceProperties
from hw4cli.resources import spliced

NVRTC_OPTIONS = ("-std=c++17", "-default-device")
SECONDS = 300.0  # that nvcc may take
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
_HOSTS = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"](?!cuda_fp16|cuda_bf16|mma\.h|cooperative_groups)[^>\"\n]*[>\"]", re.M
)
_HIPS = re.compile(r"^\s*#\s*include\s*[<\"]hip/", re.M)
_DEVICES = re.compile(r"__(?:global|device|constant)__")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
_TEMPLATE = r"\s*(?:template\s*<[^{;]*>\s*)?"
_TYPES = re.compile(_TEMPLATE + r"(?:struct|class|enum|union|typedef|using|constexpr|static\s+const|const)\b")
# What goes on behind its braces up to a semicolon.
_GOES_ON = re.compile(_TEMPLATE + r"(?:(?:struct|class|enum|union|typedef)\b|[^(]*=\s*\{)")
_LAUNCH = re.compile(r"(\w+)\s*(?:<[^<>;]*>)?\s*<<<(.*?)>>>\s*\(", re.S)
_HIPS_LAUNCH = re.compile(r"\bhipLaunchKernelGGL\s*\(\s*(?:HIP_KERNEL_NAME\s*\(\s*)?(\w+)(?:\s*<[^<>;]*>)?\s*\)?\s*,")
_NUMBERS = (
    re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]+)", re.M),
    re.compile(
        r"\b(?:(?:const|constexpr|static)\s+)*(?:unsigned\s+|signed\s+)?(?:int|size_t|unsigned|long|auto|u?int\d+_t)"
        r"\s+(\w+)\s*=\s*([^;,]+);"
    ),
)
# A type's bytes, for sizeof.
_BYTES = {
    **dict.fromkeys(("char", "bool", "int8_t", "uint8_t"), 1),
    **dict.fromkeys(("short", "half", "__half", "__nv_bfloat16", "int16_t", "uint16_t"), 2),
    **dict.fromkeys(("int", "unsigned", "unsigned int", "float", "half2", "__half2", "int32_t", "uint32_t"), 4),
    **dict.fromkeys(("double", "long", "long long", "unsigned long long", "size_t", "float2", "int2", "int64_t"), 8),
    **dict.fromkeys(("float3", "int3"), 12),
    **dict.fromkeys(("float4", "int4", "double2"), 16),
}
_SIZEOF = re.compile(r"\bsizeof\s*\(\s*([\w\s]+?)\s*\)")
_CAST = re.compile(
    r"\(\s*(?:int|size_t|unsigned(?:\s+int)?|long)\s*\)|\bstatic_cast\s*<[^<>]*>|\b(?:size_t|int)(?=\s*\()"
)
_DIM3 = r"\bdim3\b[^;(]*(?:\([^;]*?\)\s*,\s*)?\b{name}\s*(?:=\s*dim3\s*)?[({{]([^;]*?)[)}}]\s*[;,]"
# What kernels use of C's headers, which NVRTC does not have.
_HEADERS = """
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623158e+308
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define M_PI 3.14159265358979323846
#define NULL 0
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
"""
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


@dataclass(frozen=True)
class LaunchSize:
    """Of a kernel's launches: the threads of a block, and its bytes of dynamic shared memory; None where unknown."""

    threads: int | None
    shared: int | None


def check_program(
    files: Sequence[Path], props: DeviceProperties, include: Sequence[Path] = (), define: Sequence[str] = ()
) -> list[CheckedLaunch]:
    """Each kernel of a program on a GPU; or one result with the problem.

    For a GPU of AMD's it is a HIP program, or MachineError is raised, as it is if there is no compiler for the GPU.
    Raises InputError if a file cannot be read.
    """
    name, capability = str(files[0]), props.gfx or f"{props.cc / 10:.1f}"
    try:
        texts = [spliced(path, (path.parent, *include)) for path in files]
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from None
    except UnicodeDecodeError:
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    hip = any(path.suffix == ".hip" for path in files) or any(map(_HIPS.search, texts))
    if hip != bool(props.gfx):
        both = ("a CUDA", "NVIDIA"), ("a HIP", "AMD")
        raise MachineError(f"{name} is {both[hip][0]} program, and {props.architecture} is {both[not hip][1]}'s")
    try:
        used: Mapping[str, Usage | CodeResources] | None
        used = _by_hipcc(files, props.gfx, include, define) if hip else _by_nvcc(files, props.cc, include, define)
        if used is None:
            used = _by_nvrtc(texts, name, props, define)
    except CompileError as error:
        problem = f"does not compile: {first_error(str(error), name)}"
        return [CheckedLaunch(name, capability, problem=problem, wrong=True)]
    if not used:
        return [CheckedLaunch(name, capability, problem="has no kernel", wrong=True)]
    launches = launch_sizes("\n".join(texts), define)
    return [_row(name, capability, symbol, mine, props, launches) for symbol, mine in used.items()]


def _row(
    name: str,
    capability: str,
    symbol: str,
    used: Usage | CodeResources,
    props: DeviceProperties,
    launches: Mapping[str, LaunchSize],
) -> CheckedLaunch:
    kernel = plain_name(symbol)
    launch = launches.get(kernel, LaunchSize(None, None))
    block, shared = launch.threads, used.shared + (launch.shared or 0)
    accumulation = used.accumulation if isinstance(used, CodeResources) else None
    if block is None or launch.shared is None:
        row = CheckedLaunch(name, capability, kernel, used.registers, used.spilled, shared, block)
        return replace(row, accumulation_registers=accumulation)
    found = occupancy(props, used.registers, shared, block)
    problem = None if found.blocks else f"cannot start {kernel}: one block needs more {' and '.join(found.limited_by)}"
    return CheckedLaunch(
        *(name, capability, kernel, used.registers, used.spilled, shared, block),
        *(found.blocks, found.share, found.limited_by, problem, accumulation),
        wrong=problem is not None,
    )


# ---- Compilers


def _by_nvcc(files: Sequence[Path], cc: int, include: Sequence[Path], define: Sequence[str]) -> dict[str, Usage] | None:
    """What the kernels use, as nvcc compiles the files; None if it is not there or does not know the GPU.

    Raises CompileError.
    """
    nvcc = shutil.which("nvcc")
    if nvcc is None or f"sm_{cc}" not in _known_to(nvcc):
        return None
    words = [f"-I{path}" for path in include] + [f"-D{name}" for name in define]
    used: dict[str, Usage] = {}
    with tempfile.TemporaryDirectory(prefix="hw4-") as folder:
        for file in files:
            command = [nvcc, f"-arch=sm_{cc}", "-cubin", "-std=c++17", "-Xptxas", "-v", "-x", "cu", *words]
            try:
                done = subprocess.run(
                    [*command, str(file.resolve()), "-o", f"{folder}/made.cubin"],
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise MachineError(f"nvcc has not compiled {file} after {SECONDS:.0f} s") from None
            if done.returncode:
                raise CompileError(done.stderr.replace(str(file.resolve()), str(file)))
            used |= usage(done.stderr)
    return used


def has_hipcc() -> bool:
    """Whether hipcc is installed, which HIP programs are compiled by."""
    return shutil.which("hipcc") is not None


def _by_hipcc(
    files: Sequence[Path], gfx: str, include: Sequence[Path], define: Sequence[str]
) -> dict[str, CodeResources]:
    """What the kernels use, as hipcc compiles the files. Raises CompileError, MachineError if it is not there."""
    if not has_hipcc():
        raise MachineError(f"hipcc is not installed: HIP programs are compiled for {gfx} by it; with --run, by g++")
    words = [f"-I{path}" for path in include] + [f"-D{name}" for name in define]
    used: dict[str, CodeResources] = {}
    for file in files:
        with tempfile.TemporaryDirectory(prefix="hw4-") as folder:
            own = ["--genco", "--no-gpu-bundle-output", f"--offload-arch={gfx}", "-x", "hip", *words]
            try:
                done = subprocess.run(
                    ["hipcc", *own, str(file.resolve()), "-o", f"{folder}/code"],
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=SECONDS,
                    check=False,
                    env={**os.environ, "HIP_PLATFORM": "amd"},  # where there is an nvcc, too, it would be that
                )
            except subprocess.TimeoutExpired:
                raise MachineError(f"hipcc has not compiled {file} after {SECONDS:.0f} s") from None
            if done.returncode:
                raise CompileError(done.stderr.replace(str(file.resolve()), str(file)))
            for made in Path(folder).iterdir():  # one for the architecture, however hipcc names it
                if (code := made.read_bytes()).startswith(b"\x7fELF"):
                    used |= kernels_of(code)
    return used


@cache
def _known_to(nvcc: str) -> frozenset[str]:
    listed = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=False).stdout
    return frozenset(listed.split())


def _by_nvrtc(texts: Sequence[str], name: str, props: DeviceProperties, define: Sequence[str]) -> dict[str, Usage]:
    """What the kernels use, as NVRTC compiles what is the device's. Raises CompileError."""
    compiler = compiler_for(props)
    assert isinstance(compiler, Compiler)
    options = (*NVRTC_OPTIONS, *(f"-D{word}" for word in define), VERBOSE)
    used: dict[str, Usage] = {}
    for text in texts:
        part = devices_part(text)
        _, log = compiler.build(_HEADERS + part + _uses_of_templates(text), Path(name).name, options, props.cc)
        used |= usage(log)
    return used


def _uses_of_templates(text: str) -> str:
    """Variables that name the kernels of templates that are launched with numbers, so that they are compiled, too."""
    names = dict.fromkeys(re.findall(r"(\w+\s*<[\w\s,]*>)\s*<<<", _blanked(text)))
    known = [
        name for name in names if all(word.strip().isdecimal() for word in name[name.index("<") + 1 : -1].split(","))
    ]
    return "".join(f"\n__device__ auto hw4_use_{at} = &{name};" for at, name in enumerate(known))


# ---- Text


def _blanked(text: str) -> str:
    return _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def devices_part(text: str) -> str:
    """Of a program's text what NVRTC compiles: kernels, device functions and variables, types and constants.

    What is the host's becomes empty lines.
    """
    text = _HOSTS.sub("", text)
    plain = _blanked(text)
    directives = _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), plain)
    pieces = []
    for start, end in _items(directives, 0, len(text)):
        head = directives[start:end]
        code = head.strip()
        body = head.find("{")
        declared = head if body < 0 else head[:body]
        if re.match(r"\s*(?:inline\s+)?namespace\b|\s*extern\s+\" *\"\s*\{", head) and body >= 0:
            inner = devices_part(text[start + body + 1 : end - 1])
            pieces.append(text[start : start + body + 1] + inner + "}")
            continue
        keeps = not code or _DEVICES.search(declared) or (_TYPES.match(head) and not re.search(r"\bstd::", head))
        if keeps and not _DEVICES.search(declared) and body >= 0 and re.search(r"\)\s*(?:const\s*)?$", declared):
            keeps = "constexpr" in declared  # a function of the host's
        pieces.append(text[start:end] if keeps else _directives_of(text[start:end]))
    return "".join(pieces)


def _directives_of(text: str) -> str:
    """The lines of the preprocessor, and all others empty."""
    kept = re.findall(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*\n?|[^\n]*\n|[^\n]+$", text, flags=re.M)
    return "".join(line if line.lstrip().startswith("#") else "\n" * line.count("\n") for line in kept)


def _items(plain: str, start: int, end: int) -> list[tuple[int, int]]:
    """Where each declaration begins and ends."""
    items, depth, begin, at = [], 0, start, start
    while at < end:
        letter = plain[at]
        depth += (letter in "({[") - (letter in ")}]")
        at += 1
        if depth == 0 and letter in ";}":
            if letter == "}" and _GOES_ON.match(plain[begin:at]):
                continue
            items.append((begin, at))
            begin = at
    return [*items, (begin, end)] if begin < end else items


def launch_sizes(text: str, define: Sequence[str] = ()) -> dict[str, LaunchSize]:
    """The threads of a block and its dynamic shared memory by the kernel's name, as far as its launches say them in
    numbers, macros, constants and variables that get one value: of several launches the one with the most."""
    plain = _COMMENT.sub(" ", text)
    numbers = {name: value or "1" for name, _, value in (word.partition("=") for word in define)}
    for pattern in _NUMBERS:
        for found in pattern.finditer(plain):
            if len(re.findall(rf"\b{found[1]}\s*(?:[-+*/%|&^]|<<|>>)?=(?!=)", plain)) <= 1:
                numbers.setdefault(found[1], found[2])
    sizes: dict[str, list[LaunchSize]] = {}
    given = [(launch[1], _split(launch[2])) for launch in _LAUNCH.finditer(plain)]
    given += [
        (launch[1], _split(plain[launch.end() : plain.find(";", launch.end())]))
        for launch in _HIPS_LAUNCH.finditer(plain)
    ]
    for kernel, words in given:
        threads = _threads(words[1], plain, numbers) if len(words) > 1 else None
        shared = _number(words[2], numbers) if len(words) > 2 else 0
        known = threads if threads and 0 < threads <= 1024 else None
        sizes.setdefault(kernel, []).append(LaunchSize(known, shared))
    return {name: _largest(launches) for name, launches in sizes.items()}


def _largest(launches: Sequence[LaunchSize]) -> LaunchSize:
    """The most threads and the most shared memory; of either None if no launch says it."""
    threads = [one.threads for one in launches if one.threads]
    shared = [one.shared for one in launches]
    return LaunchSize(max(threads, default=None), None if None in shared else max(n or 0 for n in shared))


def _threads(words: str, text: str, numbers: Mapping[str, str]) -> int | None:
    words = words.strip()
    made = re.fullmatch(r"dim3\s*[({](.*)[)}]", words, re.S)
    if not made and words.isidentifier() and (found := re.search(_DIM3.format(name=words), text, re.S)):
        made = found
    if not made:
        return _number(words, numbers)
    product = 1
    for part in _split(made[1]):
        size = _number(part, numbers)
        if size is None:
            return None
        product *= size
    return product


def _split(words: str) -> list[str]:
    """The parts between commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(words):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(words[begin:at])
            begin = at + 1
    return [*parts, words[begin:]]


def _number(words: str, numbers: Mapping[str, str], depth: int = 0) -> int | None:
    """The value of an expression of numbers and named constants, None if it is none."""
    try:
        sized = _SIZEOF.sub(lambda match: str(_BYTES.get(" ".join(match[1].split()), match[1])), words)
        text = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", _CAST.sub("", sized))
        return _value(ast.parse(text.strip().replace("/", "//"), mode="eval").body, numbers, depth)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _value(node: ast.expr, numbers: Mapping[str, str], depth: int) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in numbers and depth < 20:
        return _number(numbers[node.id], numbers, depth + 1)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, numbers, depth), _value(node.right, numbers, depth)
        made = ast.Div if isinstance(node.op, ast.FloorDiv) else type(node.op)
        if left is not None and right is not None and made in _OPERATORS:
            return int(_OPERATORS[made](left, right))
    return None


def plain_name(symbol: str) -> str:
    """A kernel's name without its namespaces and parameters: attention of _Z9attentionPKfi."""
    match = re.match(r"_ZN?(?:[KVr])*((?:\d+\w+)+)", symbol)
    rest, name = match[1] if match else "", symbol
    while found := re.match(r"(\d+)", rest):
        length = int(found[1])
        if length > len(rest) - len(found[1]):
            break
        name = rest[found.end() : found.end() + length]
        rest = rest[found.end() + length :]
        if not symbol.startswith("_ZN"):
            break
    return name
