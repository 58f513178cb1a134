"""Others' attention in the same benchmark, with a torch that is made up: which backend computes what, and how it is
asked."""

import importlib
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import fakecupy
import numpy as np
import pytest

from hw4cli.errors import InputError, MachineError
from hw4cli.lab.arrays.named import workload
from hw4cli.lab.cases import ArrayCase, FileCase, FileData
from hw4cli.lab.peers import check_peers, peers_of_arrays, peers_of_files, with_version
from hw4cli.problem.workload import Shape


class Tensor:
    """An array of CuPy's as torch sees it."""

    def __init__(self, array, dtype=None):
        self.array, self.dtype = array, dtype

    def view(self, dtype):
        return Tensor(self.array, dtype)

    def contiguous(self):
        return self

    def transpose(self, one, other):
        return Tensor(self.array.swapaxes(one, other), self.dtype)


class Calls(list):
    """What was asked of torch, and under which backend."""

    backend = None

    def attention(self, q, k, v, **options):
        if self.backend == "MATH":
            raise RuntimeError("No available kernel. Aborting execution.\nand more")
        self.append((self.backend, q.dtype, q.array.shape, options))
        return q

    @contextmanager
    def using(self, backend):
        self.backend = backend
        yield


@pytest.fixture
def torch(monkeypatch):
    calls = Calls()
    names = {name: name for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")}
    modules = {
        name: ModuleType(name) for name in ("torch", "torch.nn", "torch.nn.attention", "torch.nn.attention.bias")
    }
    made = modules["torch"]
    made.float16, made.bfloat16, made.float32, made.int16, made.int32 = "half", "bfloat", "single", "int16", "int32"
    made.no_grad = lambda: contextmanager(lambda: (yield))()
    made.from_dlpack = Tensor
    made.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace()))
    made.cuda = SimpleNamespace(OutOfMemoryError=MemoryError)
    made.nn = SimpleNamespace(functional=SimpleNamespace(scaled_dot_product_attention=calls.attention))
    modules["torch.nn.attention"].SDPBackend = SimpleNamespace(**names)
    modules["torch.nn.attention"].sdpa_kernel = calls.using
    modules["torch.nn.attention.bias"].causal_lower_right = lambda Nq, Nk: ("lower right", Nq, Nk)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return calls


@pytest.fixture
def gpu(monkeypatch):
    return SimpleNamespace(cupy=SimpleNamespace(**vars(fakecupy.cupy), from_dlpack=lambda tensor: tensor.array))


def run(gpu, text, words=("torch",)):
    """Every peer of a workload, run once."""
    case = ArrayCase(workload(text))
    data = case.opened(gpu)
    peers = {one.name: one for one in peers_of_arrays(gpu, words, case) if not one.ours}
    for one in peers.values():
        one.prepare(data)
    return peers, data.arrays


def answer_of(peer):
    peer.run()
    return peer.answer()


@pytest.mark.parametrize(
    ("dtype", "words", "names"),
    [
        ("fp16", ("torch",), ["cuDNN", "FA2", "efficient", "math"]),
        ("bf16", ("fa2", "cudnn"), ["cuDNN", "FA2"]),
        ("fp32", ("torch",), ["efficient", "math"]),
        ("fp32", ("cudnn",), []),
    ],
)
def test_the_backends_that_know_the_type_are_peers(torch, gpu, dtype, words, names):
    assert list(run(gpu, f"N=8 d=8 dtype={dtype}", words)[0]) == names


def test_a_backend_is_asked_for_the_workload_as_it_is(torch, gpu):
    for text, options in (
        ("H=4 N=8 d=16", {}),
        ("H=4 N=8 d=16 causal scale=0.5", {"scale": 0.5, "is_causal": True}),
        ("H=4 KVH=2 N=8 d=16 layout=BNHD", {"enable_gqa": True}),
        ("H=4 N=8 Nk=20 d=16 causal", {"attn_mask": ("lower right", 8, 20)}),
        ("H=4 N=8 Nk=20 d=16 causal align=top-left", {"is_causal": True}),
    ):
        peers, arrays = run(gpu, text, ("fa2",))
        (result,) = answer_of(peers["FA2"])
        assert torch.pop() == ("FLASH_ATTENTION", "half", (1, 4, 8, 16), {"scale": 0.25, **options})
        assert np.shares_memory(result, arrays.q)


