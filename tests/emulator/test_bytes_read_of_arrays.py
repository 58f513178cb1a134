"""The bytes that kernels for arrays read, counted on the CPU, against those of their models."""

import ctypes

import numpy as np
import pytest
from halves import random_words
from slow import slow

from hw4cli.arrays import emulated as halves_on_cpu
from hw4cli.arrays.emulated import run_half
from hw4cli.arrays.gradients import emulated as gradients_on_cpu
from hw4cli.arrays.gradients.emulated import run_backward
from hw4cli.emulator.build import PLAIN
from hw4cli.lab.candidates import plan_of
from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.backwardcut import Cut
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Workload
from hw4cli.resources import data_path

HOPPER = DEVICES[90]
COUNTER = {"platform.cuh": ("#pragma once", '#pragma once\nextern "C" { long long moved; }')}
COPIES = "\n".join(
    f"#define {name}(to, from, inside) ({name})(to, from, (moved += (inside) ? 16 : 0, inside))"
    for name in ("copy16_async", "copy16_once")
)
BY_COPIES = {"halfmma.cuh": ('#include "mma.cuh"', f'#include "mma.cuh"\n{COPIES}')}
# Of the kernels on Hopper what passes, which the copy engine brings; each owned row comes once.
PASSES = {
    "backward_wgmma.cuh": (
        "mbarrier_expect<G::STAGE_BYTES>(barrier);",
        "mbarrier_expect<G::STAGE_BYTES>(barrier);"
        "moved += 4 * D * min(G::BC, (G::KEYS ? p.Nq : p.Nk) - j * G::BC) + G::STATS_BYTES;",
    ),
}
READS = {  # of each kernel: in which file what is replaced, where it reads Q, K, V and dO
    "half_mma": BY_COPIES,
    "half_split": BY_COPIES,
    "half_cores": {"half_cores.cu": ("? *(const uint4*)(rows", "? (moved += 16), *(const uint4*)(rows")},
    "backward_wgmma": PASSES,
    "backward_once": PASSES,
    "backward": {"backward.cu": ("there ? load_four(", "there ? (moved += 4 * sizeof(Element)), load_four(")},
}


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """Let kernels be executed on the CPU from texts that count what they read; the number of bytes."""

    def count(module, kernel, run):
        changes, made = {**COUNTER, **READS[kernel]}, []
        for name in {f"{kernel}.cu", *changes}:
            text = data_path(f"kernels/{name}").read_text()
            old, new = changes.get(name, ("", ""))
            assert old in text, f"{name} no longer has {old!r}"
            (tmp_path / name).write_text(text.replace(old, new, 1))

        def build(*what, shared_object=module.shared_object):
            made.append(shared_object(*what))
            return made[-1]

        monkeypatch.setattr(module, "kernel_path", lambda name: tmp_path / f"{name}.cu")
        monkeypatch.setattr(module, "shared_object", build)
        assert run().finished
        return ctypes.c_longlong.in_dll(ctypes.CDLL(str(made[0])), "moved").value

    return count


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", ["half_mma", "half_split", "half_cores"])
def test_a_kernel_of_arrays_reads_the_bytes_of_its_model(counted, kernel, causal):
    few = kernel == "half_split"
    work = Workload("float16", 1, 4, 2, 5 if few else 150, 333, 40, causal, offset=333 - (5 if few else 150))
    run = lambda: run_half(work, *random_words(work), kernel=kernel, cc=80, build=PLAIN)  # noqa: E731
    plan = plan_of(kernel, work, DEVICES[80])
    assert launch_models(plan, work, DEVICES[80])[plan.main].l2[0] == counted(halves_on_cpu, kernel, run)


@slow
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_read_the_bytes_of_their_model_beside_two_numbers_of_each_row(counted, causal):
    work = Workload("float16", 1, 2, 1, 100, 150, 64, causal, offset=50)
    q, k, v = random_words(work)
    lse = random_words(Workload("float16", 1, 2, 1, 100, 100, 8))[0][..., 0].astype("float32")
    run = lambda: run_backward(work, q, q, k, v, q, lse, build=PLAIN)  # noqa: E731
    _, *models = launch_models(plan_of("backward", work, DEVICES[80]), work, DEVICES[80])
    found = counted(gradients_on_cpu, "backward", run)
    assert 0.96 * sum(model.l2[0] for model in models) < found < sum(model.l2[0] for model in models)


@slow
@pytest.mark.parametrize(
    "work",
    [
        Workload("float16", 1, 2, 1, 100, 350, 64, True, offset=250),
        Workload("bfloat16", 1, 1, 1, 200, 150, 128, True, offset=-50),  # some rows see no key
        Workload("float16", 1, 1, 1, 200, 150, 40),
    ],
    ids=str,
)
@pytest.mark.parametrize("kernel", ["backward_once", "backward_wgmma"])
def test_gradients_on_hopper_let_pass_the_bytes_of_their_model(counted, kernel, work):
    q, k, v = random_words(work)
    lse = np.zeros((work.batch, work.heads, work.Nq), np.float32)
    run = lambda: run_backward(work, q, q, k, v, q, lse, kernel=kernel, cc=90, build=PLAIN)  # noqa: E731
    found = counted(gradients_on_cpu, kernel, run)
    plan = plan_of(kernel, work, HOPPER)
    models = {model.symbol: model for model in launch_models(plan, work, HOPPER)}
    rows, parts = work.batch * work.heads * work.Nq, Cut(*plan.cut).parts if plan.cut else 1
    owned = {
        "backward_dq": 2 * q.nbytes + 8 * rows,
        "backward_dkdv": 2 * k.nbytes,
        "backward_once": 2 * k.nbytes * parts,  # each part reads its keys
    }
    assert found == sum(models[symbol].l2[0] - bytes_ for symbol, bytes_ in owned.items() if symbol in models)
