"""Section 4 of the report, on an MI210 that is not there: its records, what rocprofv3 counted, the script for all."""

import json
import os
import re
import subprocess

import pytest
from helpers import ROOT
from student import record, student

from hw4cli.device.kernelcheck import check, compiler_for
from hw4cli.device.ownkernel import kernel_named
from hw4cli.errors import MachineError
from hw4cli.plans.plan import AMD_DEVICES
from hw4cli.problem.workload import Shape
from hw4cli.show.report.profile import read_profile

HEADER = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id",'
    '"Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
    '"Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"\n'
)


def counted(**counters):
    """rocprofv3's table of a launch that took 10 ms."""
    rows = (
        f'1,1,4,1,99,99,131072,7,"matrix(Params)",256,32768,0,160,0,48,"{name}",{value},1000000,11000000\n'
        for name, value in counters.items()
    )
    return HEADER + "".join(rows)


def test_counters_of_rocprofv3_are_read(tmp_path):
    path = tmp_path / "matrix-1_counter_collection.csv"
    path.write_text(counted(OccupancyPercent=24.5, SQ_LDS_IDX_ACTIVE=2e8, SQ_LDS_BANK_CONFLICT=5e7, FETCH_SIZE=1e6))
    (one,) = read_profile(path, path.name)
    assert (one.kernel, one.tool) == ("matrix", "rocprofv3")
    assert one.figures == pytest.approx(
        {
            "achieved_occupancy": 0.245,
            "SQ_LDS_BANK_CONFLICT": 25.0,
            "shared_load_throughput": 1.5e8 * 128 / 0.01 / 1e9,
            "shared_store_throughput": 1.5e8 * 128 / 0.01 / 1e9,
            "dram__bytes_read.sum": 1.024,
        }
    )
    path.write_text(HEADER.replace("Counter_Value", "Value") + "1\n")
    assert read_profile(path, path.name) == []


def test_section_4_has_the_kernels_on_amds_gpu_and_their_counters(hw4_here, tmp_path):
    folder = student(tmp_path / "mine", "h200-ladder")
    path = record(folder, "h200-ladder", machine={"gpu": "AMD Instinct MI210"}).rename(folder / "amd.json")
    content = json.loads(path.read_text())
    names = {"flash": "flash", "float4": "/x/matrix.cu"}
    rows = [{**row, "kernel": names.get(row["kernel"])} for row in content["rows"]]
    path.write_text(json.dumps({**content, "rows": [row for row in rows if row["kernel"]]}))
    record(folder, "h200-ladder")
    (folder / "a.csv").write_text(counted(OccupancyPercent=24.5))
    (folder / "b.csv").write_text(counted(VALUUtilization=99.25))
    assert hw4_here("report", folder).returncode == 0
    text = (folder / "report.md").read_text()
    part = text[text.index("### 4.b") : text.index("### 4.c")]
    assert re.search(r"^\| AMD Instinct MI210 \| matrix \| t28 \(4, 16384, 64\) \| [\d.]+ \| ", part, re.MULTILINE)
    assert "| lanes that work, % (VALUUtilization) | 99.25 |" in part
    assert "no profile is here" in text[: text.index("## 3")]


def test_the_script_checks_measures_profiles_and_writes_the_report(tmp_path):
    for name in ("hw4", "rocprofv3", "rocprof-compute"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "{tmp_path}/log"\n')
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([ROOT / "benchmarks/measure/amd.sh", tmp_path / "out"], env=env, check=True, capture_output=True)
    log = (tmp_path / "log").read_text().splitlines()
    order = [
        "hw4 doctor",
        "hw4 selftest",
        "hw4 bench flash",
        "rocprofv3 --pmc",
        "rocprof-compute profile",
        "hw4 report",
    ]
    places = [next(n for n, line in enumerate(log) if line.startswith(words)) for words in order]
    assert places == sorted(places)
    assert sum(line.startswith("rocprofv3") for line in log) == 2 * 5
    commands = (tmp_path / "out/commands.txt").read_text()
    assert all(f"$ {words}" in commands for words in order)
    try:
        compiler = compiler_for(AMD_DEVICES["gfx90a"])
    except MachineError:
        return
    for switch in ("swizzled", "lazy"):
        kernel = kernel_named(str(tmp_path / f"out/switches/without_{switch}.cu"))
        (row,) = check(kernel, AMD_DEVICES["gfx90a"], Shape(1, 4096, 64), compiler)
        assert (row.symbol, row.problem, row.spilled_bytes) == (f"without_{switch}", None, 0)
