"""What the records in benchmarks/tuned show, as far as hw4 goes by it. `make results` writes this."""

# Of a GPU and a workload: kernels from fast to slow; tiles, where they are surely faster than a kernel's;
# the date.
TUNED: dict[str, dict[str, tuple[tuple[str, ...], dict[str, dict[str, int]], str]]] = {
    "NVIDIA H100 80GB HBM3": {
        "N=128 d=32 rows=2^15": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=128 d=64 rows=2^14": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=256 d=32 rows=2^15": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=256 d=64 rows=2^14": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=512 d=32 rows=2^15": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=512 d=64 rows=2^14": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=1024 d=32 rows=2^15": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=1024 d=64 rows=2^14": (
            ("split", "split8", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=2048 d=32 rows=2^15": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=2048 d=64 rows=2^14": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=128 d=32 rows=2^20": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=128 d=64 rows=2^20": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=256 d=32 rows=2^20": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=256 d=64 rows=2^18": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=512 d=32 rows=2^19": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=512 d=64 rows=2^18": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=1024 d=32 rows=2^19": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=1024 d=64 rows=2^18": (
            ("split", "split8", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=2048 d=32 rows=2^19": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=2048 d=64 rows=2^17": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=2048 d=64 rows=2^19": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=4096 d=32 rows=2^18": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=4096 d=64 rows=2^18": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=8192 d=32 rows=2^17": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=8192 d=64 rows=2^16": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=16384 d=32 rows=2^17": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=16384 d=64 rows=2^16": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=32768 d=32 rows=2^17": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=32768 d=64 rows=2^16": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
    },
    "NVIDIA H200": {
        "N=128 d=64 rows=2^20": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=16384 d=64 rows=2^16": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=32768 d=32 rows=2^17": (
            ("split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=32768 d=64 rows=2^16": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-23",
        ),
        "N=128 d=32 rows=2^15": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=128 d=64 rows=2^14": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=256 d=32 rows=2^15": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=256 d=64 rows=2^14": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=512 d=32 rows=2^15": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=512 d=64 rows=2^14": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=1024 d=32 rows=2^15": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=1024 d=64 rows=2^14": (
            ("split", "split8", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=2048 d=32 rows=2^15": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=2048 d=64 rows=2^14": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=128 d=32 rows=2^20": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=256 d=32 rows=2^20": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=256 d=64 rows=2^18": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=512 d=32 rows=2^19": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=512 d=64 rows=2^18": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=1024 d=32 rows=2^19": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=1024 d=64 rows=2^18": (
            ("split", "split8", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=2048 d=32 rows=2^19": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=2048 d=64 rows=2^17": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=2048 d=64 rows=2^19": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=4096 d=32 rows=2^18": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=4096 d=64 rows=2^18": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=8192 d=32 rows=2^17": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=8192 d=64 rows=2^16": (
            ("split8", "split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
        "N=16384 d=32 rows=2^17": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
    },
}
