"""A program's text as symbols that stay the same when names, comments, numbers or the format change.

A symbol stands for a keyword, a sign, or a name that a program cannot choose (threadIdx, cudaMalloc, expf). All other
names are one symbol, so are all numbers, and all types. HIP's names are CUDA's. What can be added or left out without
an effect is none: braces, semicolons, const, static, #include, #pragma.
"""

import re
import zlib
from collections.abc import Iterator
from functools import lru_cache

TOKEN = re.compile(
    r"""
    (?P<comment> //(?:[^\n\\]|\\.|\\\n)* | /\*.*?(?:\*/|\Z) )
    | (?P<directive> ^[ \t]*\#[ \t]*(?:include|pragma|line|error|warning)\b(?:[^\n\\]|\\.|\\\n)* )
    | (?P<raw> (?:u8|[uUL])?R"(?P<end>[^()\\\s]{0,16})\(.*?(?:\)(?P=end)"|\Z) )
    | (?P<text> (?:u8|[uUL])?"(?:[^"\\\n]|\\.|\\\n)*"? | '(?:[^'\\\n]|\\.)+' )
    | (?P<number> \.?\d(?:[eEpP][+-]|'?[\w.])* )
    | (?P<name> [^\W\d]\w* )
    | (?P<sign> <<<|>>>|<<=|>>=|->|\+\+|--|<<|>>|[<>=!]=|&&|\|\||[-+*/%&|^]=|::|[^\s\w] )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYWORDS = _words(
    """asm break case catch class continue default define defined delete do elif else endif enum explicit false for
    friend goto if ifdef ifndef namespace new nullptr operator private protected public return sizeof struct switch
    template this throw true try typedef typename undef union using virtual while"""
)
TYPES = _words(
    """auto bool char double float int long short void wchar_t size_t ssize_t ptrdiff_t uint FILE dim3 half __half
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t float2 float3 float4 int2 int4 uint2 uint4"""
)
WITHOUT_EFFECT = _words(
    """const constexpr extern inline mutable noexcept register restrict signed static std unsigned volatile
    __forceinline__ __noinline__ __restrict __restrict__ { } ;"""
)
# Names of libraries; those of CUDA and HIP are known by how they begin.
GIVEN = _words(
    """atomicAdd blockDim blockIdx calloc exit exp exp2f expf fabs fabsf fclose fmaf fmax fmaxf fmin fminf fopen fprintf
    fread free fwrite gridDim main malloc max memcpy memset min printf rsqrtf sqrt sqrtf threadIdx vector warpSize"""
)
OF_CUDA = re.compile(r"(?:cuda|hip)(?=[A-Z])|__(?=\w)")
NAME, NUMBER, TYPE, TEXT = "a name", "a number", "a type", "a text"


NOTHING = 0


def symbols(text: str) -> Iterator[tuple[int, int]]:
    """The symbols of a text as 32-bit numbers, each with its line, from 1 on."""
    line, counted = 1, 0
    for found in TOKEN.finditer(text):
        if found.lastgroup in ("comment", "directive"):
            continue
        symbol = _symbol(found.lastgroup or "", found.group())
        if symbol != NOTHING:
            start = found.start()
            line += text.count("\n", counted, start)
            counted = start
            yield symbol, line


@lru_cache(maxsize=1 << 16)
def _symbol(kind: str, word: str) -> int:
    """The symbol of a piece of a text; NOTHING if it has none."""
    if word in WITHOUT_EFFECT:
        return NOTHING
    symbol = {"number": NUMBER, "text": TEXT, "raw": TEXT}.get(kind, word)
    if kind == "name":
        if word in TYPES:
            symbol = TYPE
        elif OF_CUDA.match(word):
            symbol = f"cuda{word[3:]}" if word.startswith("hip") else word
        elif word not in KEYWORDS and word not in GIVEN:
            symbol = NAME
    return zlib.crc32(symbol.encode())
