"""Whether a GPU is here, by the device files of its driver: no driver is asked."""

import os

# Of NVIDIA's driver: on Linux, under Windows (WSL 2), on a Jetson.
NVIDIA_FILES = ["/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu"]
AMD_FILE = "/dev/kfd"  # of the kernel's driver of AMD's GPUs for data centres


def nvidia_gpu_is_here() -> bool:
    """Whether an NVIDIA GPU is visible to this process: if not, no package helps."""
    return any(map(os.path.exists, NVIDIA_FILES))


def amd_gpu_is_here() -> bool:
    """Whether the driver of AMD's GPUs for data centres is there."""
    return os.path.exists(AMD_FILE)  # noqa: PTH110