def test_what_a_backend_cannot_do_is_one_sentence(torch, gpu):
    with pytest.raises(MachineError, match=r"^PyTorch: No available kernel\. Aborting execution\.$"):
        run(gpu, "N=8 d=8", ("math",))[0]["math"].run()


def test_flash_attn_is_a_peer_where_it_is_installed(torch, gpu, monkeypatch):
    with pytest.raises(MachineError, match="needs the package flash-attn"):
        run(gpu, "N=8 d=8", ("flash-attn",))
    asked = []
    third = ModuleType("flash_attn_interface")
    third.flash_attn_func = lambda q, k, v, **options: (asked.append((q.array.shape, options)), (q, None))[1]
    monkeypatch.setitem(sys.modules, "flash_attn_interface", third)
    peers, _ = run(gpu, "H=4 N=8 d=16 causal", ("flash-attn",))
    (o,) = answer_of(peers["flash-attn 3"])
    assert o.shape == (1, 4, 8, 16)
    assert asked == [((1, 8, 4, 16), {"softmax_scale": 0.25, "causal": True})]
    with pytest.raises(MachineError, match="aligns the mask at the bottom right alone"):
        run(gpu, "N=8 Nk=9 d=16 causal align=top-left", ("flash-attn",))[0]["flash-attn 3"].run()


def test_flash_attention_4_is_a_peer_by_itself_and_among_all_that_are_installed(torch, gpu, monkeypatch):
    asked = []

    def fourth(q, k, v, **options):
        asked.append((q.array.shape, options))
        return q, None

    for name in ("flash_attn", "flash_attn_interface"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "flash_attn.cute", module := ModuleType("flash_attn.cute"))
    module.flash_attn_func = fourth
    text = "H=4 KVH=2 N=8 d=16 causal scale=0.5"
    peers, arrays = run(gpu, text, ("flash-attn", "cudnn"))
    assert list(peers) == ["cuDNN", "flash-attn 4"]
    (o,) = answer_of(peers["flash-attn 4"])
    assert np.shares_memory(o, arrays.q)
    assert o.shape == (1, 4, 8, 16)
    assert list(run(gpu, text, ("flash-attn-4",))[0]) == ["flash-attn 4"]
    answer_of(run(gpu, text, ("flash-attn-4-deterministic",))[0]["flash-attn 4 deterministic"])
    options = {"softmax_scale": 0.5, "causal": True}
    assert asked == [((1, 8, 4, 16), options), ((1, 8, 4, 16), {**options, "deterministic": True})]
    assert run(gpu, "N=8 d=8 dtype=fp32", ("flash-attn-4",))[0] == {}, "it has no float32"


@pytest.mark.parametrize("fails", [RuntimeError("compiled for nothing\nand more"), AssertionError("d is too large")])
def test_what_flash_attention_4_refuses_is_one_sentence_in_either_pass(torch, gpu, monkeypatch, fails):
    def refuse(*_, **__):
        raise fails

    monkeypatch.setitem(sys.modules, "flash_attn.cute", module := ModuleType("flash_attn.cute"))
    module.flash_attn_func = refuse
    peer = run(gpu, "N=8 d=8", ("flash-attn-4",))[0]["flash-attn 4"]
    said = rf"^flash-attn 4: {str(fails).splitlines()[0]}$"
    with pytest.raises(MachineError, match=said):
        peer.run()
    if isinstance(fails, AssertionError):  # of the package's own autograd function
        monkeypatch.setattr(peer, "_compute", refuse)
        with pytest.raises(MachineError, match=said):
            peer.run()


