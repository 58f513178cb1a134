"""What is compiled before it is needed: what the assignment's other files start with, and all that a file may need."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from slow import quick_of_each

from hw4cli.device.gpu import kernel_of
from hw4cli.plans.dispatch import AUTO, Choice, candidates
from hw4cli.plans.ladder import FALLBACK, VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem import suite
from hw4cli.problem.workload import Shape
from hw4cli.stream.kernels import plans_of_file, plans_of_suite
from hw4cli.stream.layout import choose_layout


def gpu_of(cc):
    return SimpleNamespace(name="", props=DEVICES[cc], code=SimpleNamespace(driver=13000, compiler_id=""))


@pytest.mark.parametrize("cc", DEVICES)
@pytest.mark.parametrize("causal", [False, True])
def test_all_parts_of_all_thirty_files_have_their_kernels_after_a_first_run(cc, causal):
    props = DEVICES[cc]
    compiled = {kernel_of(plan) for plan in plans_of_suite(AUTO, None, props, "", causal)}
    for name, case in suite.cases().items():
        shape = replace(case.shape, causal=causal)
        order, why = candidates(AUTO, props, "", shape.d, shape.N, causal)
        first = VARIANTS[Choice(order, why, shape.d, shape.N, props, None).first]
        for part in choose_layout(shape, cores=1, whole_batches=True).parts(shape):
            assert kernel_of(first.plan(shape.with_batches(part.batches), props)) in compiled, (name, part)


@quick_of_each(4)
@pytest.mark.parametrize("cc", DEVICES)
@pytest.mark.parametrize("causal", [False, True])
def test_whatever_a_case_may_need_is_among_its_plans(cc, causal):
    """Its parts of all sizes, by every kernel that its values can ask for."""
    for name, case in suite.cases().items():
        shape = replace(case.shape, causal=causal)
        planned = {kernel_of(plan) for plan in plans_of_file(shape, gpu_of(cc))}
        order, _ = candidates(AUTO, DEVICES[cc], "", shape.d, shape.N, causal)
        assert FALLBACK in order
        for part in choose_layout(shape, cores=16).parts(shape):
            for kernel in order:
                plan = VARIANTS[kernel].plan(shape.with_batches(part.batches), DEVICES[cc])
                assert kernel_of(plan) in planned, (name, part, kernel)


def test_the_kernel_that_a_case_starts_with_comes_first():
    plans = list(plans_of_file(Shape(10, 2048, 64), gpu_of(90)))
    assert [plan.variant for plan in plans[:2]] == ["split8", "split"]


def test_a_batch_that_is_cut_into_ranges_of_rows_is_planned_so():
    shape = Shape(1, 1 << 20, 64)
    rows = {part.rows for part in choose_layout(shape, cores=1).parts(shape)}
    plans = {kernel_of(plan) for plan in plans_of_file(shape, gpu_of(90))}
    assert len(rows) == 1
    assert kernel_of(VARIANTS["split8"].plan(Shape(1, 1 << 20, 64, False, *rows), DEVICES[90])) in plans
