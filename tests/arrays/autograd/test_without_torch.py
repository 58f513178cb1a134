"""Where PyTorch is not installed, hw4cli.torch says so in one sentence, and nothing else needs it."""

import subprocess
import sys

from helpers import ROOT

SCRIPT = """
import sys
sys.modules["torch"] = None  # as where it is not installed
import hw4cli
hw4cli.attention, hw4cli.attention_backward
try:
    import hw4cli.torch
except ImportError as error:
    print(error)
"""


def test_no_torch_is_one_sentence():
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT)
    assert result.stdout == "hw4cli.torch needs PyTorch, which is not installed here: pip install torch\n", (
        result.stderr
    )
