"""Mistakes that are put into kernels on purpose: each is found, by the check that it is meant for."""

import pytest
from faults import FAULTS

from hw4cli.compute.plan import CHIPS
from hw4cli.compute.variants import VARIANTS
from hw4cli.emulator.check import check_kernel
from hw4cli.errors import InputError
from hw4cli.resources import data_path


def kernel_with(fault, folder):
    """The kernel's file with the mistake in it, or in a header beside it."""
    for name in {f"{fault.kernel}.cu", fault.file or f"{fault.kernel}.cu"}:
        text = data_path(f"kernels/{name}").read_text()
        if name == (fault.file or name):
            assert fault.old in text, f"{name} no longer has {fault.old!r}"
            text = text.replace(fault.old, fault.new, 1)
        (folder / name).write_text(text)
    return folder / f"{fault.kernel}.cu"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_mistake_is_found(fault, tmp_path):
    source = kernel_with(fault, tmp_path)
    try:
        mistakes = check_kernel(
            VARIANTS[fault.kernel],
            source,
            chip=CHIPS[fault.cc],
            shapes=[fault.shape],
            data=[fault.data],
            builds=[fault.build],
            lanes=[fault.lanes],
            tile=fault.tile or None,
        )
        found = [(mistake.kind, mistake.sentence) for mistake in mistakes]
    except InputError as error:
        found = [("does not compile", str(error))]
    assert any(kind == fault.kind and fault.says in sentence for kind, sentence in found), found


def test_there_are_enough_mistakes_and_each_is_another():
    assert len(FAULTS) >= 30
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len({(fault.kernel, fault.file, fault.old, fault.new, fault.cc) for fault in FAULTS}) == len(FAULTS)
