"""What Python packs for a launch is what the kernel reads: each member of each parameter struct, by its name.

The structs are taken from the kernels' own texts and laid out by a compiler; a member that is new, gone, moved or of
another size in one of the two languages fails here.
"""

import re
import struct
import subprocess
from dataclasses import dataclass, replace

import pytest
from helpers import ROOT
from needs import needs

from hw4cli.plans import choice, columns, gradients, kernels16, tables
from hw4cli.plans.backward import Arrays as GradientArrays
from hw4cli.plans.backwardcut import Cut
from hw4cli.plans.half import LOG2E, Arrays
from hw4cli.plans.launch import Matrix, absmax_arguments
from hw4cli.plans.launch import arguments as float32_arguments
from hw4cli.plans.limits import CLASSES, Limits
from hw4cli.plans.plan import DEVICES
from hw4cli.plans.registry import VARIANTS
from hw4cli.plans.scoring import Heads, scoring
from hw4cli.problem.scores import Named, Score
from hw4cli.problem.workload import Span, Workload

pytestmark = needs("g++")

DEFINITION = r"^(?:template <class T> )?struct (?:alignas\(\d+\) )?(\w+)(?: : ([\w, ]+?))? \{{(.*?)\}};"
STRUCTS = re.compile(DEFINITION.format(), re.MULTILINE | re.DOTALL)
HOST = """
#include <cstddef>
#include <cstdio>
#include <type_traits>
typedef unsigned short Element;
struct float2 {{ float x, y; }};
struct float4; struct QueryScale; struct KeyScale; struct Span;
constexpr int MOST = {most}, SCORE_VIEWS = {views}, MOST_WORDS = {words}, LIMITED = {limited}, CLASSES = {classes};
{structs}
template <class T> using Of = std::remove_reference_t<T>;  // what an element of an array is
template <class T> const char* code() {{
    if (std::is_pointer<T>()) return "Q";
    if (std::is_same<T, double>()) return "d";
    return std::is_same<T, float>() ? "f" : sizeof(T) == 8 ? "q" : sizeof(T) == 4 ? "i" : "128s";
}}
int main() {{
    static {name} p;
#define SHOW(member) \\
    std::printf("%s %zu %s\\n", #member, size_t((char*)&p.member - (char*)&p), code<Of<decltype(p.member)>>());
{shown}
    std::printf("%zu\\n", sizeof p);
}}
"""


VIEWS = 2  # that a score names


def text_of(file, scored, chosen=False):
    """A kernel's file without comments, with or without what is there for scores, or a choice, alone."""
    text = re.sub(r"//[^\n]*", "", (ROOT / "kernels" / file).read_text())
    for macro, holds in (("SCORED", scored), ("CHOSEN", chosen)):
        text = re.sub(rf"^#if {macro}$(.*?)^#endif$", r"\1" if holds else "", text, flags=re.MULTILINE | re.DOTALL)
    return text


@dataclass
class Struct:
    """A struct of the kernels: its text, the structs that it is made of, and its members in order, theirs in their
    places."""

    text: str
    parts: set[str]
    members: list[str]


def structs_in(files, scored, chosen=False):
    """The structs of some files, by name."""
    found = {}
    for file in files:
        for match in STRUCTS.finditer(text_of(file, scored, chosen)):
            name, bases, body = match.groups()
            if "(" in body:  # with functions: none that is passed
                continue
            parts = set(re.findall(r"\w+", bases or ""))
            members = [member for base in re.findall(r"\w+", bases or "") for member in found[base].members]
            for declared in re.findall(r"\s*([^;]+);", body):
                kind, names = re.fullmatch(
                    r"((?:const )?(?:unsigned )?(?:long long|\w+(?:<[\w ]+>)?)\s*\**)\s+(.+)", declared
                ).groups()
                inner = None if kind.endswith("*") else found.get(re.match(r"\w+", kind)[0])
                parts |= {word for word in re.findall(r"\w+", kind) if word in found}
                for one in re.split(r",\s*", names):
                    array = re.fullmatch(r"(\w+)\[(\w+)\]", one)
                    sizes = {"MOST": columns.MOST, "SCORE_VIEWS": VIEWS, "MOST_WORDS": tables.MOST_WORDS}
                    sizes |= {"LIMITED": choice.LIMITED, "CLASSES": CLASSES}
                    size = array and (int(array[2]) if array[2].isdigit() else sizes.get(array[2], 1))
                    places = [f"{array[1]}[{n}]" for n in range(size)] if array else [one]
                    deeper = inner.members if inner and inner.members != ["opaque[0]"] else None
                    members += [f"{place}.{m}" for place in places for m in deeper] if deeper else places
            if name == "TensorMap":
                members = ["opaque[0]"]  # one opaque value
            found[name] = Struct(match[0], parts, members)
    return found


