"""Headers of single instructions, which other ones replace where kernels run on the CPU: their own text runs, too, as
far as whole programs' inline PTX does, and does what kernels/emulator/headers has."""

import re
from pathlib import Path

import pytest
from slow import few

from hw4cli.emulator.program.execute import execute
from hw4cli.emulator.program.ptx import with_instructions
from hw4cli.plans.plan import DEVICES
from hw4cli.resources import data_path

PROGRAM = Path(__file__).parent / "programs" / "headers.cu"
HEAD = r"^(?:template <[^>]*> )?__device__ __forceinline__ [^;{\n]*"
FUNCTION = re.compile(rf"{HEAD}(?:\{{.*\}}$|\{{.*\n(?:.*\n)*?\}})", re.M)
ASM = re.compile(r"\basm\b")
RUN = {  # of each header, the functions that run by their own text
    "ptx.cuh": {
        "exp2_fast",
        "log2_fast",
        "shared_address",
        "load_shared",
        "load_shared2",
        "store_shared",
        "store_once",
        "copy16_async",
        "copy16_part",
        "cp_async_wait_all",
        "cp_async_commit",
        "cp_async_wait",
        "griddep_launch",
        "griddep_wait",
    },
    "mma.cuh": {"halves"},
    "bulk.cuh": {"semaphore_wait", "semaphore_release", "semaphore_add", "fence_proxy_async"},
}
WRONG = {
    "the other half": ("mma.cuh", '"f"(y), "f"(x)', '"f"(x), "f"(y)'),
    "no wait": ("ptx.cuh", "cp.async.wait_all;", "cp.async.wait_group 1;"),
    "a wait for fewer": ("ptx.cuh", '"n"(LATER)', '"n"(LATER + 1)'),
    "all are read": ("ptx.cuh", "inside ? 16 : 0", "16"),
    "as many as there are not": ("ptx.cuh", "max(0, min(bytes, 16))", "16"),
    "nothing is released": ("bulk.cuh", "st.release.gpu", "st.relaxed.gpu"),
    "nothing is released by an addition": ("bulk.cuh", "red.release.gpu", "red.relaxed.gpu"),
    "other numbers": ("ptx.cuh", '"r"(x.x), "r"(x.y) :', '"r"(x.y), "r"(x.x) :'),
}


def written(folder, change=None):
    """The program in a folder, beside the headers without the functions that have other instructions."""
    for name in RUN:
        text = data_path(f"kernels/{name}").read_text(encoding="utf-8")
        text = re.sub(r'^#include ".*"$', "", text, flags=re.M)
        if change and change[0] == name:
            assert change[1] in text
            text = text.replace(change[1], change[2])
        kept = FUNCTION.sub(lambda found: "" if ASM.search(with_instructions(found[0])) else found[0], text)
        names = {re.search(r"(\w+)\(", found[0])[1] for found in FUNCTION.finditer(kept)}
        assert names == RUN[name]
        (folder / name).write_text(kept, encoding="utf-8")
    program = folder / PROGRAM.name
    program.write_text(PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
    return program


def test_a_headers_own_text_does_what_its_stand_in_does(tmp_path):
    done = execute([written(tmp_path)], gpu=DEVICES[90], seconds=0)
    assert (done.output, [str(one) for one in done.findings]) == ("done\n", [])


@pytest.mark.parametrize("change", few(WRONG, 1))
def test_a_mistake_in_a_header_shows(change, tmp_path):
    done = execute([written(tmp_path, WRONG[change])], gpu=DEVICES[90], seconds=0)
    assert done.findings or done.output != "done\n"
