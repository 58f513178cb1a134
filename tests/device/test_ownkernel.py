"""A kernel in a file of the user's own: its first lines, the functions that are launched, the plan that a GPU gets."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import ROOT

from hw4cli.device.gpu import Gpu
from hw4cli.device.machinecode import MachineCode
from hw4cli.device.ownkernel import kernel_named
from hw4cli.errors import InputError, KernelError, MachineError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape

SHAPE = Shape(2, 4096, 64)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A function that writes a kernel's file, by default with naive's code, and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(first, like="naive", renamed=True, name="mine"):
        text = (ROOT / f"kernels/{like}.cu").read_text()
        (tmp_path / f"{name}.cu").write_text(first + (text.replace(f"{like}_", f"{name}_") if renamed else text))
        return f"./{name}.cu"

    return write


def symbols(plan):
    return [launch.symbol for launch in plan.launches]


@pytest.mark.parametrize("like", VARIANTS)
def test_it_is_launched_as_the_kernel_that_it_names(own, like):
    name = own(f"// my own\n//   Like:   {like}  \n", like, renamed=False)
    one_file = replace(DEVICES[90], warpgroups=False)  # split has other files where warpgroups multiply
    base, mine = (VARIANTS[like].plan(SHAPE, one_file), kernel_named(name).plan(SHAPE, DEVICES[90]))
    assert mine.variant == name
    assert (mine.launches, mine.macros, mine.scratch, mine.splits) == (
        *(base.launches, base.macros, base.scratch, base.splits),
    )
    assert (mine.main, mine.finds_absmax) == (base.main, base.finds_absmax)
    with pytest.raises(MachineError, match=r"mine\.cu"):
        kernel_named(name).plan(Shape(2**31, 4096, 64, causal=True), DEVICES[90])


def test_its_functions_are_called_after_the_file_or_keep_their_names(own):
    launched = ["naive_scores", "naive_softmax", "naive_values"]
    assert symbols(kernel_named(own("// Like: naive\n")).plan(SHAPE, DEVICES[90])) == [
        symbol.replace("naive", "mine") for symbol in launched
    ]
    assert symbols(kernel_named(own("// Like: naive\n", renamed=False)).plan(SHAPE, DEVICES[90])) == launched
    # A name that is no identifier can be none of a function; a word in a comment is none.
    assert symbols(kernel_named(own("// Like: naive\n", name="my-own")).plan(SHAPE, DEVICES[90])) == launched
    mentioned = own("// Like: naive\n// mine_scores( is what it was called\n", renamed=False)
    assert symbols(kernel_named(mentioned).plan(SHAPE, DEVICES[90])) == launched


def test_the_launch_that_does_the_work_is_the_one_that_it_is_in_the_other_kernel(own):
    plan = kernel_named(own("// Like: split\n", "split")).plan(Shape(1000, 2048, 64), DEVICES[90])
    assert symbols(plan)[0] == "mine_convert"
    assert symbols(plan)[plan.main] == "split"


def test_it_may_set_the_other_kernels_macros(own):
    variant = kernel_named(own("// Like: naive\n// Tile: BR=8, BC=64 THREADS=512\n"))
    plan = variant.plan(SHAPE, DEVICES[90])
    assert plan.macros == {"D": 64, "BR": 8, "BC": 64, "THREADS": 512, "SOFTMAX_LANES": 32}
    assert plan.launches[0].grid == 2 * 512 * 64
    assert plan.launches[0].block == 512
    assert variant.plan(SHAPE, DEVICES[90], {"BR": 32, "BC": 16}).macros["BR"] == 32  # as --tile asks


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("", "mine.cu does not state how it is launched: name the kernel .* such as `// Like: naive`"),
        ("//\n// Like: navie\n", "mine.cu:2: there is no kernel 'navie' to be like: did you mean naive"),
        ("// Like: xyz\n", "choose from naive, .*paper, "),
        ("// Like:\n", "there is no kernel '' to be like"),
        ("// Like: naive\n// Tile: BR=8 BQ=4\n", "mine.cu:2: 'BQ=4' sets no macro of naive, which are BR, BC, THREADS"),
        ("// Like: naive\n// Tile: BR = 8\n", "'BR' sets no macro"),
        ("// Like: naive\n// Tile: BR=0\n", "'BR=0' sets no macro"),
    ],
)
def test_what_its_first_lines_say_wrong_is_one_sentence(own, first, words):
    with pytest.raises(InputError, match=words):
        kernel_named(own(first))


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"there is no file .*none\.cu"):
        kernel_named(str(tmp_path / "none.cu"))
    (tmp_path / "folder.cu").mkdir()
    with pytest.raises(InputError, match=r"cannot read .*folder\.cu: Is a directory"):
        kernel_named(str(tmp_path / "folder.cu"))
    with pytest.raises(InputError, match="the compiler takes no file called"):
        kernel_named('we"ird.cu')
    (tmp_path / "bytes.cu").write_bytes(b"// Like: naive\n\xff")
    with pytest.raises(InputError, match=r"bytes\.cu, or a header of it, is not UTF-8 text"):
        kernel_named(str(tmp_path / "bytes.cu"))


def test_headers_beside_the_file_come_before_hw4s_own(own, tmp_path):
    pytest.importorskip("nvidia.cu13", reason="needs NVRTC (pip install 'hw4cli[dev]')")
    name = own('// Like: naive\n#include "own.cuh"\n')
    (tmp_path / "own.cuh").write_text(
        '#include "platform.cuh"\nstatic_assert(ceil_div(5, 2) == 3, "the project\'s");\n'
    )
    assert gpu_without_one().plan(name, SHAPE).variant == name


def gpu_without_one():
    """A Gpu that compiles for 9.0, and takes any machine code for loaded."""
    gpu = object.__new__(Gpu)
    function = SimpleNamespace(max_dynamic_shared_size_bytes=0)
    gpu.cupy = SimpleNamespace(RawModule=lambda path: SimpleNamespace(get_function=lambda symbol: function))
    gpu.props, gpu.code, gpu.companions = DEVICES[90], MachineCode(90, 13000, None), tuple
    gpu._variant, gpu._compiled, gpu._modules = kernel_named, gpu._compile, {}
    return gpu


def test_a_gpu_refuses_a_file_that_does_not_compile_or_lacks_a_function(own):
    pytest.importorskip("nvidia.cu13", reason="needs NVRTC (pip install 'hw4cli[dev]')")
    gpu = gpu_without_one()
    with pytest.raises(KernelError, match=r"kernel \./mine\.cu does not compile .*9\.0: mine\.cu:2: .*`int x = ;`"):
        gpu.plan(own("// Like: naive\nint x = ;\n"), SHAPE)
    path = Path(own("// Like: naive\n"))
    path.write_text(path.read_text().replace("\nmine_softmax(", "\nmine_sotfmax("))
    with pytest.raises(
        KernelError, match=r"^\./mine\.cu has no kernel mine_softmax: it has mine_scores, mine_sotfmax, "
    ):
        gpu.plan("./mine.cu", SHAPE)
    assert KernelError.exit_code == 2
    with pytest.raises(MachineError, match=r"needs 163,840 bytes of shared memory a block") as raised:
        gpu.props = DEVICES[75]
        gpu.plan(own("// Like: flash\n// Tile: BR=128 BC=128\n", "flash"), SHAPE)
    assert raised.value.exit_code == 3