def texts_for(name, structs):
    """The definitions that a struct needs, in their order, and its own."""
    wanted = {name}
    for other in reversed(structs):
        if other in wanted:
            wanted |= structs[other].parts
    return "\n".join(one.text for other, one in structs.items() if other in wanted)


def layout(name, files, folder, scored=False, chosen=False):
    """Of each member of a struct its offset and its code of Python's struct module; and the size of the whole."""
    structs = structs_in(files, scored, chosen)
    shown = "\n".join(f"    SHOW({member})" for member in structs[name].members)
    numbers = {"most": columns.MOST, "views": VIEWS, "words": tables.MOST_WORDS}
    numbers |= {"limited": choice.LIMITED, "classes": CLASSES}
    source = HOST.format(**numbers, structs=texts_for(name, structs), name=name, shown=shown)
    (folder / "layout.cpp").write_text(source)
    subprocess.run(["g++", "-std=c++17", "-w", "layout.cpp", "-o", "layout"], cwd=folder, check=True)
    printed = subprocess.run([folder / "layout"], capture_output=True, text=True, check=True).stdout.splitlines()
    return {member: (int(at), code) for member, at, code in map(str.split, printed[:-1])}, int(printed[-1])


def passed(data, name, files, folder, scored=False, chosen=False):
    """The values of a struct's members in what a launch passes, which is as long as the struct."""
    members, size = layout(name, files, folder, scored, chosen)
    assert len(data) == size
    return {member: struct.unpack_from(f"<{code}", data, at)[0] for member, (at, code) in members.items()}


def matrix(n):
    """A matrix, no number of which is another one's."""
    return Matrix(1000 * n, 1000 * n + 64, 1000 * n + 128, 1000 * n + 192)


def members_of(name, m):
    return {f"{name}.{word}": getattr(m, word) for word in ("data", "batch", "head", "row")}


def encode(box):
    """A tensor map that says which tensor and which box it is of."""
    return struct.pack("<Q4i", box.address, *box.box).ljust(128, b"\0")


def tensor(m, *box):
    return struct.pack("<Q4i", m.data, *box).ljust(128, b"\0")


@needs("g++")
def test_float32(tmp_path):
    shape = Workload.one_head(3, 700, 64, Nq=300, causal=True)
    plan = VARIANTS["split"].plan(shape, DEVICES[80])
    q, k, v, o = map(matrix, range(1, 5))
    data = float32_arguments(plan, replace(shape, scale=0.375, window=33), (q, k, v, o), 1 << 40, lse=77, offset=55)
    at = plan.layout
    assert passed(data, "Params", ["params.cuh"], tmp_path) == {
        **{
            key: value
            for name, m in zip("qkvo", (q, k, v, o), strict=True)
            for key, value in members_of(name, m).items()
        },
        **{"lse": 77, "scratch": 1 << 40, "absmax": 1 << 40, "tiles": (1 << 40) + at.tiles},
        **{"row_stats": (1 << 40) + at.row_stats, "partial_o": (1 << 40) + at.partial_o},
        **{"batches": 3, "heads": 1, "Nq": 300, "Nk": 700, "splits": plan.splits, "scale": 0.375, "causal_offset": 55},
        "window": 33,
    }


HALF = ["params.cuh", "hopper.cuh", "halfrows.cuh", "halfgroup.cuh"]
WORK = Workload("float16", 2, 12, 4, 300, 900, 64, causal=True, offset=600, scale=0.125)
FEW = Workload("float16", 2, 12, 4, 100, 90, 64, scale=0.125)
WINDOW = 250


