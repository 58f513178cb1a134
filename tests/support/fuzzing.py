"""Settings and strategies of the tests with random data.

Each runs 150 examples, the same each time; HW4_FUZZ=10000 runs so many, others each time, by a seed that is printed
where one fails. So many take longer than a test may: `HW4_FUZZ=10000 python -m pytest --timeout=0 -k may_hold` (and, of
journals, tests/judge/scoring/test_fuzz_journals.py).
"""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("HW4_FUZZ", "150"))
fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize="HW4_FUZZ" not in os.environ,
    print_blob=True,
)

numbers = st.integers() | st.floats() | st.sampled_from([10**400, -1, 0, 2**63, 1e308])
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8) | st.sampled_from(["inf", "t01", "\ud800", "\x1b[31m"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@contextmanager
def a_folder():
    """A new folder for each example; pytest's are made once for a test."""
    folder = Path(tempfile.mkdtemp(prefix="hw4-fuzz-"))
    try:
        yield folder
    finally:
        for path in folder.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(folder)