def test_why_a_package_of_flash_attention_is_not_there_is_said(torch, gpu, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    for name in [*sys.modules]:
        if name.split(".")[0] in ("flash_attn", "flash_attn_interface"):
            monkeypatch.delitem(sys.modules, name)

    def said(word):
        with pytest.raises(MachineError) as error:
            run(gpu, "N=8 d=8", (word,))
        return str(error.value)

    packages = {"flash-attn-2": "flash-attn", "flash-attn-3": "flash-attn-3", "flash-attn-4": "flash-attn-4"}
    for word, package in packages.items():
        assert said(word) == f"--peers {word} needs the package {package}, which is not installed here"
    cute = tmp_path / "flash_attn" / "cute"
    cute.mkdir(parents=True)
    (cute / "__init__.py").write_text("import cutlass_of_nobody\n")
    importlib.invalidate_caches()
    assert said("flash-attn-4") == "--peers flash-attn-4: flash-attn-4 needs the package cutlass_of_nobody, too"
    (cute / "__init__.py").write_text("raise OSError('no libcuda here')\n")
    assert said("flash-attn-4") == "--peers flash-attn-4: flash-attn-4 cannot be imported: no libcuda here"
    assert said("flash-attn-2").endswith("which is not installed here"), "the folder alone is no version 2"
    assert said("flash-attn").endswith("flash-attn, flash-attn-3 or flash-attn-4: none is installed here")


def test_a_peer_is_named_with_the_version_that_was_measured():
    facts = {"torch": "2.11.0", "cudnn": "9.28.1", "flash_attn_4": "4.0.0b36", "cutlass_dsl": "4.8.1", "gpu": "G"}
    assert with_version("cudnn", facts) == "cudnn (torch 2.11.0, cudnn 9.28.1)"
    assert with_version("fa2", facts) == "fa2 (torch 2.11.0)"
    assert with_version("flash-attn-4", facts) == "flash-attn-4 (flash_attn_4 4.0.0b36, cutlass_dsl 4.8.1)"
    assert with_version("flash-attn-3", facts) == "flash-attn-3", "nothing is claimed of what is not known"


TUTORIAL = """
import triton_of_the_tutorial
"""
MINE = """
def attention(q, k, v, causal, scale):
    if causal:
        raise TypeError("no mask here\\nand more")
    q.asked = scale
    return q
"""


def test_a_function_of_ones_own_is_a_peer(torch, gpu, tmp_path):
    (tmp_path / "my_attention.py").write_text(MINE)
    word = f"{tmp_path}/my_attention.py:attention"
    peers, arrays = run(gpu, "H=4 N=8 d=16 layout=BNHD scale=0.5", (word, "fa2"))
    assert list(peers) == ["FA2", word]
    assert np.shares_memory(answer_of(peers[word])[0], arrays.q)
    with pytest.raises(MachineError, match=r"my_attention\.py:attention: no mask here$"):
        run(gpu, "N=8 d=16 causal", (word,))[0][word].run()


def test_files_of_one_name_in_several_folders_or_of_a_modules_name_are_each_their_own(
    torch, gpu, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "path", [*sys.path])  # or later tests' processes would import this json
    words = tuple(f"{tmp_path}/{name}:attention" for name in ("a/variant.py", "b/variant.py", "json.py"))
    for number, word in enumerate(words):
        file = Path(word.partition(":")[0])
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"def attention(q, k, v, causal, scale):\n    return (q, k, v)[{number}]\n")
    for _ in range(2):  # and again for the next workload
        peers, arrays = run(gpu, "H=4 N=8 d=16", words)
        for word, array in zip(words, (arrays.q, arrays.k, arrays.v), strict=True):
            assert np.shares_memory(answer_of(peers[word])[0], array), word
    assert sys.modules["json"].loads("1") == 1


def test_what_a_peer_of_ones_own_lacks_is_one_sentence(torch, gpu, tmp_path):
    (tmp_path / "fused_attention.py").write_text(TUTORIAL)
    for word, words in (
        (f"{tmp_path}/fused_attention.py:attention", "needs the package triton_of_the_tutorial, which is not"),
        ("tilelang_of_nobody:attention", "needs the package tilelang_of_nobody, which is not installed here"),
        (f"{tmp_path}/nothing.py:attention", "there is no such file"),
        ("json:attention", "--peers json:attention: json has no function attention"),
    ):
        with pytest.raises(MachineError, match=words):
            run(gpu, "N=8 d=8", (word,))


