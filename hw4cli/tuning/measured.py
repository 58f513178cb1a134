"""What the records in benchmarks/tuned show, as far as hw4 goes by it. `make results` writes this."""

# Of a GPU and a workload: kernels from fast to slow; tiles, where they are surely faster than a kernel's;
# the date.
TUNED: dict[str, dict[str, tuple[tuple[str, ...], dict[str, dict[str, int]], str]]] = {
    "NVIDIA H200": {
        "N=128 d=64 rows=2^20": (
            ("split", "exact", "flash"),
            {},
            "2026-11-22",
        ),
    },
}
