"""The bytes that the lab page says a kernel reads, against those that its code reads, counted on the CPU."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from browser import find, opened
from records import row, written

from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import Library
from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape
from hw4cli.resources import data_path
from hw4cli.show.labpage import page
from hw4cli.show.records import load

SHAPE = Shape(1, 300, 64)  # neither rows nor keys are whole tiles
COUNTER = {"platform.cuh": ("#pragma once", '#pragma once\nextern "C" { long long moved; }')}
COPIES = "#define copy16_async(to, from, inside) (copy16_async)(to, from, (moved += (inside) ? 16 : 0, inside))"
READS = {  # of each kernel: in which file what is replaced, where it reads Q and K and V, or tiles made of them
    "shared": {"rows.cuh": ("factor * rows[e]", "(moved += 4, factor * rows[e])")},
    "flash": {
        "stream.cuh": ('#include "ptx.cuh"', f'#include "ptx.cuh"\n{COPIES}'),
        "flash.cu": ("*(const float4*)(from + half", "(moved += 16, 0), *(const float4*)(from + half"),
    },
    "split": {
        "split_mma.cuh": ('#include "inblock.cuh"', f'#include "inblock.cuh"\n{COPIES}'),
        "fragments.cuh": ("*(const float2*)(q", "(moved += 8, 0), *(const float2*)(q"),
    },
}


def bytes_read(kernel, shape, folder):
    """What the kernel's main launch reads, all blocks together."""
    changes = {**COUNTER, **READS[kernel]}
    for name in {f"{kernel}.cu", *changes}:
        text = data_path(f"kernels/{name}").read_text()
        old, new = changes.get(name, ("", ""))
        assert old in text, f"{name} no longer has {old!r}"
        (folder / name).write_text(text.replace(old, new, 1))
    plan = VARIANTS[kernel].plan(shape, DEVICES[80])
    library = shared_object(folder / f"{kernel}.cu", plan.macros, 80, 32, PLAIN)
    Library(library).run(plan, np.ones((1, 3, SHAPE.N, SHAPE.d), np.float32), watched=False)
    return ctypes.c_longlong.in_dll(ctypes.CDLL(str(library)), "moved").value


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Of a kernel and a shape, what its main launch reads."""
    found = {}

    def count(kernel, shape):
        if (kernel, shape) not in found:
            found[kernel, shape] = bytes_read(kernel, shape, tmp_path_factory.mktemp(kernel))
        return found[kernel, shape]

    return count


@pytest.mark.parametrize("mask", ["", "causal"])
@pytest.mark.parametrize("kernel", READS)
def test_a_kernel_reads_the_bytes_that_the_model_of_its_traffic_has(counted, kernel, mask):
    shape = replace(SHAPE, causal=bool(mask))
    plan = VARIANTS[kernel].plan(shape, DEVICES[80])
    model = launch_models(plan, shape, DEVICES[80])[plan.main]
    assert model.l2[0] == counted(kernel, shape)


@pytest.mark.parametrize("mask", ["", "causal"])
@pytest.mark.parametrize("kernel", READS)
def test_a_kernel_reads_the_bytes_that_the_page_counts(chromium, tmp_path, counted, kernel, mask):
    record = load(written(tmp_path / "a.json", row(shape=(SHAPE.B, SHAPE.N, SHAPE.d))))
    (tmp_path / "lab.html").write_text(page([record], "a"))
    address = f"{(tmp_path / 'lab.html').as_uri()}#view=steps&cc=80&shape=1x300x64&kernel={kernel}&mask={mask}"
    with opened(chromium, address):
        said = int(find(chromium, "#bytes").get_attribute("data-moved").split(",")[4])
        said -= chromium.execute_script("return walk.other[0]")
    assert said == counted(kernel, replace(SHAPE, causal=bool(mask)))
