"""Submissions on workloads of arrays: kernels of hw4's and functions of torch's tensors, in any pass, on a GPU that is
made up; and submissions on a node that srun gives."""

import json
import stat
import sys
from itertools import pairwise

import fakegpu
import pytest
from helpers import fails

from hw4cli.lab.contender import Contender, KernelResult, Prepared, WrongAnswerError
from hw4cli.lab.sampling import Measurement
from hw4cli.show.leaderboard import stages
from hw4cli.show.leaderboard.entries import NAME, read

TILELANG = "tilelang"  # (4, 64, 8192, 128) fp16, as a public leaderboard has it
# The process of the ranked run: it says which job it got, and answers as one that took 12 ms does.
RANKED = """
import json, sys
job = json.load(sys.stdin)
open({seen!r}, "w").write(json.dumps(job))
samples = [12.0 + 0.001 * n for n in range(10)]
print(json.dumps({{"status": "ranked", "reason": "", "max_error": 1e-4, "samples": samples}}))
"""


class Steady(Contender):
    """What takes 10 ms, and is right unless its name says otherwise."""

    def prepare(self, data):
        return {}

    def run(self):
        pass

    def answer(self):
        return ()


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A made-up GPU, on which all takes 10 ms: the jobs of this process, and the file that the ranked one fills."""
    jobs, seen = [], tmp_path / "ranked.json"
    monkeypatch.setattr(stages, "Gpu", None)
    monkeypatch.setattr(stages, "GpuTimer", None)
    fakegpu.install(stages)

    def contender_of(timer, job):
        jobs.append(dict(job))
        return Steady(job["kernel"]), None

    def prepare(timer, contenders, case):
        (one,) = contenders
        if "wrong" in one.name:
            row = KernelResult(one.name, "w", (1, 1, 1), "wrong", "a gradient is off by half")
            return Prepared(rows={one.name: row})
        return Prepared([Measurement(one.name, one.run, {}, 1e-4)])

    def take_turns(timer, measurements, sampling):
        from hw4cli.device.timing import Sample

        measurements[0].samples += [Sample(10.0 + 0.001 * n, 0.1, 1.0, False) for n in range(10)]

    monkeypatch.setattr(stages, "contender_of", contender_of)
    monkeypatch.setattr(stages, "prepare", prepare)
    monkeypatch.setattr(stages, "take_turns", take_turns)
    monkeypatch.setattr(stages, "python_command", lambda *_: [sys.executable, "-c", RANKED.format(seen=str(seen))])
    return jobs, seen


def test_a_kernel_of_16_bits_stands_on_the_board_of_its_workload_beside_what_others_published(gpu, hw4_here, tmp_path):
    jobs, seen = gpu
    result = hw4_here("leaderboard", "half", TILELANG, "--user", "ann")
    assert result.returncode == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()][:3] == ["test", "benchmark", "ranked"]
    (entry,) = read(tmp_path / "leaderboard").entries
    assert entry.workload.words == "(4, 64, 8192, 128) float16"
    assert entry.program == "half"
    ranked = json.loads(seen.read_text())
    assert {job["seed"] for job in jobs} == {0}, "the test and the benchmark have data that the user can have, too"
    assert (ranked["kernel"], ranked["workload"], ranked["direction"]) == ("half", TILELANG, "forward")
    assert entry.seed == ranked["seed"] not in (0, None), "the ranked run's seed is nobody's before it runs"


def test_each_pass_has_a_board_of_its_own(gpu, hw4_here, tmp_path):
    for direction in ("bwd", "both"):
        result = hw4_here("leaderboard", "backward_wgmma", "lm16k", "--pass", direction, "--user", "ann")
        assert result.returncode == 0, result.stderr
    boards = [entry.workload.words for entry in read(tmp_path / "leaderboard").entries]
    sizes = "(1, 16, 16384, 64) bfloat16, causal"
    assert boards == [f"{sizes}, backward", f"{sizes}, forward+backward"]
    assert json.loads(gpu[1].read_text())["direction"] == "both"
    shown = hw4_here("leaderboard").stdout
    assert "757" in shown
    assert "746" in shown, "what others published stands below each"


def test_a_function_of_torchs_tensors_is_an_entry_by_its_file(gpu, hw4_here, tmp_path):
    (tmp_path / "mine.py").write_text("def attention(q, k, v, causal, scale):\n    return q\n")
    result = hw4_here("leaderboard", TILELANG, "--program", "mine.py:attention", "--user", "ann")
    assert result.returncode == 0, result.stderr
    (entry,) = read(tmp_path / "leaderboard").entries
    assert entry.program == "mine.py:attention"
    assert len(entry.sha256) == 64
    assert {"ram", "glibc", "python"} <= set(entry.facts)


def test_a_peer_is_an_entry_with_the_version_that_was_measured(gpu, hw4_here, tmp_path, monkeypatch):
    versions = {"torch": "2.11.0", "cudnn": "9.28.1", "flash_attn_4": "4.0.0b36"}
    monkeypatch.setattr(stages, "machine", lambda gpu, others=False: {**gpu, **(versions if others else {})})
    for word in ("cudnn", "flash-attn-4"):
        result = hw4_here("leaderboard", "lm16k", "--program", word, "--pass", "both", "--user", "ann")
        assert result.returncode == 0, result.stderr
    cudnn, fourth = read(tmp_path / "leaderboard").entries
    assert cudnn.program == "cudnn (torch 2.11.0, cudnn 9.28.1)"
    assert fourth.program == "flash-attn-4 (flash_attn_4 4.0.0b36)"
    assert json.loads(gpu[1].read_text())["kernel"] == "flash-attn-4"
    assert versions.items() <= fourth.facts.items()


def test_a_wrong_function_ends_in_its_first_stage(gpu, hw4_here, tmp_path):
    (tmp_path / "wrong.py").write_text("")
    result = hw4_here("leaderboard", TILELANG, "--program", "wrong.py:f", "--user", "ann")
    assert (result.returncode, result.stdout) == (1, "test       wrong: a gradient is off by half\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("half", "gqa"), "is on no board"),
        (("half", "N=4096 d=128 dv=8"), "is on no board"),  # about half of the work
        (("half", TILELANG, "--pass", "bwd"), "is not a kernel for the backward pass"),
        (("flash", TILELANG), "flash computes files"),
        (("flash", "2,64,8", "--pass", "bwd"), "--pass goes with a workload"),
        ((TILELANG, "--program", "./mine"), "on a workload --program is a function"),
        (("half", "2,64,8"), "half computes arrays"),
        (("--srun", "-p nvidia"), "--srun goes with a submission"),
        ((TILELANG,), "boards are shown by case"),
    ],
)
def test_what_no_board_takes_is_one_sentence_before_a_gpu_is_opened(hw4_here, words, said):
    fails(hw4_here("leaderboard", *words), 2, said)


def test_behind_srun_the_same_command_runs_on_the_node(monkeypatch, tmp_path, hw4_here):
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > ' + str(tmp_path / "words") + "\nexit 1\n")
    srun.chmod(srun.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    asked = ("half", "lm16k", "--user", "ann", "--author", "ben", "--srun", "-p nvidia --gres=gpu:1", "--json")
    assert hw4_here("leaderboard", *asked).returncode == 1
    words = (tmp_path / "words").read_text().splitlines()
    assert words[:2] == ["-p", "nvidia"]
    behind = words[words.index("leaderboard") :]
    assert behind[1:3] == ["half", "lm16k"]
    assert "--srun" not in behind
    following = dict(pairwise(behind))
    options = {"--user": "ann", "--author": "ben", "--pass": "fwd", "--board": "leaderboard"}
    assert options.items() <= following.items()
    assert behind[-1] == "--json"
    assert not (tmp_path / NAME).exists()


def test_a_function_that_is_not_there_is_one_sentence(monkeypatch, tmp_path):
    from hw4cli.errors import MachineError

    stages_job = {"kernel": "none.py:f", "workload": "lm16k", "direction": "forward", "seed": 1}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MachineError, match=r"PyTorch|there is no such file"):
        stages.contender_of(type("Timer", (), {"gpu": None}), stages_job)
    with pytest.raises(MachineError, match=r"PyTorch|needs the package flash-attn-4"):
        stages.contender_of(type("Timer", (), {"gpu": None}), {**stages_job, "kernel": "flash-attn-4"})
    assert stages.is_function("none.py:f")
    assert not stages.is_function("./mine")
    assert issubclass(WrongAnswerError, Exception)
