"""AMD's GPUs as the kernel's driver shows them in /sys: which there are, which one a program computes on, its memory.

rocm-smi reads the same files; it would be a process of half a second for each sample.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")


@dataclass(frozen=True)
class AmdGpu:
    """A GPU: its UUID as ROCm writes it, its architecture, and the folder of its files in /sys, or None."""

    uuid: str
    gfx: str
    folder: Path | None

    @property
    def memory_used(self) -> int | None:
        """Bytes of its memory that are in use."""
        return _number(self.folder / "mem_info_vram_used") if self.folder else None

    @property
    def clock(self) -> int | None:
        """The clock of its compute units in MHz."""
        places = sorted(self.folder.glob("hwmon/hwmon*/freq1_input")) if self.folder else []
        hertz = _number(places[0]) if places else None
        return None if hertz is None else hertz // 10**6


def gpus(root: Path | None = None) -> tuple[AmdGpu, ...]:
    """The GPUs that there are, in ROCm's order; empty without any, or without the driver."""
    nodes = ((root or ROOT) / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    return tuple(_found(sorted(nodes, key=lambda node: int(node.parent.name)), root or ROOT))


def _found(nodes: list[Path], root: Path) -> Iterator[AmdGpu]:
    for node in nodes:
        with suppress(OSError):
            facts = dict(re.findall(r"^(\w+) (\d+)$", node.read_text(), re.MULTILINE))
            version = int(facts.get("gfx_target_version", 0))
            if version:  # 0 is a processor
                gfx = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
                folder = root / f"sys/class/drm/renderD{facts.get('drm_render_minor', 0)}/device"
                uuid = f"GPU-{int(facts.get('unique_id', 0)):x}"
                yield AmdGpu(uuid, gfx, folder if folder.is_dir() else None)


def first_visible(env: Mapping[str, str]) -> AmdGpu | None:
    """The first GPU that a program with this environment sees.

    ROCR_VISIBLE_DEVICES chooses by number or UUID; of what it leaves, HIP_VISIBLE_DEVICES chooses by number, or else
    CUDA_VISIBLE_DEVICES.
    """
    left = list(gpus())
    hip = env.get("HIP_VISIBLE_DEVICES", env.get("CUDA_VISIBLE_DEVICES"))
    for wanted in (env.get("ROCR_VISIBLE_DEVICES"), hip):
        if wanted is not None:
            left = list(_chosen(wanted, left))
    return left[0] if left else None


def _chosen(wanted: str, known: list[AmdGpu]) -> Iterator[AmdGpu]:
    """The GPUs of a list, up to the first name that is none's."""
    for word in wanted.split(","):
        name = word.strip()
        by_uuid = [gpu for gpu in known if gpu.uuid == name]
        found = known[int(name) : int(name) + 1] if name.isdecimal() else by_uuid
        if not found:
            return
        yield found[0]


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
