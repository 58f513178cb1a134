"""`hw4 selftest`: what is right passes, each way of being wrong is found, and the command that it prints repeats it."""

import json
import shlex
import signal
import time
from itertools import count

import numpy as np
import pytest
from definitions import of_block
from helpers import HANGS, fails, start_hw4
from slow import slow

from hw4cli.cli import run_command
from hw4cli.lab import selftest
from hw4cli.lab.randomcases import KINDS, RandomCase, draw
from hw4cli.lab.selftest import UNWRITTEN, CpuBackend, Summary, allowed, outcomes, run_case
from hw4cli.plans.bounds import bound
from hw4cli.plans.launch import SQUARES_UNIT, magnitudes
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.casefile import magnitudes_of
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Shape
from hw4cli.stream.tiled import tiled_attention
from hw4cli.text.words import counted


def without_key(block, key):
    """O of all rows without one key."""
    keys = np.delete(np.arange(block.shape[2]), key)
    return of_block(block, keys=keys).astype(np.float32)


def one_unwritten(answer):
    answer.view(np.uint32)[-1, -1, -1] = UNWRITTEN
    return answer


def one_nan(answer):
    answer[0, 0, -1] = np.nan
    return answer


def beyond(block, answer, factor):
    """An answer with one element off by what is allowed times a factor."""
    _, _, N, d = block.shape
    exact = exact_attention(block)[-1, 0, 0]
    answer[-1, 0, 0] = exact + factor * allowed("float32", magnitudes_of(block[-1:]), d, N, DEVICES[90])
    return answer


TURN = count()
FAULTS = {
    "drops the last key": lambda block, answer: without_key(block, -1) if block.shape[2] > 1 else answer,
    "gives a key behind the end a weight": lambda block, answer: tiled_attention(
        np.concatenate([block, np.zeros_like(block[:, :, :1])], axis=2)
    )[:, :-1],
    "swaps the batches": lambda block, answer: answer[::-1].copy(),
    "leaves an element unwritten": lambda block, answer: one_unwritten(answer),
    "computes NaN": lambda block, answer: one_nan(answer),
    "is off by twice its bound": lambda block, answer: beyond(block, answer, 2),
    "gives other bits every time": lambda block, answer: answer * np.float32(1 + next(TURN) % 2 * 2**-23),
    "takes Q for K": lambda block, answer: tiled_attention(block[:, [1, 0, 2]]),
}
WORDS = {
    "leaves an element unwritten": " not written",
    "gives other bits every time": " different in a second run",
}


@pytest.fixture(params=FAULTS)
def fault(request, monkeypatch):
    """The CPU's computation with a fault; the name of it."""

    def compute(self, kernel, block):
        return FAULTS[request.param](block, tiled_attention(block))

    monkeypatch.setattr(CpuBackend, "compute", compute)
    return request.param


def small(number):
    """Trials of the CPU that take next to no time."""
    return next(case for n in count(1000 * number) if (case := draw(1, n, "cpu", "float32")).shape.flops < 5e7)


def test_a_wrong_answer_is_found_and_the_command_repeats_it(fault, capsys):
    number = next(
        n for n in range(300) if draw(1, n, "cpu").shape.flops < 5e8 and run_case(draw(1, n, "cpu"), CpuBackend()).wrong
    )
    assert run_command(["selftest", "--device", "cpu", "--seed", "1", "--number", str(number)]) == 1
    printed = capsys.readouterr().out
    assert WORDS.get(fault, " off by ") in printed
    wrong, command = (line.strip() for line in printed.splitlines() if "wrong: " in line or "hw4 selftest" in line)
    assert wrong.startswith(f"wrong: {draw(1, number, 'cpu')}: ")
    assert run_command(shlex.split(command)[1:]) == 1
    assert wrong in capsys.readouterr().out


def test_an_error_within_the_bound_is_right(monkeypatch):
    monkeypatch.setattr(CpuBackend, "compute", lambda self, kernel, block: beyond(block, tiled_attention(block), 0.8))
    found = [run_case(small(number), CpuBackend()) for number in range(20)]
    assert [outcome.wrong for outcome in found] == [""] * 20
    assert 0.7 < max(outcome.share for outcome in found) < 0.9


