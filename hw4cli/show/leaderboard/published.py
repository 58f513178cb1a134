"""Results that others have published, shown beside the boards, and in the tables of benchmarks/, as they were stated:
hw4 measured none of them."""

from dataclasses import dataclass

from hw4cli.show.leaderboard.contest import BACKWARD, BOTH, Contest


@dataclass(frozen=True)
class Published:
    """A published time in milliseconds: of which program, on which workload and GPU, and where it is stated."""

    program: str
    workload: Contest
    machine: str
    ms: float
    source: str
    error: float | None = None  # as stated
    run: str = ""  # which of a program's runs, where several are stated


FULL = Contest.of(4, 8192, 128, heads=64, dtype="float16")
CAUSAL = Contest.of(1, 16384, 64, heads=16, dtype="bfloat16", causal=True)
CAUSAL_BACKWARD = Contest.of(1, 16384, 64, heads=16, dtype="bfloat16", causal=True, direction=BACKWARD)
CAUSAL_BOTH = Contest.of(1, 16384, 64, heads=16, dtype="bfloat16", causal=True, direction=BOTH)
LANGUAGE_MODEL = Contest.of(2, 8192, 128, heads=16, dtype="bfloat16", causal=True)
H100 = "NVIDIA H100"
BOARD = "a public GPU leaderboard for this workload"
TILELANG = "the work log of the TileLang entry that leads a public GPU leaderboard"
FLASH_ATTENTION = "flash-attention, pull request 1893, September 2025"
TRITON = "the report of a Triton entry to a GPU leaderboard"

PUBLISHED = (
    Published("TileLang, first of the leaderboard", FULL, H100, 13.617, BOARD, run="ranked"),
    Published("TileLang, the same, before the ranked run", FULL, H100, 13.4, TILELANG, 0.01, run="benchmark"),
    Published("second of the leaderboard", FULL, H100, 15.192, BOARD),
    Published("third, of the same user as the second", FULL, H100, 15.442, BOARD),
    Published("fourth of the leaderboard", FULL, H100, 17.041, BOARD),
    Published("Triton, an earlier version of the TileLang entry", FULL, H100, 29.0, TILELANG),
    Published("FlashAttention-3", LANGUAGE_MODEL, H100, 0.833, FLASH_ATTENTION),
    Published("Triton, tuned tiles, early stop", CAUSAL, H100, 11.6, TRITON, run="tuned tiles"),
    Published("Triton, fixed tiles: its base", CAUSAL, H100, 28.2, TRITON, run="fixed tiles"),
    Published("Triton, tuned tiles, backward in two passes", CAUSAL_BACKWARD, H100, 746.0, TRITON),
    Published("Triton, fixed tiles, backward with atomics: its base", CAUSAL_BACKWARD, H100, 827.0, TRITON),
    Published("Triton, tuned tiles, backward in two passes", CAUSAL_BOTH, H100, 757.0, TRITON),
    Published("Triton, fixed tiles, backward with atomics: its base", CAUSAL_BOTH, H100, 855.0, TRITON),
)
