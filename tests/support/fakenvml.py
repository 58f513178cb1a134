# ruff: noqa: N802 (the names are those of pynvml)
"""A stand-in for pynvml, which asks the driver."""

from types import SimpleNamespace


class FakeNvml(SimpleNamespace):
    """A driver with one GPU, whose memory and clock a test sets."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        pass

    def __init__(self, **changes):
        super().__init__(used=1 << 30, clock=1500, throttled=0, others=[], works=True, **{})
        self.__dict__.update(changes)

    def nvmlInit(self):
        if not self.works:
            raise self.NVMLError("driver not loaded")

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetName(self, _):
        return b"NVIDIA H200"

    def nvmlDeviceGetMaxMigDeviceCount(self, _):
        return 0

    def nvmlDeviceGetHandleByIndex(self, index):
        if index:
            raise self.NVMLError("no such GPU")
        return "handle"

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return self.nvmlDeviceGetHandleByIndex(uuid != "GPU-12-ab")

    def nvmlDeviceGetUUID(self, _):
        return "GPU-12-ab"

    def nvmlDeviceGetMemoryInfo(self, _):
        return SimpleNamespace(used=self.used)

    def nvmlDeviceGetClockInfo(self, _, kind):
        if self.clock is None:
            raise self.NVMLError("not supported")
        return self.clock

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _):
        return self.throttled

    def nvmlDeviceGetComputeRunningProcesses(self, _):
        return self.others
