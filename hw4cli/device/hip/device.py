"""AMD's GPU as cupy for ROCm shows it."""

from collections.abc import Mapping
from typing import Any

from hw4cli.plans.plan import HIP_VOTES, DeviceProperties

NO_AMD_GPU = "there is no AMD GPU here"


def properties(facts: Mapping[str, Any]) -> DeviceProperties:
    """From the results of cupy.cuda.runtime.getDeviceProperties.

    Its compute capability is no such thing: 9.0 for a gfx90a. The architecture is the name up to the first colon, as in
    gfx90a:sramecc+:xnack-.
    """
    name = facts["gcnArchName"]
    gfx = (name.decode() if isinstance(name, bytes) else str(name)).partition(":")[0]
    of_block = int(facts["sharedMemPerBlock"])
    of_unit = int(facts["maxSharedMemoryPerMultiProcessor"]) or of_block
    return DeviceProperties(0, int(facts["multiProcessorCount"]), of_block - HIP_VOTES, of_unit, gfx=gfx)
