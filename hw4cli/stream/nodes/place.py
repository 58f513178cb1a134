"""Which of several processes this one is, by the environment that its launcher gave it."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from hw4cli.errors import InputError

SLURM = "Slurm"

# By launcher: the variables of rank, number of ranks, rank on this node, ranks on this node.
LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    SLURM: ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
}
MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class Place:
    """This process: the rank of so many, and its number among those on its node, so many; the node's name."""

    rank: int
    size: int
    local: int
    local_size: int
    node: str

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.node}"


def place(env: Mapping[str, str] = os.environ, by_slurm: bool = False) -> Place:
    """The place of this process; `by_slurm`, if srun has started it, and no other launcher's variables count.

    InputError if no launcher has given it a place.

    >>> place({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
    ...        "SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURMD_NODENAME": "n2"})
    Place(rank=3, size=5, local=1, local_size=2, node='n2')
    """
    known = {SLURM: LAUNCHERS[SLURM]} if by_slurm else LAUNCHERS
    # The first launcher that says it all counts, or else the first that says rank and size: srun sets MPICH's, too.
    said = (name for count in (4, 2) for name, names in known.items() if all(one in env for one in names[:count]))
    launcher = next(said, None)
    if launcher is None:
        raise InputError("--ranks is for a process that srun, torchrun or mpirun started: none has started this one")
    rank, size, local, local_size = names = known[launcher]
    try:
        number, count = int(env[rank]), int(env[size])
        here, all_here = int(env.get(local, number)), _on_this_node(env, local_size, count)
    except ValueError:
        raise InputError(f"{', '.join(names)}: these variables do not hold a rank and numbers of ranks") from None
    if not 0 <= number < count <= MOST_RANKS:
        raise InputError(f"{rank} is {number}, but {size} is {count}")
    if not 0 <= here < count or all_here > count:
        raise InputError(f"{local} is {here} of {all_here} on this node, but {size} is {count}")
    if launcher == SLURM and _shows_each_its_gpus(env):
        here, all_here = 0, 1
    return Place(number, count, here, max(all_here, here + 1), env.get("SLURMD_NODENAME") or os.uname().nodename)


def _shows_each_its_gpus(env: Mapping[str, str]) -> bool:
    """Whether each of srun's processes sees GPUs of its own, not all of its node's."""
    return "SLURM_GPUS_PER_TASK" in env or "gpu" in env.get("SLURM_TRES_PER_TASK", "")


def _on_this_node(env: Mapping[str, str], name: str, size: int) -> int:
    """A number, or Slurm's list of numbers by node, such as 2(x3),1; the number of all where there is none."""
    words = env.get(name, str(size))
    listed = [(int(count), int(times or 1)) for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", words)]
    node = int(env.get("SLURM_NODEID", "0")) if sum(times for _, times in listed) > 1 else 0
    for count, times in listed if node >= 0 else ():
        if node < times:
            return count
        node -= times
    raise ValueError(words)
