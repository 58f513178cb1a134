"""`hw4 profile`: profilers as programs that answer as the real ones did; Nsight Compute's answer was recorded."""

import csv
import json
import re
import sys

import pytest
from helpers import ROOT, fits, on_a_terminal
from records import as_written
from slow import slow

from hw4cli.lab.measure.metrics import imbalance
from hw4cli.show.report.profile import read_profile

RECORDED = ROOT / "benchmarks/h100-ncu-t28.csv"
# By the documentation of nvprof and of rocprofv3: neither was recorded.
NVPROF = """==9== NVPROF is profiling process 9, command: ./hw4 in out
==9== Event result:
"Device","Kernel","Invocations","Event Name","Min","Max","Avg","Total"
"NVIDIA GeForce GTX 1080 (0)","mine(float*)",2,"shared_ld_bank_conflict",10,30,20,40
==9== Metric result:
"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"
"NVIDIA GeForce GTX 1080 (0)","mine(float*)",2,"achieved_occupancy","Achieved Occupancy",0.4,0.6,0.499988
"NVIDIA GeForce GTX 1080 (0)","mine(float*)",2,"sm_efficiency","Multiprocessor Activity",98%,99%,98.46%
"NVIDIA GeForce GTX 1080 (0)","mine(float*)",2,"gst_throughput","Global Store",80.0MB/s,90.0MB/s,84.691MB/s
"NVIDIA GeForce GTX 1080 (0)","mine(float*)",2,"shared_utilization","Shared Memory",High (8),High (8),High (8)
"NVIDIA GeForce GTX 1080 (0)","mine(float*)",2,"dram_utilization","Device Memory",Low (1),Low (1),Low (1)
"NVIDIA GeForce GTX 1080 (0)","mine(float*)",2,"stall_sync","Issue Stall Reasons (Synchronization)",30%,30%,30.00%
"""
ROCPROF_HEAD = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id","Kernel_Name",'
    '"Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Counter_Name",'
    '"Counter_Value","Start_Timestamp","End_Timestamp"'
)
ROCPROF_ROW = '{n},{n},"Agent 1",1,7,7,4096,1,"mine(float*)",256,8192,0,32,0,16,"{name}",{value},1000000,3000000'
ROCPROF_COUNTERS = {
    "OccupancyPercent": 25.0,
    "TCP_TCC_READ_REQ_sum": 1e6,
    "SQ_LDS_IDX_ACTIVE": 3e6,
    "SQ_LDS_BANK_CONFLICT": 1e6,
}
ROCPROF = "\n".join(
    [ROCPROF_HEAD, *(ROCPROF_ROW.format(n=1, name=name, value=value) for name, value in ROCPROF_COUNTERS.items()), ""]
)


def metrics(record, kernel):
    (launch,) = [one for one in record["launches"] if one["kernel"] == kernel]
    return {one["name"]: one for one in launch["metrics"]}


@pytest.fixture
def recorded(hw4, tools):
    """`hw4 profile ARGS`, where ncu answers what it answered on an H100 to flash, split and exact on t28."""
    tools(ncu=RECORDED.read_text())
    return lambda *words: hw4("profile", *words)


def test_the_assignments_metrics_of_every_launch_and_the_model_beside_what_was_moved(recorded):
    result = recorded("flash", "split", "exact", "t28", "--json")
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["tool"] == "Nsight Compute"
    assert [one["kernel"] for one in record["launches"]] == [
        *("flash", "flash_combine", "split_convert", "split"),
        *("exact_convert", "exact"),
    ]
    flash = metrics(record, "flash")
    assert flash["achieved_occupancy"]["value"] == pytest.approx(0.181, abs=0.001)
    assert flash["sm_efficiency"]["value"] == pytest.approx(96.9, abs=0.1)
    assert flash["shared_load_throughput"]["unit"] == "GB/s"
    assert flash["l2_to_l1"]["ratio"] == pytest.approx(1, abs=0.01)
    assert flash["dram_read"]["ratio"] == pytest.approx(1, abs=0.1)
    assert flash["shared_traffic"]["ratio"] == pytest.approx(1, abs=0.02)