def test_no_torch_is_one_sentence(gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MachineError, match="--peers needs PyTorch, which is not installed here"):
        run(gpu, "N=8 d=8")


def test_torchs_attention_of_a_files_case_is_of_one_head_a_batch_in_float32(torch, gpu):
    made = SimpleNamespace(inputs=fakecupy.new((3, 3, 8, 4), np.float32))
    data = SimpleNamespace(word="float32", operands=FileData.operands.fget(made))
    efficient, math = peers_of_files(gpu, FileCase("x", Shape(3, 8, 4, causal=True), 0))
    efficient.prepare(data)
    (result,) = answer_of(efficient)
    assert torch.pop() == ("EFFICIENT_ATTENTION", "single", (3, 1, 8, 4), {"scale": 0.5, "is_causal": True})
    assert np.shares_memory(result, made.inputs)
    assert (efficient.name, math.name) == ("torch efficient", "torch math")


def test_what_is_optional_and_not_there_is_a_row_with_the_reason(torch, gpu, monkeypatch):
    for name in ("flash_attn", "cudnn", "cudnn.sdpa"):
        monkeypatch.setitem(sys.modules, name, None)
    case = ArrayCase(workload("N=8 d=8"))
    found = peers_of_arrays(gpu, ("cudnn", "flash-attn-4?", "cudnn-frontend?", "nobody:attention?"), case)
    assert [one.name for one in found] == ["cuDNN", "flash-attn 4", "cudnn-frontend", "nobody:attention"]
    assert not any(one.ours for one in found)
    reasons = []
    for one in found[1:]:
        with pytest.raises(MachineError) as error:
            one.prepare(None)
        reasons.append(str(error.value))
    assert reasons == [
        "--peers flash-attn-4 needs the package flash-attn-4, which is not installed here",
        "--peers cudnn-frontend needs the package nvidia-cudnn-frontend, which is not installed here",
        "--peers nobody needs the package nobody, which is not installed here",
    ]
    with pytest.raises(MachineError, match="needs the package nvidia-cudnn-frontend"):
        peers_of_arrays(gpu, ("cudnn-frontend",), case)
    check_peers(("flash-attn-4?", "mine.py:attention?"))
    with pytest.raises(InputError, match="'flash-attn-5' is none of"):
        check_peers(("flash-attn-5?",))


class Autograd:
    """What torch's autograd keeps of a function, and asks of it."""

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors


@pytest.fixture
def frontend(torch, monkeypatch):
    """cudnn-frontend, made up: its calls."""
    calls, made = [], sys.modules["torch"]

    def sdpa(q, k, v, **options):
        calls.append(("forward", options))
        return (q, "lse") if options.get("return_lse") else q

    def sdpa_bwd(*given, **options):
        calls.append(("backward", given[4:], options))
        return "dq", "dk", "dv"

    modules = {name: ModuleType(name) for name in ("cudnn", "cudnn.sdpa", "cudnn.sdpa.fwd", "cudnn.sdpa.fwd.torch_op")}
    modules["cudnn.block_sparse_attention"] = blocks = ModuleType("cudnn.block_sparse_attention")
    modules["cudnn.sdpa.fwd.torch_op"].sdpa = sdpa
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)

    class Index:
        def __init__(self, shape):
            self.shape = shape

        def expand(self, *shape):
            return Index((*shape[:3], self.shape))

        def contiguous(self):
            return self

    def kept(q, k, v, index, **options):
        calls.append(("blocks", index.shape, options))
        return {"o_tensor": q, "lse_tensor": "lse"}

    def kept_backward(*given, **options):
        calls.append(("blocks backward", given[5:6], given[6].shape, options))
        return {"dq_tensor": "dq", "dk_tensor": "dk", "dv_tensor": "dv"}

    blocks.block_sparse_attention_forward, blocks.block_sparse_attention_backward = kept, kept_backward
    made.ops = SimpleNamespace(cudnn=SimpleNamespace(sdpa_bwd=sdpa_bwd))
    made.is_grad_enabled = lambda: False
    made.int32, made.arange = "int32", lambda n, **_: Index(n)

    class Function:
        @classmethod
        def apply(cls, *tensors):
            calls.append(("through autograd",))
            Function.last = cls, Autograd()
            return cls.forward(Function.last[1], *tensors)

    made.autograd = SimpleNamespace(Function=Function)
    calls_of = SimpleNamespace(calls=calls, function=Function, torch=made)
    monkeypatch.setattr(Tensor, "device", "cuda", raising=False)
    return calls_of


