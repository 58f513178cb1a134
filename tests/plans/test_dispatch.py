"""Which kernel answers: the fastest whose bound holds, for each GPU, shape and range; and what is said about it."""

import math
import re

import pytest
from helpers import ROOT

import hw4cli.plans.dispatch
from benchmarks.pages.chosen import GPUS, HEAD_SIZES, MARKED, TABLES, answering, with_chosen
from hw4cli.errors import InputError
from hw4cli.plans.bounds import SAFE, TYPICAL, bound, suffices, uniform
from hw4cli.plans.dispatch import AUTO, Choice, auto_by_length, candidates, on_cpu
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES

pytestmark = pytest.mark.skipif("split" not in VARIANTS, reason="the ladder has no kernel split")
H200 = (DEVICES[90], "NVIDIA H200")


def choice(kernel=AUTO, gpu=H200, d=64, N=1024, allowed=None):
    return Choice(*candidates(kernel, *gpu, d, N), d, N, gpu[0], allowed)


def test_a_kernel_of_ones_own_answers_for_all_values_and_nothing_is_promised_of_its_error():
    this = choice("./mine.cu")
    assert this.first == "./mine.cu"
    for found in (TYPICAL, (1e15, 1e15, 1e15)):
        assert this.kernel_for(found) == "./mine.cu"
        this.note("./mine.cu", 3, found)
    assert this.summary().startswith("kernel: 6 batches by ./mine.cu, asked for; no bound of its error is known")
    assert this.exceptions_sentence() is None
    with pytest.raises(InputError, match="--max-error"):
        choice("./mine.cu", allowed=1.0).kernel_for((1e-9, 1e-9, 1e-9))


@pytest.mark.parametrize("d", [32, 64])
@pytest.mark.parametrize("N", [128, 1024, 1199, 1200, 2048, 32768])
def test_the_assignments_cases_are_computed_by_split_on_an_h200_and_long_rows_by_split8(d, N):
    expected = "split8" if d == 64 and N >= 1200 else "split"
    assert choice(d=d, N=N).first == choice(d=d, N=N).kernel_for((3, 3, 3)) == expected


def test_long_rows_whose_elements_are_too_large_for_integers_are_computed_by_split():
    this = choice(N=8192)
    assert [this.kernel_for((q, k, 3)) for q, k in ((3.0029, 3.0029), (3.003, 3), (3, 3.2))] == [
        "split8",
        "split",
        "split",
    ]
    assert choice("split8", N=8192).kernel_for((3, 3.2, 3)) == "split"
    assert this.kernel_for((3, 3, 6)) == choice("split", N=8192).kernel_for((3, 3, 6)) == "exact"
    firsts = {N: candidates(AUTO, *H200, 64, N, causal=True)[0][0] for N in (2048, 4095, 4096, 32768)}
    assert firsts == {2048: "split", 4095: "split", 4096: "split8", 32768: "split8"}
    assert choice(N=8192).why == "measured fastest on compute capability 9.0 at d=64 from N=1200 on"


def test_what_auto_takes_is_listed_for_rows_of_few_keys_and_of_many_where_that_differs():
    listed = {d: [(least, kernels[0]) for least, kernels, _ in auto_by_length(*H200, d)] for d in (32, 64, 128)}
    assert listed == {32: [(1, "split")], 64: [(1, "split"), (1200, "split8")], 128: [(1, "split")]}
    assert [kernels for _, kernels, _ in auto_by_length(DEVICES[61], "", 64)] == [("flash", "float64")]
    for least, kernels, why in auto_by_length(*H200, 64):
        assert (kernels, why) == candidates(AUTO, *H200, 64, least)


@pytest.mark.parametrize(("d", "named"), [(32, False), (64, True)])
def test_the_ladder_names_the_kernel_of_long_rows_where_it_is_another(hw4, d, named):
    said = hw4("explain", f"1,4096,{d}", env={"CUDA_VISIBLE_DEVICES": "-1"}).stderr
    assert ("the first of split8" in " ".join(said.split())) == named