def test_what_is_counted_for_each_of_four_schedulers_or_of_32_lanes_has_nvprofs_unit(recorded):
    result = recorded("flash", "t28", "--set", "steps", "--json")
    found, (units, raw) = metrics(json.loads(result.stdout), "flash"), raw_counters()
    assert units["smsp__warps_eligible.avg.per_cycle_active"] == "warp"
    for name, counter, factor in (
        ("eligible_warps_per_cycle", "smsp__warps_eligible.avg.per_cycle_active", 4),
        ("warp_execution_efficiency", "smsp__thread_inst_executed_per_inst_executed.ratio", 100 / 32),
    ):
        assert found[name]["value"] == pytest.approx(factor * float(raw[counter])), name


def raw_counters():
    """Units, and counters of flash, as they were recorded."""
    lines = RECORDED.read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    units, *launches = csv.DictReader(lines[start:])
    return units, next(launch for launch in launches if launch["Kernel Name"] == "flash")


def test_the_last_sentence_names_the_nearest_limit_and_the_largest_stall_of_the_longest_launch(recorded):
    last = recorded("flash", "t28").stdout.splitlines()[-1]
    assert re.fullmatch(
        r"flash: nearest limit: the issue slots at 84 % of the peak, 16 % away; then the FMA units at 74 %; "
        r"largest stall: exec dependency, 1\d % of all",
        last,
    )


def test_a_table_fits_a_terminal_of_60_columns(recorded):
    code, shown = on_a_terminal(60, "profile", "flash", "split", "t28", "--set", "steps")
    assert code == 0, shown
    assert "issue_slot_utilization" in shown
    assert fits(shown, 60), shown


def test_the_form_of_nvprof_has_its_columns_and_units(recorded, tmp_path):
    assert recorded("flash", "t28", "-o", tmp_path / "flash.nvprof").returncode == 0
    shown = (tmp_path / "flash.nvprof").read_text()
    lines = shown.splitlines()
    assert lines[0].split() == ["Invocations", "Metric", "Name", "Metric", "Description", "Min", "Max", "Avg"]
    assert lines[1] == 'Device "NVIDIA H100 80GB HBM3 (0)"'
    assert "    Kernel: flash" in lines
    assert re.search(r"^ +1 +achieved_occupancy +Achieved Occupancy +(0\.18\d+) +\1 +\1$", shown, re.MULTILINE)
    assert re.search(r"sm_efficiency +Multiprocessor Activity +\d\d\.\d\d%", shown)
    assert re.search(r"gst_throughput +Global Store Throughput +[\d.]+GB/s", shown)


def test_the_steps_are_25_metrics_and_the_memory_has_13_rows(recorded):
    for name, count in (("steps", 25), ("memory", 13)):
        (launch, *_) = as_written(recorded("flash", "t28", "--set", name, "--json").stdout)["launches"]
        assert launch["kernel"] == "flash"
        asked = [row["name"] for row in launch["metrics"] if row["value"] is not None and row["asked"]]
        assert len(asked) == count, asked


def test_ncu_is_asked_for_what_it_needs_and_of_kernels_only_between_start_and_stop(hw4, tools):
    folder = tools(ncu=RECORDED.read_text())
    assert hw4("profile", "flash", "t28").returncode == 0
    words = (folder / "ncu.seen").read_text().splitlines()
    assert words[: words.index("--log-file")] == [
        *("--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"),
        *("--target-processes", "all"),
    ]
    assert words[words.index("--profile-from-start") + 1] == "off"
    asked = words[words.index("--metrics") + 1].split(",")
    assert "sm__warps_active.avg.pct_of_peak_sustained_active" in asked
    assert len(asked) == len({*asked})


