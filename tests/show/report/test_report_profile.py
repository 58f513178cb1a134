"""Profilers' tables as the six metrics of the assignment."""

import pytest
from helpers import ROOT
from slow import slow
from student import PROFILE

from hw4cli.show.report.profile import read_profile

NVPROF = """==12345== NVPROF is profiling process 12345, command: ./hw4 t28 t28.out
==12345== Profiling application: ./hw4 t28 t28.out
==12345== Profiling result:
==12345== Metric result:
"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"
"NVIDIA GeForce GTX 1080 (0)","flash_kernel(float*, int)",1,"achieved_occupancy","Achieved Occupancy",0.5,0.5,0.125000
"NVIDIA GeForce GTX 1080 (0)","flash_kernel(float*, int)",1,"sm_efficiency","Multiprocessor Activity",99%,99%,99.41%
"NVIDIA GeForce GTX 1080 (0)","flash_kernel(float*, int)",1,"shared_load_throughput","x",1GB/s,1GB/s,1528.0GB/s
"NVIDIA GeForce GTX 1080 (0)","flash_kernel(float*, int)",1,"shared_store_throughput","x",1GB/s,1GB/s,13.956GB/s
"NVIDIA GeForce GTX 1080 (0)","flash_kernel(float*, int)",1,"gld_throughput","x",1GB/s,1GB/s,4.0298GB/s
"NVIDIA GeForce GTX 1080 (0)","flash_kernel(float*, int)",1,"gst_throughput","x",1MB/s,1MB/s,81.002MB/s
"""
RAW = """"ID","Kernel Name","gpu__time_duration.sum","{loads}","{occupancy}"
"","","{unit}","","%"
"0","void mine<64>(Params)","{time}","1,000,000,000","50"
"""


def figures(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text)
    return {one.kernel: (one.tool, dict(one.figures)) for one in read_profile(path, "a.csv")}


def test_nvprof_of_the_assignments_gpu_with_its_units_in_the_values(tmp_path):
    tool, found = figures(tmp_path, NVPROF)["flash_kernel"]
    assert tool == "nvprof"
    assert found == pytest.approx(
        {
            "achieved_occupancy": 0.125,
            "sm_efficiency": 99.41,
            "shared_load_throughput": 1528.0,
            "shared_store_throughput": 13.956,
            "gld_throughput": 4.0298,
            "gst_throughput": 0.081002,
        }
    )


@slow
def test_a_profile_says_on_which_gpu_it_was_measured_where_the_file_does(tmp_path, hw4):
    (tmp_path / "a.csv").write_text(NVPROF)
    (tmp_path / "b.csv").write_text((ROOT / "benchmarks/h100-ncu-t28.csv").read_text())
    (tmp_path / "c.csv").write_text(PROFILE)
    found = {name: read_profile(tmp_path / name, name)[0].gpu for name in ("a.csv", "b.csv", "c.csv")}
    assert found == {"a.csv": "NVIDIA GeForce GTX 1080", "b.csv": "NVIDIA H100 80GB HBM3", "c.csv": ""}
    (tmp_path / "h200.json").write_text((ROOT / "benchmarks/h200-ladder.json").read_text())
    result = hw4("report", tmp_path)
    assert result.returncode == 0, result.stderr
    report = (tmp_path / "report.md").read_text()
    assert "Nsight Compute (b.csv) on NVIDIA H100 80GB HBM3" in report


def test_nsight_compute_with_a_metric_a_line_and_a_unit_each(tmp_path):
    tool, found = figures(tmp_path, PROFILE)["flash"]
    assert tool == "Nsight Compute"
    assert found == pytest.approx(
        {
            "achieved_occupancy": 0.1725,
            "sm_efficiency": 96.5,
            "shared_load_throughput": 90 * 128,
            "shared_store_throughput": 11.5 * 128,
            "gld_throughput": 811.25,
            "gst_throughput": 2.896,
        }
    )


@pytest.mark.parametrize(("time", "unit"), [("2,000,000", "nsecond"), ("2", "msecond"), ("2000000", "")])
def test_a_rate_is_made_of_sum_and_time_where_there_is_none_in_a_table_with_a_metric_a_column(tmp_path, time, unit):
    occupancy = "sm__warps_active.avg.pct_of_peak_sustained_active"
    loads = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
    _, found = figures(tmp_path, RAW.format(occupancy=occupancy, loads=loads, time=time, unit=unit))["mine<64>"]
    assert found == pytest.approx({"achieved_occupancy": 0.5, "shared_load_throughput": 1e9 / 2e-3 * 128 / 1e9})


def test_the_committed_profile_tells_every_rungs_occupancy_and_traffic():
    found = {one.kernel: one.figures for one in read_profile(ROOT / "benchmarks/h200-ncu.csv", "h200-ncu.csv")}
    assert found["smallbr"]["achieved_occupancy"] == pytest.approx(0.608)
    assert found["naive_softmax"]["dram__bytes_read.sum"] == pytest.approx(3.197, abs=1e-3)


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", '"Metric Name","Kernel"\n', NVPROF.partition('"NVIDIA')[0], "\0\xff"]
)
def test_a_file_that_is_no_profile_is_none(tmp_path, text):
    assert figures(tmp_path, text) == {}


def test_a_value_that_is_no_number_is_left_out(tmp_path):
    _, found = figures(tmp_path, NVPROF.replace("99.41%", "<OVERFLOW>").replace("1528.0GB/s", "n/a"))["flash_kernel"]
    assert set(found) == {"achieved_occupancy", "shared_store_throughput", "gld_throughput", "gst_throughput"}
