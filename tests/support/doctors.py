"""Machines for the tests of `hw4 doctor`: without a GPU, with fake programs, with packages that are not there."""

import os
from pathlib import Path

from helpers import ROOT

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


def fake(folder, name, script):
    (folder / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    (folder / name).chmod(0o755)


def installed(folder, *packages):
    """Distributions that Python finds in a folder."""
    for package in packages:
        info = folder / f"{package.replace('-', '_')}-14.2.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 14.2.0\n")
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}


def command_line(pid):
    """Of a process, with zeros between its words; "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