def test_a_program_is_profiled_whole_on_a_cases_file(hw4, tools, folder):
    place = tools(ncu=RECORDED.read_text(), runs="/bin/sh")
    copied = place / "copied"
    script = f'cp "$1" {copied}; echo done > "$2"'
    result = hw4("profile", "--program", f"/bin/sh -c '{script}' sh", "t01", "--dir", folder)
    assert result.returncode == 0, result.stderr
    assert copied.read_bytes() == (folder / "t01").read_bytes()
    assert "--profile-from-start" not in (place / "ncu.seen").read_text().splitlines()
    assert "measured/model" not in result.stdout


def test_a_program_needs_the_cases_input_and_no_answer(hw4, tools, tmp_path):
    tools(ncu=RECORDED.read_text())
    options = ("profile", "--program", "/bin/true", "t01", "--dir", tmp_path)
    result = hw4(*options)
    assert (result.returncode, result.stderr) == (3, f"hw4: {tmp_path} lacks t01: run `hw4 gen t01 --no-answers`\n")
    (tmp_path / "t01").write_bytes(b"input")
    assert hw4(*options).returncode == 0


def test_a_gtx_1080_is_profiled_by_nvprof(hw4, tools, folder):
    place = tools(gpu="NVIDIA GeForce GTX 1080, 6.1", nvprof=NVPROF)
    options = ("--program", "/bin/true", "t01", "--dir", folder, "--set", "assignment", "--set", "steps")
    record = json.loads(hw4("profile", *options, "--json").stdout)
    assert record["tool"] == "nvprof"
    found = metrics(record, "mine")
    assert found["achieved_occupancy"]["value"] == 0.499988
    assert found["gst_throughput"]["value"] == pytest.approx(0.084691)
    assert found["shared_ld_bank_conflict"]["value"] == 20
    words = (place / "nvprof.seen").read_text().splitlines()
    assert words[words.index("--events") + 1] == "shared_ld_bank_conflict,shared_st_bank_conflict"
    assert "stall_sync" in words[words.index("--metrics") + 1].split(",")
    shown = hw4("profile", *options).stdout
    assert "nearest limit: shared memory and L1 at 80 % of the peak" in shown
    assert "largest stall: sync, 30 % of all" in shown
    assert hw4("profile", *options, "-o", place / "a.nvprof").returncode == 0
    shown = (place / "a.nvprof").read_text()
    assert re.search(r"^ +2 +achieved_occupancy +Achieved Occupancy +0\.400000 +0\.600000 +0\.499988$", shown, re.M)
    assert "84.691MB/s" in shown


def test_the_profiler_is_that_of_the_gpu_which_a_program_takes_here(hw4, tools, folder, monkeypatch):
    place = tools(nvprof=NVPROF) / "bin/nvidia-smi"
    old, new = (f"GPU-{head}00000-0000-0000-0000-000000000000" for head in ("aaa", "abb"))
    smi = f"""#!/bin/sh
case "$*" in
-L) echo "GPU 0: NVIDIA H100 (UUID: {new})"; echo "GPU 1: NVIDIA GeForce GTX 1080 (UUID: {old})";;
"-i {old} "*) echo "NVIDIA GeForce GTX 1080, 6.1";;
*) echo "NVIDIA H100, 9.0"; echo "NVIDIA GeForce GTX 1080, 6.1";;
esac
"""
    place.write_text(smi)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", old)
    result = hw4("profile", "--program", "/bin/true", "t01", "--dir", folder)
    assert result.returncode == 0, result.stderr
    assert "NVIDIA GeForce GTX 1080, nvprof" in result.stdout


