"""A made-up student's folder: the records of the ladder, of a sweep and of programs, a journal, and a profile."""

import json
import random
import shutil
from dataclasses import replace

from boards import RIGHT, write
from helpers import ROOT

from hw4cli.problem import suite

GPU = "NVIDIA H200"
RECORDS = ("h200-ladder", "h200-tiles", "h200-thirty", "h200-end-to-end")
COMMIT = "4f5e727"
PROFILE = """==PROF== Connected to process 4711 (/usr/bin/python3.11)
"ID","Process ID","Kernel Name","Block Size","Grid Size","Metric Name","Metric Unit","Metric Value"
"0","4711","flash(Params)","(128, 1, 1)","(512, 1, 1)","{ncu}sm__warps_active.avg.pct_of_peak_sustained_active","%","17.25"
"0","4711","flash(Params)","(128, 1, 1)","(512, 1, 1)","smsp__cycles_active.avg.pct_of_peak_sustained_elapsed","%","96.50"
"0","4711","flash(Params)","(128, 1, 1)","(512, 1, 1)","l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum.per_second","1/second","90,000,000,000"
"0","4711","flash(Params)","(128, 1, 1)","(512, 1, 1)","l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum.per_second","G/second","11.5"
"0","4711","flash(Params)","(128, 1, 1)","(512, 1, 1)","l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum.per_second","Gbyte/second","811.25"
"0","4711","flash(Params)","(128, 1, 1)","(512, 1, 1)","l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum.per_second","Mbyte/second","2896"
""".replace("{ncu}", "")


def judged(folder):
    """A journal of all thirty cases, one of them too late."""
    chance, attempts = random.Random(7), []
    for case in suite.cases().values():
        size = case.shape.elements / 56e6
        user, system = 0.14 + 0.2 * size, 0.12 + 0.3 * size + 0.02 * chance.random()
        wall = user + system + 0.08 + 0.35 * size
        shape = (case.shape.B, case.shape.N, case.shape.d)
        one = replace(RIGHT, case=case.name, shape=shape, limit=case.limit, wall=wall, user=user, system=system)
        attempts.append(replace(one, wall=6.42) if case.name == "t12" else one)
    facts = {"cases": list(suite.cases()), "gpu": {"name": GPU, "uuid": "GPU-1"}, "host": "node7"}
    write(folder, *attempts, user="sam", started="2026-11-21T10:00:00+00:00", **facts)


def student(folder, *records):
    """The folder, with these records of benchmarks/ or all that a student would have, as if of one commit."""
    folder.mkdir(exist_ok=True)
    for name in records or RECORDS:
        record = json.loads((ROOT / f"benchmarks/{name}.json").read_text())
        (folder / f"{name.removeprefix('h200-')}.json").write_text(json.dumps({**record, "commit": COMMIT}))
    if not records:
        judged(folder / "judged")
        (folder / "ncu.csv").write_text(PROFILE)
    return folder


def answered(path):
    """The report with every blank answered."""
    text = path.read_text()
    lines = ["Answered." if line.startswith("> TODO:") else line for line in text.splitlines()]
    path.write_text("\n".join(lines) + "\n")
    return path


def copied(source, target):
    """A copy of a folder."""
    return shutil.copytree(source, target)
