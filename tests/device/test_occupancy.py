"""How many blocks a multiprocessor holds: what CUDA's driver said on GPUs, and what the guide's table says."""

import json

import pytest
from helpers import ROOT

from hw4cli.device.occupancy import LIMITS, occupancy
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import AMD_DEVICES, DEVICES
from hw4cli.problem.workload import Shape


def test_it_is_what_the_driver_said_of_every_kernel_in_the_records():
    compared = 0
    for path in (ROOT / "benchmarks").glob("*.json"):
        record = json.loads(path.read_text())
        for row in record["rows"]:
            name, _, tiles = row.get("kernel", "").partition(" ")
            if name not in VARIANTS or row.get("occupancy") is None:
                continue
            tile = dict(zip(("BR", "BC"), map(int, tiles.split("x")), strict=True)) if tiles else None
            props = DEVICES[round(10 * float(record["machine"]["compute_capability"]))]
            plan = VARIANTS[name].plan(Shape(*row["shape"]), props, tile)
            main = plan.launches[plan.main]
            if name == "split" and row["shared_bytes"] != main.shared:
                continue  # it was launched in another way then
            found = occupancy(props, row["registers"], row["shared_bytes"], main.block)
            assert found.share == pytest.approx(row["occupancy"]), (path.name, row["kernel"], row["case"])
            compared += 1
    assert compared > 100


# Counted by hand, as NVIDIA's occupancy calculator does: a warp's registers in units of 256, in quarters of 16,384; a
# block's shared memory in units of 128 bytes (256 before 8.0), with 1 KB for the system from 8.0 on.
@pytest.mark.parametrize(
    ("cc", "registers", "shared", "threads", "blocks", "limited_by"),
    [
        (61, 32, 0, 256, 8, ("threads", "registers")),
        (61, 24, 48 << 10, 128, 2, ("shared memory",)),
        (75, 64, 0, 256, 4, ("threads", "registers")),
        (75, 16, 0, 32, 16, ("blocks",)),
        (75, 16, 9000, 64, 7, ("shared memory",)),  # 9,216 with the unit: 65,536 hold 7.1
        (80, 33, 0, 256, 6, ("registers",)),  # 33 x 32 take 1,280: 12 warps a quarter
        (80, 32, 82_000, 128, 2, ("shared memory",)),
        (86, 40, 0, 128, 12, ("threads", "registers")),
        (86, 20, 0, 64, 16, ("blocks",)),
        (89, 20, 0, 64, 24, ("threads", "blocks")),
        (90, 168, 65536, 128, 3, ("registers", "shared memory")),
        (90, 255, 0, 1024, 0, ("registers",)),
        (100, 32, 227 << 10, 256, 1, ("shared memory",)),
        (120, 255, 0, 64, 4, ("registers",)),  # 8 warps, of two a block
        (120, 32, 100 << 10, 64, 0, ("shared memory",)),  # more than the 99 KB of a block
    ],
)
def test_the_scarcest_resource_decides(cc, registers, shared, threads, blocks, limited_by):
    found = occupancy(DEVICES[cc], registers, shared, threads)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)
    assert found.share == blocks * threads / 32 / LIMITS[cc].warps


def test_every_gpu_that_is_planned_for_has_its_limits():
    assert LIMITS.keys() == DEVICES.keys()


@pytest.mark.parametrize(
    ("gfx", "registers", "shared", "threads", "blocks", "share", "limited_by"),
    [
        ("gfx90a", 64, 0, 256, 8, 1.0, ("threads", "registers")),
        ("gfx90a", 65, 0, 256, 7, 7 / 8, ("registers",)),  # 72 of 512: 7 waves a SIMD
        ("gfx90a", 128, 16 << 10, 256, 4, 0.5, ("registers", "shared memory")),
        ("gfx90a", 512, 0, 64, 4, 1 / 8, ("registers",)),  # a wave has the whole SIMD
        ("gfx90a", 32, 48 << 10, 128, 1, 1 / 16, ("shared memory",)),
        ("gfx90a", 32, 64 << 10, 64, 1, 1 / 32, ("shared memory",)),
        ("gfx90a", 32, (64 << 10) + 1, 64, 0, 0, ("shared memory",)),
        ("gfx908", 84, 0, 256, 3, 0.3, ("registers",)),
        ("gfx1030", 250, 16 << 10, 128, 4, 0.25, ("registers",)),  # waves of 32 lanes, 256 of 1,024 registers
    ],
)
def test_the_scarcest_resource_decides_on_amds_gpus_too(gfx, registers, shared, threads, blocks, share, limited_by):
    found = occupancy(AMD_DEVICES[gfx], registers, shared, threads)
    assert (found.blocks, found.share, found.limited_by) == (blocks, share, limited_by)