def test_an_amd_gpu_is_profiled_by_rocprofv3(hw4, tools, folder):
    place = tools(rocprofv3=ROCPROF)
    options = ("--program", "/bin/true", "t01", "--dir", folder, "--tool", "rocprofv3", "--json")
    found = metrics(json.loads(hw4("profile", *options).stdout), "mine")
    assert found["achieved_occupancy"]["value"] == 0.25
    assert found["gld_throughput"]["value"] == pytest.approx(64e6 / 2e-3 / 1e9)
    assert found["shared_load_throughput"]["value"] == pytest.approx(4 * 32 * 2e6 / 2e-3 / 1e9)
    assert found["sm_efficiency"]["value"] is None
    words = (place / "rocprofv3.seen").read_text().splitlines()
    assert words[0] == "--pmc"
    assert words[words.index("--") + 1] == "/bin/true"


def test_counters_of_an_idle_gpu_and_headers_among_messages_are_no_metrics(hw4, tools, folder):
    idle = {"SQ_BUSY_CU_CYCLES": 5, "GRBM_GUI_ACTIVE": 0, "CU_NUM": 104, "OccupancyPercent": 0}
    text = "\n".join([ROCPROF_HEAD, *(ROCPROF_ROW.format(n=1, name=name, value=n) for name, n in idle.items()), ""])
    tools(rocprofv3='==9== "Kernel","Metric Name", are the columns\n' + text)
    options = ("--program", "/bin/true", "t01", "--dir", folder, "--tool", "rocprofv3", "--json")
    result = hw4("profile", *options)
    assert result.returncode == 0, result.stderr
    found = metrics(json.loads(result.stdout), "mine")
    assert (found["sm_efficiency"]["value"], found["achieved_occupancy"]["value"]) == (None, 0)


@slow
def test_closed_counters_are_explained_and_what_is_known_without_them_is_shown(hw4, tools):
    closed = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    tools(ncu=closed, status=1)
    result = hw4("profile", "flash", "t28")
    assert result.returncode == 3
    assert "NVreg_RestrictProfilingToAdminUsers=0" in result.stderr
    assert "registers, shared memory" in result.stdout
    assert re.search(r"^flash +2,048 +128 +168", result.stdout, re.MULTILINE)


@slow
def test_closed_counters_leave_a_programs_reader_of_json_the_launches_in_that_form(hw4, tools):
    tools(ncu="ERR_NVGPUCTRPERM", status=1)
    result = hw4("profile", "flash", "t28", "--json")
    assert result.returncode == 3
    facts = {one["launch"]: one for one in json.loads(result.stdout)}
    assert (facts["flash"]["registers"], facts["flash"]["shared_bytes"]) == (168, 65536)
    assert [*facts] == ["flash", "flash_combine"]


def test_a_metric_that_the_profiler_does_not_know_is_left_out_of_a_second_try(hw4, tools, tmp_path):
    tools(ncu=RECORDED.read_text())
    (tmp_path / "bin/real").write_text((tmp_path / "bin/ncu").read_text())
    (tmp_path / "bin/real").chmod(0o755)
    gmma = "smsp__average_warps_issue_stalled_gmma_per_issue_active"
    refuse = f"""#!/bin/sh
case "$*" in *stalled_gmma*) echo "==ERROR== Failed to find metric {gmma}.ratio"; exit 1;; esac
exec {tmp_path}/bin/real "$@"
"""
    (tmp_path / "bin/ncu").write_text(refuse)
    result = hw4("profile", "flash", "t28")
    assert result.returncode == 0, result.stderr