@pytest.mark.parametrize("word", ["cudnn-frontend", "cudnn-frontend-deterministic"])
def test_cudnns_own_package_is_asked_for_each_alignment_and_for_gradients_in_either_order(gpu, frontend, word):
    fixed = word.endswith("deterministic")
    name = "cudnn-frontend deterministic" if fixed else "cudnn-frontend"
    for text, causal, right in (
        ("H=4 KVH=2 N=8 d=16", False, False),
        ("H=4 N=8 d=16 causal", True, False),
        ("H=4 N=8 Nk=20 d=16 causal", True, True),
        ("H=4 N=8 Nk=20 d=16 causal align=top-left", True, False),
    ):
        peer = run(gpu, text, (word,))[0][name]
        peer.run()
        asked = {"is_causal": causal, "causal_bottom_right": right}
        assert frontend.calls.pop() == ("forward", {"scale": 0.25, **asked})
        frontend.torch.is_grad_enabled = lambda: True
        peer.run()
        assert frontend.calls == [("through autograd",), ("forward", {"scale": 0.25, "return_lse": True, **asked})]
        frontend.calls.clear()
        function, kept = frontend.function.last
        assert function.backward(kept, "do") == ("dq", "dk", "dv")
        (call,) = frontend.calls
        assert call[0] == "backward" and call[1][-2:] == ("lse", 0.25)
        assert call[2] == {"is_deterministic": fixed, **asked}
        frontend.calls.clear()
        frontend.torch.is_grad_enabled = lambda: False
    assert run(gpu, "N=8 d=16 dtype=fp32", (word,))[0] == {}, "it has no float32"


def test_cudnns_own_kernels_keep_every_block_and_have_no_mask(gpu, frontend):
    name = "cudnn-frontend blocks"
    peer = run(gpu, "B=2 H=4 N=256 Nk=384 d=64", ("cudnn-blocks",))[0][name]
    peer.run()
    options = {"softmax_scale": 0.125, "sparse_block_size": 128}
    assert frontend.calls == [("through autograd",), ("blocks", (2, 4, 2, 3), options)]
    function, kept = frontend.function.last
    assert function.backward(kept, "do") == ("dq", "dk", "dv")
    assert frontend.calls[-1] == ("blocks backward", ("lse",), (2, 4, 2, 3), options)
    for text in ("N=256 d=64 causal", "N=250 d=64"):
        with pytest.raises(MachineError, match="blocks has no mask, and whole blocks of 128 rows and keys alone"):
            run(gpu, text, ("cudnn-blocks",))[0][name].run()


@pytest.mark.parametrize("word", ["cudnn-flex", "cudnn-flex-deterministic"])
def test_cudnns_own_kernels_of_intervals_plan_where_each_rows_keys_end(gpu, frontend, monkeypatch, capsys, word):
    class Ends(np.ndarray):
        def repeat(self, count):
            return np.concatenate([self] * count)

    def plan(ends, *tensors):
        print("Compiled mask-plan classify in 2.0s")
        plans.append((ends.tolist(), [x.array.shape for x in tensors]))
        return "the plan"

    made, asked, plans = frontend.torch, [], []
    made.arange = lambda n, **_: np.arange(n).view(Ends)
    made.full_like = np.full_like
    monkeypatch.setitem(sys.modules, "cudnn.flex_attention", module := ModuleType("cudnn.flex_attention"))
    module.create_mask_plan = plan
    module.flex_attn_func = lambda q, k, v, **options: (asked.append(options), q)[1]
    fixed = word.endswith("deterministic")
    for text, ends in (
        ("H=4 KVH=2 N=3 Nk=5 d=16", [5, 5, 5]),
        ("B=2 H=4 KVH=2 N=3 Nk=5 d=16 causal", [3, 4, 5, 3, 4, 5]),
        ("H=4 N=3 Nk=5 d=16 causal align=top-left", [1, 2, 3]),
        ("H=4 N=5 Nk=3 d=16 causal", [0, 0, 1, 2, 3]),
    ):
        (peer,) = run(gpu, text, (word,))[0].values()
        assert peer.name == "cudnn-frontend flex" + " deterministic" * fixed
        peer.run(), peer.run()
        assert asked == [{"softmax_scale": 0.25, "deterministic": fixed, "mask_plan": "the plan"}] * 2
        ((found, shapes),) = plans
        assert found == [[ends]], "one plan, of all batches one behind the other"
        assert shapes[0][1] == len(ends) // shapes[0][0] and shapes[0][2:] == (4, 16), "(batch, N, heads, d)"
        asked.clear(), plans.clear()
    assert not capsys.readouterr().out, "what it prints is not among a benchmark's lines"


