"""Records as `hw4 bench --output` writes them, for the tests of what is made from them."""

import json

from helpers import ROOT

from hw4cli.show.records import load
from hw4cli.text.records import record_text

COMMITTED = [path for pattern in ("*.json", "timelines/*.json") for path in sorted((ROOT / "benchmarks").glob(pattern))]
# Records as they once were, without single samples: tests know their figures. Those in benchmarks/ are made anew.
KEPT = ROOT / "tests/kept"
KEPT_RECORDS = [*sorted(KEPT.glob("*.json")), *sorted((ROOT / "benchmarks/timelines").glob("*.json"))]
MACHINE = {"gpu": "Test GPU", "compute_capability": "9.0", "driver": "1.2", "cuda": "13.0"}
METHOD = {"timer": "CUDA events", "cache": "warm"}


def kept(name):
    return load(KEPT / f"{name}.json")


def as_written(text):
    """What a command wrote as a record, which must have a row on a line."""
    record = json.loads(text)
    assert text == record_text(record)
    return record


def row(kernel="flash", shape=(4, 256, 64), median=1.0, **changes):
    B, N, d = shape
    values = {"median": median, "low": 0.99 * median, "high": 1.02 * median, "samples": 20, "tflops": 4 / median}
    return {
        "kernel": kernel,
        "case": f"{B}x{N}x{d}",
        "shape": [*shape],
        "status": "ok",
        "reason": "",
        **values,
        **changes,
    }


def blocks(path, *rows, activities=("copy", "copy of V", "S = Q Kᵀ", "exponentials", "O += P V")):
    """A record of `hw4 profile --set timeline` with (kernel, shape, spans) as rows, as a file."""
    made = [{**row(kernel, shape), "block": 3, "keys": 32, "spans": spans} for kernel, shape, spans in rows]
    return written(path, *made, kind="timeline", activities=activities)


def written(path, *rows, **changes):
    """A record of kernels with these rows, as a file."""
    record = {"schema": 1, "machine": MACHINE, "method": METHOD, "commit": "abc1234", "date": "2026-01-01", **changes}
    path.write_text(json.dumps({**record, "rows": rows}))
    return path