def test_behind_srun_the_profiler_and_its_files_are_where_the_node_sees_them(hw4, tools, tmp_path):
    place = tools(ncu=RECORDED.read_text())
    result = hw4("profile", "flash", "t28", "--srun", "-p nvidia --gres=gpu:1", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    words = (place / "ncu.seen").read_text().splitlines()
    assert words[words.index("--log-file") + 1].startswith(f"{tmp_path}/.hw4-profile-")
    assert [path.name for path in tmp_path.glob(".hw4-*")] == []


@slow
def test_a_sweep_over_lengths_is_a_profile_for_each(recorded):
    result = recorded("flash", "4,128,64", "--sweep", "8192,16384", "--json")
    found = json.loads(result.stdout)
    assert [one["of"] for one in found] == [f"flash on (B, N, d) = (4, {N}, 64)" for N in (8192, 16384)]
    read = [metrics(one, "flash")["l2_to_l1"]["model"] for one in found]
    assert read[1] / read[0] == pytest.approx(4, rel=0.01)


def test_the_profilers_own_table_is_kept_for_the_report(recorded, tmp_path):
    assert recorded("flash", "t28", "-o", tmp_path / "ncu.csv").returncode == 0
    figures = {one.kernel: one.figures for one in read_profile(tmp_path / "ncu.csv", "ncu.csv")}
    assert figures["flash"]["achieved_occupancy"] == pytest.approx(0.181, abs=0.001)


def test_what_is_wrong_is_said_in_a_sentence(hw4, tools, folder):
    tools(gpu="", ncu="nothing")
    refused = {
        "name kernels, or a program": ("t01",),
        "go with kernels": ("--program", "true", "1,128,32"),
        "name a case": ("flash",),
        "--program is empty": ("--program", "", "t01"),
        "./none cannot be started: there is no such file": ("--program", "./none", "t01"),
        "there is no file none.cu": ("none.cu", "t01"),
        "--srun is empty": ("flash", "t01", "--srun", ""),
        "let it end in .json, .csv or .nvprof": ("flash", "t01", "-o", "x"),
        "is not a list of N": ("flash", "1,128,32", "--sweep", "a,b"),
    }
    for words, arguments in refused.items():
        result = hw4("profile", *arguments)
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
        assert words in result.stderr
    result = hw4("profile", "flash", "t01")
    assert result.returncode == 3
    assert "there is no GPU to profile" in result.stderr


def test_a_profiler_that_is_missing_fails_or_counts_nothing_is_reported(hw4, tools):
    tools()
    result = hw4("profile", "flash", "t01")
    assert (result.returncode, result.stderr) == (
        3,
        "hw4: ncu is not on PATH: it comes with the CUDA toolkit: module load cuda\n",
    )
    tools(ncu="", printed="==ERROR== out of luck", status=9)
    result = hw4("profile", "flash", "t01")
    assert (result.returncode, result.stderr) == (3, "hw4: ncu failed with status 9: ==ERROR== out of luck\n")
    tools(ncu="==WARNING== No kernels were profiled.\n")
    result = hw4("profile", "flash", "t01")
    assert result.returncode == 3
    assert "counted no kernel of flash on" in result.stderr


def test_a_profile_names_its_machine_the_profilers_version_and_its_command_line(hw4, tools):
    tools(ncu=RECORDED.read_text(), printed="Version 2025.3.1.0 (build 36398880)")
    found = as_written(hw4("profile", "flash", "t28", "--json").stdout)
    assert found["tool_version"] == "2025.3.1.0"
    assert found["machine"]["gpu"] == found["gpu"] == "NVIDIA H100 80GB HBM3"
    assert {"cpu", "cores", "ram", "disk", "linux", "glibc", "python"} <= set(found["machine"])
    (command,) = found["commands"]
    assert "ncu --csv --page raw" in command
    assert "--log-file {folder}/log.csv" in command
    assert "{hw4}" in command and " python3 " in command
    assert str(ROOT) not in command and sys.executable not in command, "a record says nothing of its author's folders"
    of = {"case": "t28", "shape": [4, 16384, 64], "causal": False, "seed": 28}
    assert {key: found[key] for key in of} == of


@slow
def test_behind_srun_the_machine_is_the_node_that_answered(hw4, tools, tmp_path):
    tools(ncu=RECORDED.read_text())
    asked = ("profile", "flash", "t28", "--srun", "-p nvidia --gres=gpu:1", "--json")
    assert hw4(*asked, cwd=tmp_path).returncode == 0
    found = json.loads(hw4(*asked, cwd=tmp_path).stdout)
    assert found["commands"][0].startswith("srun -p nvidia --gres=gpu:1 ")
    assert found["machine"]["cpu"]  # srun stands for a node: what it starts answers


def test_each_tile_is_profiled_by_itself_and_named(recorded):
    result = recorded("flash", "t28", "--tile", "64x32", "--tile", "128x64", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert [one["tile"] for one in found] == ["64x32", "128x64"]
    assert found[0]["of"] == "flash with 64x32 on (B, N, d) = (4, 16384, 64)"
    read = [metrics(one, "flash")["l2_to_l1"]["model"] for one in found]
    assert 1.9 < read[0] / read[1] < 2.1  # K and V pass by once for each block of rows


@slow
def test_half_is_profiled_with_a_tile_and_stages_of_its_space(hw4, tools):
    tools(ncu=RECORDED.read_text().replace("flash", "half"), gpu="NVIDIA H100 80GB HBM3, 9.0")
    result = hw4("profile", "half", "lm8k", "--tile", "128x128x2", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["tile"] == "128x128x2"
    for tile, words in {"7x7": "half has no tiling of 7x7", "128x128x9": "with 9 stages"}.items():
        refused = hw4("profile", "half", "lm8k", "--tile", tile)
        assert refused.returncode == 3, refused.stderr
        assert words in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("flash", "t28", "--tile", "64"), "is not a tile"),
        (("flash", "t28", "--tile", "64x32x2"), "is for half on a workload"),
        (("backward", "lm8k", "--tile", "64x32"), "has one tile on a workload"),
        (("t28", "--program", "./mine", "--tile", "64x32"), "--tile go with kernels alone"),
    ],
)
def test_a_tile_that_goes_with_nothing_is_refused(recorded, arguments, words):
    result = recorded(*arguments)
    assert result.returncode == 2
    assert words in result.stderr


