"""A made-up student's folder: the records of the ladder, of a sweep and of programs, a journal, and a profile."""

import json
import random
from dataclasses import replace

from boards import RIGHT, write
from records import KEPT

from hw4cli.problem import suite

GPU, COMMIT = "NVIDIA H200", "4f5e727"
RECORDS = ("h200-ladder", "h200-tiles", "h200-thirty", "h200-end-to-end")
HEAD = '"ID","Process ID","Kernel Name","Block Size","Grid Size","Metric Name","Metric Unit","Metric Value"'
COUNTERS = (
    ("sm__warps_active.avg.pct_of_peak_sustained_active", "%", "17.25"),
    ("smsp__cycles_active.avg.pct_of_peak_sustained_elapsed", "%", "96.50"),
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum.per_second", "1/second", "90,000,000,000"),
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum.per_second", "G/second", "11.5"),
    ("l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum.per_second", "Gbyte/second", "811.25"),
    ("l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum.per_second", "Mbyte/second", "2896"),
)
LAUNCH = '"0","4711","flash(Params)","(128, 1, 1)","(512, 1, 1)"'
PROFILE = "\n".join(
    ["==PROF== Connected to process 4711", HEAD, *(f'{LAUNCH},"{name}","{u}","{v}"' for name, u, v in COUNTERS), ""]
)


def judged(folder, gpu=GPU):
    """A journal of all thirty cases, one of them too late."""
    chance, attempts = random.Random(7), []
    for case in suite.cases().values():
        size = case.shape.elements / 56e6
        user, system = 0.14 + 0.2 * size, 0.12 + 0.3 * size + 0.02 * chance.random()
        wall = user + system + 0.08 + 0.35 * size
        shape = (case.shape.B, case.shape.N, case.shape.d)
        one = replace(RIGHT, case=case.name, shape=shape, limit=case.limit, wall=wall, user=user, system=system)
        attempts.append(replace(one, wall=6.42) if case.name == "t12" else one)
    facts = {"cases": list(suite.cases()), "gpu": {"name": gpu, "uuid": "GPU-1"}, "host": "node7"}
    write(folder, *attempts, user="sam", started="2026-11-21T10:00:00+00:00", **facts)


def record(folder, name, **changes):
    """One of the kept records, as if of the student's commit, with these changes."""
    content = json.loads((KEPT / f"{name}.json").read_text())
    path = folder / f"{name.removeprefix('h200-')}.json"
    path.write_text(json.dumps({**content, "commit": COMMIT, **changes}))
    return path


def student(folder, *names):
    """The folder, with these records; without names, with all that a student would have."""
    folder.mkdir(exist_ok=True)
    for name in names or RECORDS:
        record(folder, name)
    if not names:
        judged(folder / "judged")
        (folder / "ncu.csv").write_text(PROFILE)
    return folder


def answered(path):
    """The report with every blank answered."""
    lines = ["Answered." if line.startswith("> FILL IN:") else line for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    return path