def test_tlx_has_no_mask_and_no_gradients(torch, gpu, monkeypatch):
    names = "triton triton.language triton.language.extra triton.language.extra.tlx triton.language.extra.tlx.tutorials"
    place = "triton.language.extra.tlx.tutorials.hopper_fa_ws_pipelined_pingpong_persistent"
    for name in (*names.split(), place):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    asked = []
    sys.modules[place].attention = lambda q, k, v, scale: (asked.append(scale), q)[1]
    monkeypatch.setattr(Tensor, "requires_grad", False, raising=False)
    run(gpu, "N=256 d=64", ("tlx",))[0]["TLX"].run()
    assert asked == [0.125]
    for text in ("N=256 d=64 causal", "N=200 d=64", "H=4 KVH=2 N=256 d=64", "N=256 Nk=512 d=64"):
        with pytest.raises(MachineError, match="TLX has no mask, no shared heads, and as many keys as rows"):
            run(gpu, text, ("tlx",))[0]["TLX"].run()
    monkeypatch.setattr(Tensor, "requires_grad", True, raising=False)
    with pytest.raises(MachineError, match="TLX has no gradients"):
        run(gpu, "N=256 d=64", ("tlx",))[0]["TLX"].run()


def test_triton_without_tlx_is_not_fbtriton(torch, gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    with pytest.raises(MachineError, match="--peers tlx needs the package fbtriton, which is not installed here"):
        run(gpu, "N=256 d=64", ("tlx",))


def test_flex_attention_is_compiled_for_each_workload_in_the_precision_that_is_named(torch, gpu, monkeypatch):
    asked, made = [], sys.modules["torch"]
    module = ModuleType("torch.nn.attention.flex_attention")
    module.flex_attention = "eager"
    module.create_block_mask = lambda seen, *sizes, device: (sizes, [seen(0, 0, 2, key) for key in (2, 3, 14, 15)])
    monkeypatch.setitem(sys.modules, "torch.nn.attention.flex_attention", module)
    monkeypatch.setattr(Tensor, "device", "cuda", raising=False)
    resets = []
    made._dynamo = SimpleNamespace(reset=lambda: resets.append(1))
    made.compile = lambda function, dynamic: lambda q, k, v, **options: (asked.append((function, options)), q)[1]
    peers, _ = run(gpu, "H=4 KVH=2 N=8 Nk=20 d=16 dtype=fp32 causal", ("flex", "flex-tf32"))
    assert list(peers) == ["FlexAttention", "FlexAttention TF32"]
    for peer in peers.values():
        peer.run()
    assert [function for function, _ in asked] == ["eager", "eager"] and len(resets) == 2
    precisions = [options["kernel_options"] for _, options in asked]
    assert precisions == [{"FLOAT32_PRECISION": "'ieee'"}, {"FLOAT32_PRECISION": "'tf32'"}]
    mask = (None, None, 8, 20), [True, True, True, False]
    assert all(options["block_mask"] == mask and options["enable_gqa"] for _, options in asked)
    peers, _ = run(gpu, "H=4 N=8 d=16", ("flex", "flex-tf32"))
    assert list(peers) == ["FlexAttention"], "TF32 is of float32"
    peers["FlexAttention"].run()
    assert asked[-1][1] == {"scale": 0.25, "enable_gqa": False, "block_mask": None}