# What Nsight Compute answered on an H200 of half_start, a launch of 3 us that sets a counter to 0 (h200-limits.json).
TOO_SHORT = """"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",\
"Device","CC","gpu__time_duration.sum","l1tex__t_sector_hit_rate.pct","lts__t_sector_hit_rate.pct",\
"sm__cycles_active.min","sm__cycles_active.avg","sm__cycles_active.max"
"","","","","","","","","","","","ns","%","%","cycle","cycle","cycle"
"0","1","python","127.0.0.1","half_start","1","7","(32, 1, 1)","(1, 1, 1)","0","9.0","3000","0","205.65","0","50","600"
"""


def test_a_hit_rate_above_100_is_refused_with_the_reason(hw4, tools):
    tools(ncu=TOO_SHORT)
    result = hw4("profile", "flash", "t28", "--set", "memory", "--json")
    assert result.returncode == 0, result.stderr
    found = metrics(json.loads(result.stdout), "half_start")
    assert found["l2_hit_rate"]["value"] is None
    assert found["l2_hit_rate"]["refused"].startswith("206 % cannot be")
    assert found["l1_hit_rate"]["value"] == 0
    shown = hw4("profile", "flash", "t28", "--set", "memory").stdout
    assert "half_start: l2_hit_rate of 206 % cannot be" in " ".join(shown.split())
    assert "206" not in shown.split("nearest")[0].split("half_start: l2_hit_rate")[0]


def test_the_balance_of_multiprocessors_is_how_long_the_mean_one_is_idle(hw4, tools):
    tools(ncu=TOO_SHORT)
    found = metrics(json.loads(hw4("profile", "flash", "t28", "--set", "balance", "--json").stdout), "half_start")
    assert {name: one["value"] for name, one in found.items() if one["asked"]} == {
        "sm_cycles_least": 0,
        "sm_cycles_mean": 50,
        "sm_cycles_most": 600,
        "sm_imbalance": pytest.approx(100 * 550 / 600),
    }


def test_what_is_no_order_of_cycles_has_no_imbalance():
    assert imbalance(100.0, 100.0, 100.0) == 0
    for wrong in ((0, 0, 0), (2, 1, 3), (-1, 1, 2)):
        with pytest.raises(ValueError, match="not in this order"):
            imbalance(*wrong)