@pytest.mark.parametrize(
    ("cc", "name", "few", "many"),
    [
        (61, "NVIDIA GeForce GTX 1080", "flash", "flash"),
        (75, "Tesla T4", "flash", "flash"),
        (86, "NVIDIA GeForce RTX 3090", "flash", "split8"),
        (89, "NVIDIA GeForce RTX 4090", "flash", "split8"),
        (120, "NVIDIA GeForce RTX 5090", "flash", "split8"),
        (80, "NVIDIA A100-SXM4-80GB", "split", "split8"),
        (89, "NVIDIA L40S", "split", "split8"),
        (90, "NVIDIA H100 80GB HBM3", "split", "split"),
        (100, "NVIDIA B200", "split", "split"),
    ],
)
@pytest.mark.parametrize("d", [32, 64])
def test_split_is_preferred_where_tensor_cores_are_a_gain_and_split8_where_integers_are(d, cc, name, few, many):
    equal = d == 32 and few == "split"
    for N, first in ((256, few), (257, many), (1024, many)):
        kernels, why = candidates(AUTO, DEVICES[cc], name, d, N)
        assert kernels[0] == ("split" if equal else first)
        assert ("split8" in kernels) == (first == "split8")
        assert kernels[-1] == "float64"
        assert ("measured" if cc == 90 else "predicted") in why
    (least, listed, _), *more = auto_by_length(DEVICES[cc], name, d)
    assert (least, listed[0]) == (1, few)
    assert [(n, "split8" in kernels) for n, kernels, _ in more if cc != 90] == ([] if few == many else [(257, True)])


@pytest.mark.parametrize("gpu", [gpu for gpu, (props, name) in GPUS.items() if props.cc >= 80 and not props.gfx])
def test_wide_heads_of_the_assignments_range_are_computed_by_split_where_tensor_cores_are_a_gain(gpu):
    props, name = GPUS[gpu]
    answers = {choice(gpu=(props, name), d=d, N=N).first for d in (68, 100, 128) for N in (1, 250, 1200, 32768)}
    assert answers == {"flash" if "GeForce" in name else "split"}


def test_an_h100_is_ranked_as_an_h200_is():
    """The records are of a compute capability, not of a product's name."""
    assert candidates(AUTO, DEVICES[90], "NVIDIA H100 80GB HBM3", 64, 1024) == candidates(AUTO, *H200, 64, 1024)
    assert candidates(AUTO, *H200, 64, 1024)[1] == "measured fastest on compute capability 9.0 at d=64"


def test_a_head_size_beyond_the_records_is_not_called_measured(monkeypatch):
    monkeypatch.setattr(hw4cli.plans.dispatch, "FASTEST", {90: {32: ("split", "flash"), 64: ("exact", "flash")}})
    whys = {d: candidates(AUTO, *H200, d, 1024) for d in (20, 32, 36, 64, 96, 128)}
    assert [kernels[0] for kernels, _ in whys.values()] == ["split", "split", *["exact"] * 4]
    assert [d for d, (_, why) in whys.items() if f"not measured at d={d}" in why] == [96, 128]
    assert whys[20][1] == "measured fastest on compute capability 9.0 at d=32"


@pytest.mark.parametrize(
    ("found", "allowed", "kernel"),
    [
        ((3, 3, 3), None, "split"),
        ((1, 1, 1), 1e-3, "split"),
        ((3, 3, 3), 1e-3, "exact"),
        ((3, 3, 3), 1e-4, "exact"),
        ((3, 3, 3), 1e-6, "float64"),
        ((1e-3, 1e-3, 3e-5), 1e-6, "split"),
        ((3, 3, 6), None, "exact"),
        ((20, 20, 3), None, "float64"),
        ((20, 20, 3, 30, 30), None, "split"),  # large elements that are few
        ((20, 20, 3, 50, 50), None, "exact"),
        ((20, 20, 3, 80, 80), None, "float64"),
        ((20, 20, 3, math.inf, 0.1), None, "split"),
        ((20, 20, 3, 30, 30), 1e-3, "exact"),
        ((20, 20, 3, 40, math.inf), None, "float64"),
        ((30, 30, 3), None, "float64"),
        ((1e-3, 1e-3, 1e30), None, "float64"),
        ((1e20, 1e20, 3), None, "float64"),
    ],
)
def test_the_range_and_the_allowed_error_decide(found, allowed, kernel):
    assert choice(allowed=allowed).kernel_for(found) == kernel


def test_the_page_says_which_kernel_runs_where():
    page = (ROOT / "docs/which-kernel.md").read_text()
    assert with_chosen(page) == page, "run make results"
    assert {name for _, name, _ in MARKED.findall(page)} == set(TABLES)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("d", HEAD_SIZES)
def test_the_pages_words_are_what_answers_rows_of_any_length(gpu, d):
    """At both sides of each change, and at the assignment's lengths."""
    props, name = GPUS[gpu]
    words = answering(props, name, d)
    parts = re.findall(r"`(\w+)`(?: to N = ([\d,]+))?", words)
    ends = [(int(end.replace(",", "")) if end else 32768, kernel) for kernel, end in parts]
    for N in {128, 512, 2048, 8192, 32768, *(end for end, _ in ends), *(end + 1 for end, _ in ends[:-1])}:
        assert choice(gpu=(props, name), d=d, N=N).first == next(kernel for end, kernel in ends if end >= N)