def test_each_batch_is_held_to_the_bound_for_its_own_values(monkeypatch):
    """The bound for the block would hide what is wrong in a batch of small values."""

    def compute(self, kernel, block):
        answer = tiled_attention(block)
        answer[0, 0, 0] += 10 * allowed(kernel, magnitudes_of(block[:1]), 32, 40, DEVICES[90])
        return answer

    class Scaled(RandomCase):
        def block(self):
            block = super().block()
            block[1] *= 100
            return block

    monkeypatch.setattr(CpuBackend, "compute", compute)
    outcome = run_case(Scaled("float32", Shape(2, 40, 32), "uniform", 1), CpuBackend())
    assert "1 element off by" in outcome.wrong
    assert "the first in batch 0, row 0, column 0" in outcome.wrong


def test_the_oracle_is_checked_too(monkeypatch):
    monkeypatch.setattr(CpuBackend, "oracle", lambda self, block: exact_attention(block) * np.float32(1 + 1e-4))
    assert "the float64 answer that it is compared with is itself off by" in run_case(small(0), CpuBackend()).wrong


@pytest.mark.parametrize(("batch", "words"), [(7, "off by"), (5, "larger than V"), (0, "larger than V"), (4, "off by")])
def test_of_a_large_trial_some_batches_are_compared_the_last_one_too_and_all_are_looked_at(monkeypatch, batch, words):
    case = RandomCase("float32", Shape(8, 40, 8), "uniform", 1)
    monkeypatch.setattr(selftest, "ORACLE_FLOPS", case.shape.flops // 3 + 1)

    def compute(self, kernel, block):
        answer = tiled_attention(block)
        answer[batch, 3, 4] = 4
        return answer

    asked = []
    monkeypatch.setattr(CpuBackend, "compute", compute)
    monkeypatch.setattr(CpuBackend, "oracle", lambda self, block: asked.append(len(block)) or exact_attention(block))
    wrong = run_case(case, CpuBackend()).wrong
    assert asked == [3]
    assert words in wrong
    assert f"the first in batch {batch}, row 3, column 4" in wrong


def test_what_is_allowed_is_the_bound_or_four_times_an_estimate_and_o_is_a_mean_of_v():
    props, found, large = DEVICES[90], (3, 3, 3), (3000, 3000, 3)
    assert allowed("flash", found, 64, 4096, props) == pytest.approx(bound("flash", found, 64, 4096, props))
    assert allowed("naive", found, 64, 4096, props) == pytest.approx(4 * bound("naive", found, 64, 4096, props))
    assert bound("flash", large, 64, 4096, props) == np.inf
    assert allowed("flash", large, 64, 4096, props) == pytest.approx(6, rel=0.01)
    assert allowed("split", (3, 3, 1e5), 64, 4096, props) == np.inf


def test_trials_end_when_the_time_is_over_and_one_is_made_in_any_case():
    assert len(list(outcomes(CpuBackend(), small, 0))) == 1
    assert len(list(outcomes(CpuBackend(), small, 0.5))) > 1


def test_a_summary_counts_each_sort_of_outcome():
    summary, case = Summary(), small(0)
    for number in range(4):
        summary.add(run_case(small(number), CpuBackend()))
    summary.add(selftest.Outcome(case, wrong="off"))
    summary.add(selftest.Outcome(case, skipped="no room"))
    assert summary.cases == 5
    assert summary.kernels["float32"].right == 4
    assert 0 < summary.kernels["float32"].share < 1
    assert [outcome.case for outcome in summary.wrong] == [case]
    assert summary.skipped == {"no room": 1}


@slow
def test_the_cpu_passes_some_seconds_of_it(hw4):
    result = hw4("selftest", "--device", "cpu", "--minutes", 0.05)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1].split(",")[1].startswith(" all right (seed 0")


def test_json_holds_the_whole_summary(hw4):
    result = hw4("selftest", "--device", "cpu", "--minutes", 0.01, "--seed", 5, "float64", "--json")
    found = json.loads(result.stdout)
    assert result.returncode == 0
    assert found["cases"] == found["kernels"]["float64"]["right"] >= 1
    assert found["kernels"]["float64"].keys() == {"right", "max_error", "rms_error", "share_of_allowed"}
    assert (found["seed"], found["interrupted"], found["wrong"], found["skipped"]) == (5, False, [], {})


