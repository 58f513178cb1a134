"""`hw4 new-kernel`: a file that runs as it is; and a kernel of your own where a kernel of the ladder can be named."""

import re

import pytest
from helpers import ROOT, fails, random_block, write_case
from slow import quick_of_each, slow

from hw4cli.plans.ladder import VARIANTS
from hw4cli.resources import kernel_source

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
COMMENTS = re.compile(r"//[^\n]*|^#line.*\n", re.MULTILINE)


def code(text):
    return " ".join(COMMENTS.sub("", text).split())


@pytest.mark.parametrize("base", VARIANTS)
def test_the_file_is_the_other_kernels_code_under_its_own_name(hw4_here, tmp_path, base):
    result = hw4_here("new-kernel", "mine", "--from", base)
    assert (result.returncode, result.stderr) == (0, "")
    text = (tmp_path / "mine.cu").read_text()
    old = (ROOT / f"kernels/{base}.cu").read_text()
    functions = set(re.findall(rf"\b{base}(?:_\w+)?(?=\(const)", old)) | {f"{base}_kernel"}
    names = "|".join(sorted(functions, key=len, reverse=True))
    assert code(text) == re.sub(rf"\b({names})(?=\()", lambda match: "mine" + match[0][len(base) :], code(old))
    assert kernel_source(str(tmp_path / "mine.cu")).startswith('#line 1 "mine.cu"')


def test_it_compiles_as_it_is(hw4_here):
    pytest.importorskip("nvidia.cu13", reason="needs NVRTC (pip install 'hw4cli[dev]')")
    for base in ("naive", "shared", "float4"):  # functions of several names, a word of comments, another name
        hw4_here("new-kernel", f"my_{base}", "--from", base)
    result = hw4_here("check", "./my_naive.cu", "./my_shared.cu", "./my_float4.cu", "--gpu", "9.0")
    assert (result.returncode, result.stderr) == (0, "")
    assert all(symbol in result.stdout for symbol in ("my_naive_softmax", "my_shared", "my_float4_kernel"))


def test_its_header_has_the_labels_to_fill_in_in_their_order(hw4_here, tmp_path):
    hw4_here("new-kernel", "mine", "--from", "shared")
    labels = re.findall(r"^// (\w+):", (tmp_path / "mine.cu").read_text(), re.MULTILINE)
    assert labels == ["mine", "Like", "Idea", "Geometry", "Shared", "Limits", "Source", "Before"]


def test_it_says_what_to_do_next_and_where_the_entry_goes(hw4_here, tmp_path):
    (tmp_path / "some where").mkdir()
    printed = hw4_here("new-kernel", tmp_path / "some where/mine", "--from", "split").stdout
    assert f"hw4 check '{tmp_path}/some where/mine.cu'" in printed
    assert f"hw4 check '{tmp_path}/some where/mine.cu' --run" in printed and "--device emulate" in printed
    assert "move it to kernels/mine.cu and put this entry into hw4cli/plans/tensor.py, behind SPLIT:" in printed
    assert 'MINE = SPLIT.like(\n    "mine",' in printed


def test_a_file_that_is_there_is_left_alone(hw4_here, tmp_path):
    (tmp_path / "mine.cu").write_text("my work")
    fails(hw4_here("new-kernel", "mine"), 2, "mine.cu is there already")
    assert (tmp_path / "mine.cu").read_text() == "my work"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["2fast"], "'2fast' is not a name for a kernel: take letters, digits and _"),
        (["my-own"], "take letters, digits and _"),
        (["été"], "take letters, digits and _"),
        (["float4x", "--from", "nave"], "Did you mean 'naive'?"),
        (["double"], "it is a word of CUDA C++"),
        (["uint4"], "it is a word of CUDA C++"),
        (["flash"], "'flash' is taken"),
        (["Naive"], "'Naive' is taken"),
        (["none/mine.cu"], "none of the output none/mine.cu does not exist"),
        ([], "Missing argument 'FILE'"),
    ],
)
def test_a_wrong_use_is_one_sentence_and_writes_nothing(hw4_here, tmp_path, args, words):
    fails(hw4_here("new-kernel", *args), 2, words)
    assert [*tmp_path.iterdir()] == []


@pytest.fixture
def mine(hw4_here, tmp_path):
    """A folder with mine.cu and an input; and the command in it."""
    hw4_here("new-kernel", "mine")
    write_case(tmp_path / "in", random_block(1, 8, 4))
    return hw4_here


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--kernel", "./none.cu", "in", "out"], "there is no file ./none.cu"),
        (["--kernel", "./in", "in", "out"], "nor a file that ends in .cu"),
        (["--kernel", "mine", "in", "out"], "nor a file that ends in .cu. Did you mean 'mine.cu'?"),
        (["--kernel", "./mine.cu", "--device", "cpu", "in", "out"], "is for the GPU and does not go with --device cpu"),
        (["--kernel", "./mine.cu", "--max-error", "1e-3", "in", "out"], "no bound of its error is known"),
        (["bench", "./none.cu", "t01"], "there is no file ./none.cu"),
        (["leaderboard", "./none.cu", "t01", "--user", "ann"], "there is no file ./none.cu"),
        (["leaderboard", "./empty.cu", "t01", "--user", "ann"], "does not state how it is launched"),
        (["bench", "naive", "./empty.cu", "t01"], "does not state how it is launched"),
    ],
)
def test_a_wrong_kernel_of_ones_own_is_told_before_a_gpu_is_asked_for(mine, tmp_path, args, words):
    (tmp_path / "empty.cu").touch()
    fails(mine(*args), 2, words)
    assert not (tmp_path / "out").exists()


@slow
@quick_of_each(1)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text, "other.cu has no kernel other_scores: it has mine_scores, mine_softmax, mine_values"),
        (
            lambda text: text.replace('extern "C" ', "").replace("mine_", "other_"),
            'other.cu has other_scores under a C++ name only: write extern "C" before its __global__',
        ),
    ],
)
def test_a_kernel_that_lacks_a_function_is_the_same_sentence_wherever_it_is_launched(mine, tmp_path, change, words):
    """A copy of a file under another name, for one: its functions are called after the old one."""
    (tmp_path / "other.cu").write_text(change((tmp_path / "mine.cu").read_text()))
    for args, code in (
        (["--kernel", "./other.cu", "--device", "emulate", "in", "out"], 2),
        (["check", "./other.cu", "--run", "1,16,8"], 1),
        (["check", "./other.cu", "--gpu", "9.0"], 1),
    ):
        fails(mine(*args), code, words)
    assert not (tmp_path / "out").exists()


def test_no_answer_of_the_cpus_passes_for_that_of_a_kernel_of_ones_own(hw4, mine, tmp_path):
    """What is named is never replaced, least of all what is to be tried."""
    for device in ([], ["--device", "cuda"]):
        result = hw4("--kernel", "./mine.cu", *device, "in", "out", cwd=tmp_path, env=NO_GPU)
        fails(result, 3, "no GPU can be used")
        assert not (tmp_path / "out").exists()
    fails(hw4("bench", "./mine.cu", "t01", cwd=tmp_path, env=NO_GPU), 3, "no GPU can be used")
