"""Mistakes that are put into kernels on purpose: each is found, by the check that it is meant for."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from faults import FAULTS
from slow import quick_of_each, slowly
from tensor_faults import TENSOR_FAULTS

from hw4cli.emulator.check import SCHEDULES, check_kernel
from hw4cli.errors import InputError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import AMD_DEVICES, DEVICES
from hw4cli.problem.cpu import workers
from hw4cli.resources import data_path

ALL = [*FAULTS, *TENSOR_FAULTS]


def kernel_with(fault, folder):
    """The kernel's file with the mistake in it, or in a header beside it."""
    source = f"{fault.source or fault.kernel}.cu"
    for name in {source, fault.file or source}:
        text = data_path(f"kernels/{name}").read_text()
        if name == (fault.file or name):
            assert fault.old in text, f"{name} no longer has {fault.old!r}"
            text = text.replace(fault.old, fault.new, 1)
        (folder / name).write_text(text)
    return folder / source


def mistakes_of(fault, folder):
    """The kind and the sentence of all that is found in the kernel with the mistake: in the first order of threads, or
    else in all of them, which take three times as long."""
    found = found_in(SCHEDULES[:1], fault, folder)
    return found if is_found(fault, found) else found_in(SCHEDULES, fault, folder)


def is_found(fault, mistakes):
    return any(kind == fault.kind and fault.says in sentence for kind, sentence in mistakes)


def found_in(orders, fault, folder):
    usual = AMD_DEVICES["gfx90a"] if fault.lanes == 64 else DEVICES[fault.cc]
    try:
        mistakes = check_kernel(
            VARIANTS[fault.kernel],
            kernel_with(fault, folder),
            props=replace(usual, sms=fault.sms or usual.sms),
            shapes=[fault.shape],
            data=[fault.data],
            builds=[fault.build],
            lanes=[fault.lanes],
            orders=orders,
            tile=fault.tile or None,
        )
    except InputError as error:
        return [("does not compile", str(error))]
    return [(mistake.kind, mistake.sentence) for mistake in mistakes]


@pytest.fixture(scope="module")
def found(request, tmp_path_factory):
    """What is found of each mistake that is tested: several compile at the same time."""
    with ThreadPoolExecutor(workers()) as pool:
        here = [item for item in request.session.items if item.path == request.path]
        chosen = [item.callspec.params["fault"] for item in here if item.name.startswith(f"{TEST}[")]
        yield {fault.name: pool.submit(mistakes_of, fault, tmp_path_factory.mktemp("fault")) for fault in chosen}


FIRST = {fault.kind: fault for fault in reversed(ALL)}  # of each kind of mistakes
QUICK = [*FIRST.values()][-3:]


@quick_of_each(len(ALL))
@pytest.mark.parametrize(
    "fault", [fault if fault in QUICK else slowly(fault) for fault in ALL], ids=lambda fault: fault.name
)
def test_a_mistake_is_found(fault, found):
    mistakes = found[fault.name].result()
    assert is_found(fault, mistakes), mistakes


TEST = test_a_mistake_is_found.__name__


def test_there_are_enough_mistakes_and_each_is_another():
    assert len(ALL) >= 30
    assert len({fault.name for fault in ALL}) == len(ALL)
    assert len({(fault.kernel, fault.file, fault.old, fault.new, fault.cc) for fault in ALL}) == len(ALL)