def work_members(work, plan, row_tiles, tiles):
    """HalfWork, but for what is computed from the scale."""
    return {
        **members_of("o", matrix(4)),
        **{"lse": 5000, "heads": 12, "group": 3, "batch_heads": 24, "Nq": work.Nq, "Nk": work.Nk},
        **{"causal_offset": work.offset, "row_tiles": row_tiles, "tiles": tiles, "splits": plan.splits},
        **{"lse_rows": work.Nq, "sequences": 0, "window": WINDOW},
    }


@pytest.mark.parametrize(
    ("kernel", "work", "name"),
    [
        ("half", WORK, "HalfParams"),
        ("half", FEW, "HalfShortParams"),
        ("half_mma", WORK, "HalfMmaParams"),
        ("half_split", WORK, "HalfSplitParams"),
        ("half_cores", WORK, "HalfCoresParams"),
    ],
)
def test_sixteen_bits(kernel, work, name, tmp_path):
    plan = kernels16.plan16(work, DEVICES[90], kernel)
    q, k, v, o = map(matrix, range(1, 5))
    data = kernels16.arguments16(replace(work, window=WINDOW), plan, Arrays(q, k, v, o, 5000, 6000), encode)
    found = passed(data, name, [*HALF, f"{plan.source}.cu"], tmp_path)
    if name == "HalfShortParams":
        found = {member.removeprefix("work."): value for member, value in found.items()}
    BR, BC, packed = plan.macros["BR"], plan.macros["BC"], kernel == "half_split"
    row_tiles = -(-(3 * work.Nq if packed else work.Nq) // BR)
    expected = work_members(work, plan, row_tiles, (8 if packed else 24) * row_tiles)
    if name in ("HalfParams", "HalfShortParams"):
        expected |= {"q": tensor(q, 64, BR, 1, 1), "k": tensor(k, 64, BC, 1, 1), "v": tensor(v, 64, BC, 1, 1)}
    else:
        expected |= {key: value for n, m in (("q", q), ("k", k), ("v", v)) for key, value in members_of(n, m).items()}
    if name == "HalfShortParams":
        assert found.pop("o") == tensor(o, 64, 64, 1, 1)
    if name == "HalfParams":
        expected |= {"to": tensor(o, 64, 64, 1, 1), "taken": 6000}
    if packed:
        expected |= {"partial_o": 6000, "partial_lse": 6000 + plan.layout.row_stats}
    assert (found.pop("section") == 0) == packed
    assert found.pop("scale") == pytest.approx(0.125 * LOG2E)
    assert (found.pop("unscale"), found.pop("room")) == pytest.approx((8 / LOG2E, 15 * 8 / LOG2E))
    assert found == expected


ARRAYS = GradientArrays(tuple(map(matrix, range(1, 9))), 9000, 1 << 20)
NAMES = ("q", "k", "v", "o", "dO", "dq", "dk", "dv")
TABLES = "query_stride", "key_stride", "query_spans", "key_spans", "dq_spans", "dkdv_spans"  # of PiecesParams
BACKWARD = {
    **{key: value for n, m in zip(NAMES, ARRAYS.matrices, strict=True) for key, value in members_of(n, m).items()},
    **{
        "lse": 9000,
        "lse_batch": 12 * 300,
        "lse_head": 300,
        "delta": 1 << 20,
        "batches": 2,
        "heads": 12,
        "kv_heads": 4,
        "Nq": 300,
        "Nk": 900,
    },
    **{"causal_offset": 600, "scale": 0.125, "whole": 1, "window": WINDOW},
}


def test_gradients_on_cuda_cores(tmp_path):
    plan = gradients.plan(WORK, DEVICES[80], "backward")
    data = gradients.arguments(plan, replace(WORK, window=WINDOW), ARRAYS, encode)
    assert passed(data, "BackwardParams", ["params.cuh", "gradients.cuh"], tmp_path) == BACKWARD


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gradients_by_tensor_cores(dtype, tmp_path):
    work = replace(WORK, dtype=dtype)
    plan = gradients.plan(work, DEVICES[80], "backward_mma")
    data = gradients.arguments(plan, replace(work, window=WINDOW), ARRAYS, encode)
    found = passed(data, "PiecesParams", ["params.cuh", "gradients.cuh", "backward_mma.cu"], tmp_path)
    assert {name: found.pop(name) for name in BACKWARD} == BACKWARD
    pieces = {name: [found.pop(f"{name}_pieces.{word}") for word in ("data", "batch", "head", "row")] for name in "qkv"}
    pieces["dO"] = [found.pop(f"dO_pieces.{word}") for word in ("data", "batch", "head", "row")]
    row, queries, keys = 128, 300, 900  # hi and lo of a row, one after the other
    strides = [
        [heads * rows * row, rows * row, row] for heads, rows in ((12, queries), (4, keys), (4, keys), (12, queries))
    ]
    if dtype == "float32":
        assert [one[1:] for one in pieces.values()] == strides
    else:
        assert [one[0] for one in pieces.values()] == [ARRAYS.matrices[n].data for n in (0, 1, 2, 4)]
    addresses = [found.pop(name) for name in ("query_scales", "key_scales", "rows")]
    assert addresses[0] == 1 << 20
    assert addresses == sorted({*addresses})
    assert found == {"query_tiles": 10, "key_tiles": 29} | dict.fromkeys(TABLES, 0)


# The rows and keys of one batch of WORK.
SPANS = tuple(Span(0, 100 * n, 100, 300 * n, 300, 200, 5 + n) for n in range(3))


def entries_of(plan):
    """The rows of a plan's table of sequences, as Span in kernels/spans.cuh has its numbers."""
    return [*struct.iter_unpack("<12i", plan.table)]


def test_tables_of_sequences_by_tensor_cores(tmp_path):
    work = replace(WORK, dtype="float32", batch=1, sequences=SPANS)
    plan = gradients.plan(work, DEVICES[80], "backward_mma")
    data = gradients.arguments(plan, work, ARRAYS, encode)
    found = passed(data, "PiecesParams", ["params.cuh", "gradients.cuh", "backward_mma.cu"], tmp_path)
    assert [found[name] for name in ("batches", "query_stride", "key_stride")] == [1, 3 * 4, 3 * 10]
    first = ARRAYS.scratch + plan.layout.sequences
    places = [(found[name] - first) // 48 for name in TABLES[2:]]
    owned = 16 * plan.macros["DQ_WARPS"] * plan.macros["DQ_MI"]
    assert places == [0, 12, 12 + 30, 12 + 30 + 3 * -(-100 // owned)]
    entries = entries_of(plan)
    assert entries[4] == (0, 100, 100, 300, 300, 200, 6, 4, 4, 4, 10, 0) == entries[7]
    assert entries[12 + 29] == (0, 200, 100, 600, 300, 200, 7, 20, 10, 8, 20, 0)


def test_tables_of_sequences_by_warpgroups(tmp_path):
    """The sequences of the most rows first, where blocks own keys."""
    spans = (Span(0, 0, 10, 0, 300, 0), Span(0, 10, 290, 300, 129, 0))
    work = replace(WORK, batch=1, sequences=spans)
    plan = gradients.plan(work, DEVICES[90], "backward_once")
    data = gradients.arguments(plan, work, ARRAYS, encode)
    found = passed(data, "TiledParams", ["params.cuh", "hopper.cuh", "backward_wgmma.cuh"], tmp_path)
    tile, first = plan.macros["ONCE_TILE"], ARRAYS.scratch + plan.layout.sequences
    tiles = 1 + -(-290 // tile)
    assert (found["batches"], found["stats_rows"], found["dkdv_tiles"]) == (1, tiles * tile, 5)
    assert found["stats_spans"] == first and (found["dkdv_spans"] - first) // 48 == 2 * tiles
    entries = entries_of(plan)[2 * tiles :]
    assert [one[:9] for one in entries] == [(*spans[1], 0, 2)] * 2 + [(*spans[0], 2, 3)] * 3


@pytest.mark.parametrize("kernel", ["backward_wgmma", "backward_once", "backward_atomic"])
def test_gradients_by_warpgroups(kernel, tmp_path):
    plan = gradients.plan(WORK, DEVICES[90], kernel)
    data = gradients.arguments(plan, replace(WORK, window=WINDOW), ARRAYS, encode)
    files = ["params.cuh", "hopper.cuh", "backward_wgmma.cuh"]
    found = passed(data, "TiledParams", files, tmp_path)
    q, k, v, o, do, dq, dk, dv = ARRAYS.matrices
    keys, queries = (plan.macros.get(name) for name in ("DQ_TILE", "DKDV_TILE"))
    if kernel != "backward_wgmma":
        keys, queries = 64, plan.macros["ONCE_TILE"]
    rows = -(-300 // queries) * queries
    expected = {
        **{f"dq_maps.own[{n}]": tensor(m, 64, 64, 1, 1) for n, m in enumerate((q, do))},
        **{f"dq_maps.streamed[{n}]": tensor(m, 64, keys, 1, 1) for n, m in enumerate((k, v))},
        **{f"dkdv_maps.own[{n}]": tensor(m, 64, 64, 1, 1) for n, m in enumerate((k, v))},
        **{f"dkdv_maps.streamed[{n}]": tensor(m, 64, queries, 1, 1) for n, m in enumerate((q, do))},
        **{
            key: value
            for n, m in (("o", o), ("d_o", do), ("dq", dq), ("dk", dk), ("dv", dv))
            for key, value in members_of(n, m).items()
        },
        **{"stats_map": tensor(Matrix(1 << 20, 0, 0, 0), 64, queries // 16, 1, 1), "stats": 1 << 20},
        **{"lse": 9000, "lse_batch": 12 * 300, "lse_head": 300},
        **{"batches": 2, "heads": 12, "kv_heads": 4, "Nq": 300, "Nk": 900, "stats_rows": rows, "causal_offset": 600},
    }
    cut = Cut(*plan.cut) if plan.cut else Cut(8)
    expected |= {
        "split_from": cut.first,
        "split_heads": cut.heads,
        "split_rows": cut.rows,
        "chains": cut.chains,
        "scale": 0.125,
        "window": WINDOW,
    }
    at = plan.layout
    expected |= dict.fromkeys(("stats_spans", "dq_spans", "dkdv_spans", "dq_tiles", "dkdv_tiles"), 0)
    sums = (at.partial_o, at.tiles, at.row_stats) if plan.cut else (-(1 << 20),) * 3
    expected |= {name: (1 << 20) + start for name, start in zip(("parts", "dq_sums", "counts"), sums, strict=True)}
    assert found.pop("section") >= 1
    assert found.pop("log2_scale") == pytest.approx(0.125 * LOG2E)
    assert found == expected


NAMED = (Named("slopes", "float32", (12,), (1,)), Named("mask", "bool", (2, 12, 300, 900), (7, 0, 900, 1)))
OF_SCORE = Score("s - slopes[h]", "mask[b, h, i, j]", NAMED)
SCORING = {
    **{"scale": 0.125, "first_batch": 0, "heads": 12, "first_head": 0, "head_step": 1, "Nq": 300, "Nk": 900},
    **{"gradient_row": 900, "gradient_head": 300 * 900},
    **{"views[0].data": 71, "views[1].data": 72},
    **{f"views[0].strides[{n}]": size for n, size in enumerate((1, 0, 0, 0))},
    **{f"views[1].strides[{n}]": size for n, size in enumerate((7, 0, 900, 1))},
    **{f"views[0].sizes[{n}]": size for n, size in enumerate((12, 0, 0, 0))},
    **{f"views[1].sizes[{n}]": size for n, size in enumerate((2, 12, 300, 900))},
}


def scoring_of(found, gradient=0):
    """What is passed of a score, by its members' names, and nothing else."""
    values = {name.partition("scoring.")[2]: value for name, value in found.items() if "scoring." in name}
    assert values.pop("gradient") == gradient
    return values


@pytest.mark.parametrize(
    ("kernel", "work", "name"),
    [
        ("half", WORK, "HalfParams"),
        ("half", replace(FEW, Nq=100, Nk=90), "HalfShortParams"),
        ("half_mma", WORK, "HalfMmaParams"),
        ("half_split", WORK, "HalfSplitParams"),
        ("half_cores", WORK, "HalfCoresParams"),
    ],
)
def test_scores_of_sixteen_bits(kernel, work, name, tmp_path):
    short = name == "HalfShortParams"  # which auto takes for scores that name no arrays
    work = replace(work, score=Score("2 * s") if short else OF_SCORE)
    plan = kernels16.plan16(work, DEVICES[90], kernel)
    views = () if short else (71, 72)
    data = kernels16.arguments16(work, plan, Arrays(*map(matrix, range(1, 5)), 5000, 6000, views), encode)
    if short:
        assert len(data) % 64 == 0
        return
    found = passed(data, name, ["score.cuh", *HALF, f"{plan.source}.cu"], tmp_path, scored=True)
    assert scoring_of(found) == SCORING
    assert (found["heads"], found["Nk"]) == (12, 900)
    line = (
        0.125 if kernel == "half" else 1
    )  # which leaves the products as they are; else the scores have theirs already
    assert found["scale"] == pytest.approx(LOG2E * line)


def test_half_is_passed_the_constants_of_a_softcap(tmp_path):
    work = replace(WORK, score=Score("30.0 * tanh(s / 30.0)", "mask[b, h, i, j] and slopes[h] > 0", NAMED))
    plan = kernels16.plan16(work, DEVICES[90], "half")
    data = kernels16.arguments16(work, plan, Arrays(*map(matrix, range(1, 5)), 5000, 6000, (71, 72)), encode)
    found = passed(data, "HalfParams", ["score.cuh", *HALF, "half.cu"], tmp_path, scored=True)
    assert (plan.macros["SCORE_TANH"], plan.defines["SCORE_CORE"]) == (1, "score_tanh(s)")
    assert found["scoring.scale"] == pytest.approx(0.125 / 30)
    assert found["scale"] * found["unscale"] == pytest.approx(1) and found["scale"] == pytest.approx(30 * LOG2E)


@pytest.mark.parametrize("kernel", ["backward", "backward_mma", "backward_wgmma", "backward_once", "backward_atomic"])
def test_scores_of_gradients(kernel, tmp_path):
    wanted = kernel in ("backward", "backward_mma")
    work = replace(WORK, score=replace(OF_SCORE, gradient=wanted))
    plan = gradients.plan(work, DEVICES[90], kernel)
    arrays = ARRAYS._replace(views=(71, 72), scores=73 * wanted)
    data = gradients.arguments(plan, work, arrays, encode)
    files = {"backward": ["gradients.cuh"], "backward_mma": ["gradients.cuh", "backward_mma.cu"]}
    name = {"backward": "BackwardParams", "backward_mma": "PiecesParams"}.get(kernel, "TiledParams")
    of_kernel = files.get(kernel, ["hopper.cuh", "backward_wgmma.cuh"])
    found = passed(data, name, ["score.cuh", "params.cuh", *of_kernel], tmp_path, scored=True)
    assert scoring_of(found, 73 * wanted) == SCORING


def test_scores_of_float32(tmp_path):
    shape = replace(Workload.one_head(3, 900, 64, Nq=300), score=OF_SCORE, scale=0.125)
    plan = VARIANTS["flash"].plan(shape, DEVICES[80])
    given = scoring(shape, (71, 72), heads=Heads(4, 2, 3))
    data = float32_arguments(plan, shape, tuple(map(matrix, range(1, 5))), 1 << 40, scoring=given)
    found = passed(data, "Params", ["score.cuh", "params.cuh"], tmp_path, scored=True)
    assert scoring_of(found) == {**SCORING, "heads": 4, "first_head": 2, "head_step": 3}


def test_copies_of_columns(tmp_path):
    source, target = Matrix(1, 2, 3, 4, 5), Matrix(6, 7, 8, 9, 10)
    one = columns.Copied(source, target, 11, 12, 1300, 14, 16)
    found = passed(columns.arguments([one, one]), "CopyParams", ["columns.cu"], tmp_path)
    words = ("data", "batch", "head", "row", "column")
    expected = {
        **{f"from.{word}": n for n, word in enumerate(words, 1)},
        **{f"to.{word}": n for n, word in enumerate(words, 6)},
        **{"blocks": one.blocks, "heads": 12, "rows": 1300, "block_rows": 256, "given": 14, "columns": 16},
    }
    for n in range(columns.MOST):
        filled = expected if n < 2 else dict.fromkeys(expected, 0)
        assert {name: found[f"of[{n}].{name}"] for name in expected} == filled
    assert len(found) == columns.MOST * len(expected)


def test_the_range_check(tmp_path):
    found = passed(absmax_arguments(1 << 40, 1 << 41, 70, 64, 2), "AbsmaxParams", ["absmax.cu"], tmp_path)
    assert found == {"elements": 1 << 40, "largest": 1 << 41, "N": 70, "d": 64, "first_part": 2}


def test_a_choice_between_kernels(tmp_path):
    some = [Limits(n + 0.5, n + 1.5, n + 2.5, n + 3.5, tuple(n + 8.5 + m for m in range(CLASSES))) for n in (0, 100)]
    found = passed(choice.arguments(1 << 40, 0.75, 60, some), "ChoiceParams", ["choice.cu"], tmp_path)
    at = {"found": 1 << 40, "choice": (1 << 40) + choice.CHOICE_AT}
    assert {name: found.pop(name) for name in (*at, "ratio", "d", "kernels")} == {
        **at,
        **{"ratio": 0.75, "d": 60, "kernels": 2},
    }
    for n in range(choice.LIMITED):
        element, squares, usual, least, most = some[n] if n < len(some) else (0, 0, 0, 0, (0,) * CLASSES)
        of = {"element": element, "squares": squares, "usual": usual, "least_v": least}
        of |= {f"most_v[{m}]": one for m, one in enumerate(most)}
        assert {name: found.pop(f"of[{n}].{name}") for name in of} == of
    assert found == {}


def test_a_kernel_of_which_the_gpu_chooses_knows_its_number(tmp_path):
    shape = Workload.one_head(3, 700, 64)
    plan = VARIANTS["flash"].plan(shape, DEVICES[80])
    data = float32_arguments(plan, shape, tuple(map(matrix, range(1, 5))), 1 << 40)
    found = passed(data + choice.members(1 << 41, 3), "Params", ["params.cuh"], tmp_path, chosen=True)
    assert (found["choice"], found["number"]) == ((1 << 41) + choice.CHOICE_AT, 3)


def test_tables_are_cut_into_what_launches_are_passed(tmp_path):
    table = struct.pack("<1500i", *range(1500))
    parts = [passed(one, "TablePart", ["tablewriter.cu"], tmp_path) for one in tables.written(table, 1 << 40)]
    assert [(one["to"], one["words"]) for one in parts] == [(1 << 40, 1004), ((1 << 40) + 4016, 496)]
    words = [one[f"word[{n}]"] for one in parts for n in range(one["words"])]
    assert words == [*range(1500)]


def test_every_kernels_parameters_are_tested_here():
    declared = {
        name
        for path in (ROOT / "kernels").glob("*.cu*")
        for name in re.findall(
            r"__global__[^(;]*(?:\([^)]*\))?[^(;]*\((?:const )?(?:__grid_constant__ )?(?:const )?(\w+) p\)",
            path.read_text(),
        )
    }
    tested = {"Params", "HalfParams", "HalfShortParams", "HalfMmaParams", "HalfSplitParams", "HalfCoresParams"}
    tested |= {"AbsmaxParams", "ChoiceParams"}
    assert declared == {*tested, "BackwardParams", "PiecesParams", "TiledParams", "CopyParams", "TablePart"}


def test_scores_of_other_sequences_are_those_of_another_number_and_nothing_is_compiled_for_them(tmp_path):
    first = replace(WORK, score=OF_SCORE)
    third = replace(WORK, score=replace(OF_SCORE, first=3))
    plans = [gradients.plan(work, DEVICES[80], "backward") for work in (first, third)]
    assert plans[0].options == plans[1].options
    found = [
        passed(
            gradients.arguments(plan, work, ARRAYS._replace(views=(71, 72)), encode),
            "BackwardParams",
            ["score.cuh", "params.cuh", "gradients.cuh"],
            tmp_path,
            scored=True,
        )
        for plan, work in zip(plans, (first, third), strict=True)
    ]
    assert found[0] | {"scoring.first_batch": 3} == found[1]