def test_the_chosen_kernel_always_suffices_and_a_faster_one_never_does():
    for size in (1e-6, 1e-2, 1, 2, 2.9, 3, 3.5, 4, 5, 8, 20):
        for d in (4, 32, 64, 128):
            for N in (1, 128, 32768, 1 << 20):
                this = choice(d=d, N=N)
                kernel = this.kernel_for((size, size, size))
                passed_over = this.kernels[: this.kernels.index(kernel)]
                assert not any(suffices(name, (size,) * 3, d, N, DEVICES[90], SAFE) for name in passed_over)
                assert kernel == "float64" or bound(kernel, (size,) * 3, d, N) <= SAFE


def test_a_kernel_that_is_asked_for_is_taken_where_it_suffices_and_else_a_more_exact_one():
    assert choice("flash").kernel_for((3, 3, 3)) == "flash"
    assert choice("flash").kernel_for((30, 30, 3)) == "float64"
    assert choice("split", d=128).kernel_for((1, 1, 1)) == "split"
    assert choice("split", d=128).kernel_for((3, 3, 3)) == "split"
    assert choice("split", d=128).kernel_for((4, 4, 4)) in ("exact", "flash")
    assert choice("warp").kernels == ("warp", "float64")
    assert choice("float64").kernels == ("float64",)


def test_where_the_usual_range_is_too_much_for_the_fastest_groups_start_with_the_next():
    assert choice(d=128, allowed=2.7e-3).first == "exact"
    assert choice(allowed=1e-4).first == "exact"
    assert choice(allowed=1e-9).first == "float64"


def test_an_error_that_none_can_keep_is_refused_where_it_was_asked_for():
    with pytest.raises(
        InputError, match=r"--max-error 1e-08 is less than any kernel can keep .* float64 keeps 1.8e-07"
    ):
        choice(allowed=1e-8).kernel_for((3, 3, 3))
    assert choice().kernel_for((1e38, 1e38, 1e38)) == "float64"


def test_timing_states_the_kernels_with_their_bounds_and_why():
    this = choice()
    for found, batches in (((3, 3, 3), 12), ((2, 2, 2), 3), ((30, 30, 3), 2)):
        this.note(this.kernel_for(found), batches, found)
    summary = this.summary()
    assert summary.startswith("kernel: 15 batches by split, error at most 2.6e-03, ")
    assert "2 batches by float64, error at most 1.8e-07; allowed 0.004; preferred split: measured fastest on" in summary
    assert "norms" not in summary
    assert this.exceptions_sentence() == (
        "2 batches had values too large for split: computed more exactly, 2 in float64"
    )


def test_timing_tells_what_the_norms_are_good_for():
    this = choice()
    this.note("split", 4, (3, 3, 3, 9, 9))
    assert this.summary().startswith("kernel: 4 batches by split, error at most 2.4e-03 (2.6e-03 without norms); ")
    this.note("split", 1, (60, 60, 3, 9, 9))
    assert this.summary().startswith("kernel: 5 batches by split, error at most 2.5e-03 (1.2e-01 without norms); ")
    this.note("split", 1, (900, 900, 3, 9, 9))
    assert "error at most 2.5e-03 (no bound without norms); " in this.summary()


def test_groups_start_with_the_kernel_that_is_enough_for_uniform_data():
    """A row of threes would be too long for split and an error of 3e-3, but no row of uniform data is."""
    this = choice(d=128, N=2048, allowed=3e-3)
    assert this.first == this.kernel_for(uniform(128)) == "split"
    assert this.kernel_for((3, 3, 3)) == this.kernel_for((3, 3, 3, 33, 33)) == "exact"


def test_a_faster_kernel_than_usual_is_no_exception():
    this = choice(d=128)
    this.note(this.kernel_for((1, 1, 1)), 5, (1, 1, 1))
    assert this.exceptions_sentence() is None
    assert "5 batches by split" in this.summary()


def test_the_cpu_has_two_ways():
    assert on_cpu(64, 4096, None).kernel_for(TYPICAL) == "float32"
    assert on_cpu(64, 4096, 1e-6).kernel_for(TYPICAL) == "float64"
    assert on_cpu(64, 4096, None).kernel_for((1e20, 1e20, 1)) == "float64"
