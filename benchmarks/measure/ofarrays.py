"""What a command of hw4 finds for workloads of 16-bit arrays, one after the other, in one file.

    python -m benchmarks.measure.ofarrays limits --output benchmarks/figures/h200-limits.json
    python -m benchmarks.measure.ofarrays schedules --output benchmarks/figures/h200-schedules.json

`limits`: `hw4 profile`, what Nsight Compute says of the kernel that answers by itself; `schedules`: `hw4 tune --quick`,
half's own tiling in each schedule.
"""

import argparse
import json
import subprocess
import sys

from benchmarks import ROOT
from benchmarks.measure.scripts import end_with, new_file, say, write_record
from hw4cli.errors import MachineError

LONG = ("lm8k", "lm8k-causal", "lm16k", "heads64", "t29-half")
SHORT = ("t12-half", "t11-half")
COMMANDS = {"limits": ("profile", "--set", "memory"), "schedules": ("tune", "--quick")}
WORKLOADS = {
    "limits": {**dict.fromkeys((*LONG, *SHORT), "half"), "decode": "half_split"},
    "schedules": dict.fromkeys(LONG, "half"),
}


def main() -> None:
    """Run the command for each workload, and write what it found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=COMMANDS)
    parser.add_argument("--output", type=new_file, required=True)
    options = parser.parse_args()
    found = []
    command, *others = COMMANDS[options.what]
    for name, kernel in WORKLOADS[options.what].items():
        words = [sys.executable, "-m", "hw4cli", command, kernel, name, "--json", *others]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise MachineError(done.stderr.strip().removeprefix("hw4: "))
        found.append({**json.loads(done.stdout), "workload": name})
        say(f"{command} {kernel} {name}")
    write_record(options.output, found)


if __name__ == "__main__":
    end_with(main)