def test_one_shape_is_tested_with_each_kind_of_data_and_the_root_of_the_mean_square_is_shown(hw4):
    result = hw4("selftest", "--device", "cpu", "float32", "2,70,16", "--seed", 3, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["cases"] == len(KINDS)
    row = found["kernels"]["float32"]
    assert 0 < row["rms_error"] < row["max_error"]
    assert "RMS error" in hw4("selftest", "--device", "cpu", "float32", "2,70,16").stdout


def test_the_root_of_the_mean_square_is_that_of_all_errors():
    case = RandomCase("float32", Shape(1, 40, 8), next(iter(KINDS)), 1)
    block = case.block()
    errors = np.abs(tiled_attention(block, np.float32) - exact_attention(block)) / np.abs(block[:, 2]).max()
    assert run_case(case, CpuBackend()).rms == pytest.approx(float(np.sqrt((errors**2).mean())), rel=1e-5)


def test_json_holds_the_commands_of_what_is_wrong(monkeypatch, capsys):
    monkeypatch.setattr(CpuBackend, "compute", lambda self, kernel, block: one_nan(tiled_attention(block)))
    assert run_command(["selftest", "--device", "cpu", "--number", "0", "--json"]) == 1
    (wrong,) = json.loads(capsys.readouterr().out)["wrong"]
    case = draw(0, 0, "cpu")
    assert wrong.pop("reason").startswith("1 element off by nan")
    shape = [case.shape.B, case.shape.N, case.shape.d]
    assert wrong == {"kernel": case.kernel, "shape": shape, "data": case.kind, "command": case.command}


def test_what_is_wrong_is_told_at_once_too(monkeypatch, capsys):
    monkeypatch.setattr(CpuBackend, "compute", lambda self, kernel, block: one_nan(tiled_attention(block)))
    assert run_command(["selftest", "--device", "cpu", "--minutes", "0.001", "float32"]) == 1
    out, err = capsys.readouterr()
    first, last = err.splitlines()[1], out.splitlines()[-1]
    assert first == "wrong: hw4 selftest float32 --seed 0 --number 0 --device cpu"
    assert first.removeprefix("wrong: ") in out
    assert last.startswith(f"{counted(out.count('wrong: '), 'case')}, {out.count('wrong: ')} wrong (seed 0")


@slow
def test_ctrl_c_tells_what_was_found_so_far():
    process = start_hw4("selftest", "--device", "cpu", "--minutes", 5)
    assert process.stderr.readline().startswith("testing ")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANGS)
    assert process.returncode == 130
    assert " (seed 0" in out.splitlines()[-1]
    assert err.splitlines()[-1] == "hw4: interrupted"


def test_without_a_gpu_it_says_so(hw4):
    fails(hw4("selftest", "--device", "cuda", env={"CUDA_VISIBLE_DEVICES": "-1"}), 3, "no GPU can be used")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--number", 1, "--minutes", 2], "--minutes does not go with --number"),
        (["float32", "1,9,8", "--minutes", 2], "--minutes is of random shapes"),
        (["float32", "1,9,8", "--number", 2], "--number is of random shapes"),
        (["--minutes", "nan"], "nan is not a number"),
        (["--device", "cpu", "flash"], "--device cpu has no kernel 'flash'"),
        (["--device", "cuda", "float32"], "--device cuda has no kernel 'float32'"),
    ],
)
def test_what_cannot_be_meant_is_refused(hw4_here, words, said):
    fails(hw4_here("selftest", *words), 2, said)


@pytest.mark.parametrize("d", range(4, 129, 4))
def test_squares_of_tiny_elements_that_a_kernel_rounds_up_are_no_mistake(d):
    """Each counts as 2^-7 then, and so the norm as much as the self-test allows, but for its own rounding."""
    squares = d * SQUARES_UNIT
    found = magnitudes([1e-18, squares, 1e-18, squares, 1])
    assert selftest._is_norm(found.q_norm, 1e-18 * d**0.5, d)
    assert not selftest._is_norm(found.q_norm * 1.01, 1e-18 * d**0.5, d)
