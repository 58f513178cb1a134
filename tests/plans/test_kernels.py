"""The kernels without a GPU: their entries' arithmetic, and what NVRTC makes of them for each architecture."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from helpers import ROOT
from slow import quick_of_each, slow, slow_of_each, slowly

from hw4cli.device.nvrtc import Compiler, find
from hw4cli.errors import MachineError
from hw4cli.plans.bounds import PROVEN
from hw4cli.plans.choice import chosen
from hw4cli.plans.common import converters_of
from hw4cli.plans.formulas import converters
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES, DeviceProperties
from hw4cli.problem.suite import cases
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_source, spliced

# By its path: what imports an NVRTC by name gets the one that is loaded, which may be that of another test's CUDA 12.
LIBRARY = find(13000, 90)
if LIBRARY is None:
    pytest.skip("needs the NVRTC of CUDA 13 (pip install 'hw4cli[dev]')", allow_module_level=True)
COMPILER = Compiler(LIBRARY, 13000, 90)

COMPILED_FOR = [75, 80, 86, 89, 90, 100, 120]  # NVRTC 13 no longer knows the GTX 1080's 61
HEAD_SIZES = [4, 32, 36, 64, 100, 128]
# Compiling takes long: kernels without a proven bound, which nobody's file needs, have all sizes on two architectures;
# and a kernel with another's name in front of its own, which differs from that in one thing, on none.
FEWER_SIZES, ALL_SIZES_ON = [64, 128], (75, 90)
TWIN = 86  # of 89: the same plans, and machine code that takes as much


def compiled(name, cc, macros):
    """Per kernel of a file: registers and bytes spilled, as ptxas prints them; and the whole log."""
    options = ("-std=c++17", "-ftz=true", "--ptxas-options=-v", *macros)  # an architecture may be among the macros
    _, log = COMPILER.build(kernel_source(name), f"{name}.cu", (f"-arch=sm_{cc}", *options), cc)
    kernels = re.findall(
        r"Function properties for (\w+)\n[^\n]* (\d+) bytes spill stores, (\d+) bytes spill loads"
        r".*?Used (\d+) registers",
        log,
        re.DOTALL,
    )
    return {name: (int(registers), int(stores) + int(loads)) for name, stores, loads, registers in kernels}, log


SUPPORTED = [(name, cc) for name, variant in VARIANTS.items() for cc in DEVICES if cc >= variant.least_cc]


# Files of other strategies than the one that is called after the kernel.
STRATEGIES = {file for variant in VARIANTS.values() for file in variant.strategies}

OLD_COMPILER = replace(DEVICES[90], warpgroups=False)  # NVRTC before 12.9
COMPILED = [(name, DEVICES[cc]) for name, cc in SUPPORTED if cc in COMPILED_FOR]


PARTS = 4  # of the shapes of a kernel with a proven bound, which has most: a test each
QUICK = [
    (name, props, 0) for name, props in COMPILED if props.cc == 90 and name in ("naive", "float4", "halfwarp_local")
]
REST = [
    (name, props, part)
    for name, props in [*COMPILED, ("split", OLD_COMPILER)]
    for part in range(PARTS if name in PROVEN else 1)
]


@slow_of_each(40)
@pytest.mark.parametrize(
    ("name", "props", "part"),
    [*QUICK, *(slowly(one) for one in REST if one not in QUICK)],
    ids=lambda x: getattr(x, "cc", x),
)
def test_every_kernel_compiles_without_spills_and_its_blocks_fit(name, props, part):
    tiles_follow_N = VARIANTS[name].finds_absmax  # and compiling takes long
    all_sizes = name in PROVEN or (props.cc in ALL_SIZES_ON and "_" not in name)
    sizes = HEAD_SIZES if all_sizes and props.cc != TWIN else FEWER_SIZES
    if tiles_follow_N and props.cc != TWIN:
        sizes, lengths = [32, 36, 64, 128], (128, 2048, 32768)
    else:
        lengths = (32768,)
    shapes = [Shape(1, N, d) for d in sizes for N in lengths]
    if name == "flash" and props.cc != TWIN:  # blocks of fewer rows
        shapes += [Shape(1, N, d) for d in (32, 36, 64, 128) for N in (20, 192)]
        shapes += [Shape(1, 500, d, causal=True) for d in (36, 64)]
    planned = [VARIANTS[name].plan(shape, props) for shape in shapes]
    distinct = list({plan.options: plan for plan in planned}.values())  # several N may have the same
    plans = distinct[part :: PARTS if name in PROVEN else 1]

    def compile_one(plan):
        return compiled(plan.source, props.cc, plan.options)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(compile_one, plans)
    for plan, (kernels, log) in zip(plans, results, strict=True):
        for launch in plan.launches:
            registers, spilled = kernels[launch.symbol]
            assert spilled == 0, f"{launch.symbol} spills {spilled} bytes with {plan.macros}"
            assert registers * launch.block <= 65536
        assert "warning" not in log, log
        assert "Potential Performance Loss" not in log, log  # wgmma, one after the other


# With many batches four groups take turns, and blocks convert: other machine code than for the shapes above.
@slow_of_each(7)
@slow
@pytest.mark.parametrize(("name", "N"), [("split", 600), ("split", 2048), ("split8", 2048)])
@pytest.mark.parametrize("d", range(8, 65, 4))
def test_with_many_batches_split_compiles_without_spills_whatever_d(d, name, N):
    plan = VARIANTS[name].plan(Shape(500, N, d), DEVICES[90])
    kernels, log = compiled(plan.source, 90, plan.options)
    assert {symbol: spilled for symbol, (_, spilled) in kernels.items() if spilled} == {}
    assert "Potential Performance Loss" not in log, log


# Those that the mask brings closest to the end of their registers.
CAUSAL = [("flash", 90, 128), ("split", 80, 128), ("split", 90, 32), ("exact", 80, 64), ("float64", 90, 128)]
CAUSAL += [("split8", 90, 64), ("split8", 80, 64), ("exact", 90, 64), ("split", 90, 64), ("split", 90, 128)]


@slow_of_each(6)
@quick_of_each(1)
@pytest.mark.parametrize("N", [8192, 32768])  # few blocks, and more
@pytest.mark.parametrize(("name", "cc", "d"), CAUSAL)
def test_a_causal_kernel_compiles_without_spills(name, cc, d, N):
    plan = VARIANTS[name].plan(Shape(1, N, d, causal=True), DEVICES[cc])
    kernels, log = compiled(plan.source, cc, plan.options)
    assert {symbol: spilled for symbol, (_, spilled) in kernels.items() if spilled} == {}, plan.macros
    assert "Potential Performance Loss" not in log, log


def test_the_share_of_pairs_that_causal_tiles_compute_is_that_of_their_tiles():
    N, BR, BC = 777, 128, 32
    rows, keys = np.arange(N) // BR * BR + BR - 1, np.arange(N) // BC * BC
    tiles = keys[None, :] <= np.minimum(rows, N - 1)[:, None]
    assert Shape(3, N, 64, causal=True).computed_share(BR, BC) == pytest.approx(tiles.mean(), rel=1e-12)
    assert Shape(3, N, 64).computed_share(BR, BC) == 1


@pytest.mark.parametrize("name", ["flash", "split", "exact"])
def test_causal_keys_are_cut_into_parts_where_one_long_block_would_outlast_the_others(name):
    full, causal = (VARIANTS[name].plan(Shape(1, 8192, 64, causal), DEVICES[90]).splits for causal in (False, True))
    assert causal > full
    assert VARIANTS[name].plan(Shape(1000, 1024, 64, causal=True), DEVICES[90]).splits == 1


@pytest.mark.parametrize("name", VARIANTS)
def test_every_kernel_of_a_file_is_launched_for_some_shape(name):
    shapes = [Shape(B, N, d) for B, N in ((1, 128), (1, 8192), (1000, 2048)) for d in (32, 64)]
    plans = [VARIANTS[name].plan(shape, props) for props in (DEVICES[90], OLD_COMPILER) for shape in shapes]
    for source in {plan.source for plan in plans}:
        launched = {launch.symbol for plan in plans if plan.source == source for launch in plan.launches}
        text = (ROOT / "kernels" / f"{source}.cu").read_text()
        assert set(re.findall(r'extern "C" __global__.*?\b(\w+)\(const Params p\)', text, re.DOTALL)) == launched


def test_every_file_of_a_strategy_is_that_of_some_plan():
    shapes = [Shape(1, N, 64) for N in (128, 8192)]
    plans = [VARIANTS[name].plan(shape, props) for name, props in COMPILED for shape in shapes]
    assert {plan.source for plan in plans} == {*VARIANTS, *STRATEGIES}


def test_a_kernel_of_ones_own_is_one_file_so_that_it_has_the_plans_of_the_others_own_file():
    for shape in (Shape(1, 128, 64), Shape(100, 2048, 64)):
        like = VARIANTS["split"].like("mine.cu", "a kernel of one's own").plan(shape, DEVICES[90])
        assert (like.source, like.macros) == ("mine.cu", VARIANTS["split"].plan(shape, OLD_COMPILER).macros)
        assert like.macros["WARPGROUPS"] == 0


@pytest.mark.parametrize("cc", COMPILED_FOR)
def test_the_range_check_and_the_choice_compile_without_spills(cc):
    kernels = compiled("absmax", cc, ["-DABSMAX_CHUNK=16384"])[0] | compiled("choice", cc, [])[0]
    assert kernels["absmax"][1] == kernels["choice"][1] == 0


@slow_of_each(4)
@slow
@quick_of_each(1)
@pytest.mark.parametrize(
    ("name", "N"), [("flash", 4096), ("split", 128), ("split", 4096), ("exact", 200), ("float64", 70)]
)
@pytest.mark.parametrize("cc", [80, 90])
def test_to_look_whether_it_is_chosen_takes_a_kernel_no_register_more(cc, name, N):
    plan = VARIANTS[name].plan(Shape(8, N, 64), DEVICES[cc])
    alone, one_of_several = (compiled(one.source, cc, one.options)[0] for one in (plan, chosen(plan)))
    assert one_of_several == alone


@pytest.mark.parametrize("name", VARIANTS)
def test_the_gpu_that_is_compiled_for_less_has_the_plans_of_its_twin(name):
    for d in HEAD_SIZES:
        for N in (128, 2048, 32768):
            plans = [VARIANTS[name].plan(Shape(1, N, d), DEVICES[cc]) for cc in (TWIN, 89)]
            assert plans[0].options == plans[1].options


@pytest.mark.parametrize(("name", "cc"), SUPPORTED)
def test_every_launch_is_one_that_the_architecture_can_start(name, cc):
    shapes = [Shape(B, N, d) for B, N in ((1, 1), (3, 129), (70_000, 200), (2, 32768)) for d in range(4, 129, 4)]
    for shape in [*shapes, *(case.shape for case in cases().values()), Shape(1, 32767, 64, causal=True)]:
        plan = VARIANTS[name].plan(shape, DEVICES[cc])
        for launch in plan.launches:
            assert launch.shared <= DEVICES[cc].shared_limit
            assert 32 <= launch.block <= 1024
            assert launch.block % 32 == 0
            assert 1 <= launch.grid < 2**31
        assert plan.splits >= 1
        assert plan.splits == 1 or not plan.macros.get("INBLOCK"), "a block that converts takes all keys"
        assert plan.macros["D"] == shape.d


def test_a_kernels_figures_are_those_of_its_main_launch():
    plan = VARIANTS["split"].plan(Shape(1000, 2048, 64), DEVICES[90])
    assert [launch.symbol for launch in plan.launches] == ["split_convert", "split"]
    assert plan.launches[plan.main].symbol == "split"
    assert VARIANTS["naive"].plan(Shape(1, 8, 64), DEVICES[90]).main == 0


def test_the_reports_grid_of_32_blocks_a_batch_is_right_for_one_length_alone():
    """Blocks of 128 rows: N = 4096 has 32 of them; others have fewer, or rows that no block computes."""
    plans = {N: VARIANTS["halfwarp"].plan(Shape(4, N, 64), DEVICES[61]) for N in (2048, 4096, 4097, 8192)}
    assert {N: plan.launches[0].grid // 4 for N, plan in plans.items()} == {2048: 16, 4096: 32, 4097: 33, 8192: 64}
    odd = plans[4097]
    assert (odd.macros["BR"], odd.launches[0].grid) == (128, 4 * 33)


@pytest.mark.parametrize("N", [513, 600, 1000, 2048, 4096, 8192])
@pytest.mark.parametrize(("BR", "cost"), [(192, 95), (192, 85), (256, 45), (64, 285)])
def test_blocks_convert_where_there_are_batches_enough_and_leave_more_than_a_round_of_tasks_to_all(N, BR, cost):
    """So that the last tasks can be shared out equally."""
    tasks = -(-N // BR)
    for B, ahead in product(range(1, 700, 3), (False, True)):
        found = converters(B, N, N, BR, 64, 132, cost, ahead)
        assert (found.blocks > 0) == (4 * found.first <= B)
        assert found.blocks < 132
        assert tasks * B - found.rounds * (132 - found.blocks) > 132 or not found.blocks


def test_nobody_converts_for_few_batches_few_rows_or_long_keys():
    def blocks(B, rows, N):
        shape = Shape(B, N, 64, Nq=rows)
        plan = VARIANTS["split8"].plan(shape, DEVICES[90])
        return converters_of(shape, plan.macros, plan.splits).blocks

    assert blocks(500, 2048, 2048) == 11
    assert blocks(80, 2048, 2048) == blocks(5000, 384, 2048) == blocks(500, 8200, 8200) == 0


def test_groups_that_take_turns_share_the_registers_that_a_block_is_launched_with():
    """More than the launch grants would never be given: setmaxnreg waits for it."""
    for shape in (Shape(100, 2048, 32), Shape(100, 2048, 64), Shape(10, 8192, 32, causal=True), Shape(2, 600, 8)):
        for tile in (None, {"BR": 128, "BC": 64}, {"BR": 256, "BC": 64}):
            macros = VARIANTS["split"].plan(shape, DEVICES[90], tile).macros
            groups, granted = macros["GROUPS"], 65536 // macros["THREADS"] // 8 * 8
            assert macros["BR"] == 64 * groups
            assert groups * macros["REGISTERS"] + macros["COPY_REGISTERS"] <= (groups + 1) * granted
            assert macros["REGISTERS"] % 8 == macros["COPY_REGISTERS"] % 8 == 0
            assert 24 <= macros["COPY_REGISTERS"] <= granted <= macros["REGISTERS"] <= 240


def test_a_group_alone_leaves_its_copying_warps_whole_units_of_registers():
    macros = VARIANTS["split"].plan(Shape(100, 2048, 64), DEVICES[90], {"BR": 64, "BC": 64}).macros
    assert (macros["GROUPS"], macros["REGISTERS"], macros["COPY_REGISTERS"]) == (1, 240, 40)


def test_three_or_four_groups_take_turns_as_rounds_of_tasks_come_out():
    found = [VARIANTS["split"].plan(Shape(B, 2048, 32), DEVICES[90]).macros["GROUPS"] for B in (1, 10, 20, 100)]
    assert found == [3, 3, 4, 4]


def test_a_thread_that_takes_turns_has_room_for_its_sums_of_the_keys_before():
    for shape in (Shape(100, 2048, 32), Shape(100, 2048, 64)):
        variant = VARIANTS["split"]
        macros = variant.plan(shape, DEVICES[90]).macros
        threads, numbers = 128 * macros["GROUPS"], 64 * macros["WIDTH"] * macros["GROUPS"] + 2 * macros["BR"]
        room = variant.regions(shape.d, macros)["O of keys before"]
        assert room % (16 * threads) == 0
        assert 4 * numbers <= room < 4 * numbers + 16 * threads


def test_q_of_the_next_task_is_brought_ahead_from_1024_keys_on_at_d_64():
    found = [VARIANTS["split"].plan(Shape(100, N, 64), DEVICES[90]).macros["Q_AHEAD"] for N in (1023, 1024)]
    assert found == [0, 1]


def test_exact_has_half_as_many_rows_for_few_keys_where_more_would_spill():
    rows = {cc: VARIANTS["exact"].plan(Shape(10, 200, 64), DEVICES[cc]).macros["BR"] for cc in (80, 90, 100, 120)}
    assert rows == {80: 128, 90: 128, 100: 64, 120: 64}


def test_blocks_stay_where_their_tasks_are_alike():
    alike, causal = (VARIANTS["split"].plan(Shape(100, 8192, 64, causal), DEVICES[90]) for causal in (False, True))
    assert alike.launches[alike.main].grid == DEVICES[90].sms
    assert causal.launches[causal.main].grid > 100 * DEVICES[90].sms / 4


def test_keys_are_split_only_where_too_few_blocks_could_share_out_the_tasks():
    """Tasks of 2.6 rounds of blocks leave some blocks idle; these take parts of tasks, and no launch adds them up."""
    few, many = (VARIANTS["split"].plan(Shape(B, 16384, 64), DEVICES[90]) for B in (1, 4))
    assert few.splits > 1
    assert "split_combine" in [launch.symbol for launch in few.launches]
    assert [launch.symbol for launch in many.launches] == ["split_convert", "split"]
    assert many.macros["BALANCED"] == 1
    assert VARIANTS["split"].plan(Shape(4, 16384, 64, causal=True), DEVICES[90]).macros["BALANCED"] == 0


def test_a_kernel_that_does_not_fit_says_so():
    with pytest.raises(MachineError, match=r"float64 .* needs .* bytes of shared memory"):
        VARIANTS["float64"].plan(Shape(1, 1, 128), DeviceProperties(10, 1, 1000, 1000))


def test_a_kernel_that_the_gpu_is_too_old_for_says_so():
    with pytest.raises(MachineError, match=r"split needs compute capability 8\.0, this GPU has 7\.5"):
        VARIANTS["split"].plan(Shape(1, 1, 64), DEVICES[75])


LABELS = ["Idea:", "Geometry:", "Shared:", "Limits:", "Source:", "Before:"]


@pytest.mark.parametrize("name", [*VARIANTS, *sorted(STRATEGIES)])
def test_a_kernel_file_tells_what_it_teaches(name):
    text = (ROOT / "kernels" / f"{name}.cu").read_text()
    head = text[: text.index("\n\n") if "\n\n" in text else None]
    assert [label for label in LABELS if f"// {label}" in head] == LABELS
    positions = [head.index(f"// {label}") for label in LABELS]
    assert positions == sorted(positions), "labels out of order"
    of_all = (ROOT / "kernels/platform.cuh").read_text().count("static_assert(")
    assert kernel_source(name).count("static_assert(") > of_all, "its own conditions are not asserted"


USES_WGMMA = """
extern "C" __global__ void uses(float* to, unsigned long long a, unsigned long long b) {
    float c[WIDTH / 8][4] = {}, more[4] = {};
    unsigned rows[4] = {threadIdx.x, 1, 2, 3};
    wgmma_fence();
    wgmma(c, rows, b), wgmma(c, a, b), wgmma_rows(c, more, rows, b);
    wgmma_commit(), wgmma_wait<0>(), fence_registers(c);
    for (int n = 0; n < WIDTH / 8; n++)
        for (int e = 0; e < 4; e++) to[(n * 4 + e) * 128 + threadIdx.x] = c[n][e] + more[e];
}
"""


@pytest.mark.parametrize("width", [32, 64, 128])
def test_warpgroups_have_products_of_every_head_size(width):
    path = ROOT / "kernels/wgmma.cuh"
    options = ("-arch=sm_90a", "-std=c++17", "-DWARPGROUPS=1", f"-DWIDTH={width}")
    code = Compiler(find(13000, 90), 13000, 90).compile(
        spliced(path, (path.parent,)) + USES_WGMMA, "uses.cu", options, 90
    )
    assert b"uses" in code


INSTRUCTIONS = {"ptx.cuh", "sixteen.cuh", "mma.cuh", "bulk.cuh", "wgmma.cuh", "hopper.cuh"}


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").glob("*.cu*")), ids=lambda path: path.name)
def test_inline_assembly_is_in_the_headers_of_single_instructions_alone(path):
    """A build for another machine replaces these headers whole. (An empty statement only holds the compiler back.)"""
    statements = re.findall(r'\basm\b[^"]*"(?!")', path.read_text())
    assert not statements or path.name in INSTRUCTIONS


@pytest.mark.parametrize("name", VARIANTS)
def test_a_launch_names_a_symbol_of_the_file(name):
    plan = VARIANTS[name].plan(Shape(1, 8192, 64), DEVICES[90])
    text = (ROOT / "kernels" / f"{plan.source}.cu").read_text()
    for launch in plan.launches:
        assert launch.symbol.startswith(name)
        assert re.search(rf"\b{launch.symbol}\(const Params p\)", text)
