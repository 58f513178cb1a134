"""compute-sanitizer beside the emulator, on the same programs: sanitizer.py build, run, compare.

`build SUITE FOLDER -o MADE [options of benchmarks.measure.suites] -- ARGUMENTS` compiles the programs of a suite that
show their mistake in one execution, and the right ones, by nvcc for an H100, and adds them to the folder MADE. `run
MADE -o RECORD` runs each of compute-sanitizer's four tools on each of them, on a machine with the GPU, where nothing of
this project but this file is needed. `compare FINDINGS... -o RECORD` puts both into the record that the pages show
(benchmarks/pages/suites.py): SUITE=FILE is what `benchmarks.measure.suites --record` or `programs --record` has written
of a suite, several files of one suite are one, and --beside FILE is the record of `run`.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.measure.scripts import at_least_one, end_with
from hw4cli.errors import InputError, MachineError

TOOLS = ("racecheck", "memcheck", "synccheck", "initcheck")
FOUND, CLEAN, NOT_RUN = "found", "clean", "not run"
LIST = "programs.jsonl"
NVCC = ("nvcc", "-std=c++17", "-arch=sm_90", "-lineinfo", "-cudart", "shared", "-w", "--expt-relaxed-constexpr")
LIBRARY = "libcudart.so.13"
MOST_LINES = 4  # of a tool's messages that are kept
PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin")
_SUMMARY = re.compile(r"={9} (?:ERROR|RACECHECK) SUMMARY: (\d+)(?:.*\((\d+) errors?, (\d+) warnings?)?")
_TROUBLE = ("Error: Race", "Error: Potential", "Warning: ", "Invalid ", "Barrier error", "Uninitialized ")  # findings
_MESSAGE = re.compile(r"={9} (?!COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|\s|$)(.*)")


def build(words: Sequence[str]) -> None:
    """Compile a suite's programs, and add them to a folder with their inputs and a line each."""
    from benchmarks.measure import suites

    split = words.index("--") if "--" in words else len(words)
    parser = suites.options_of(argparse.ArgumentParser(description="Compile a suite's programs by nvcc."))
    parser.add_argument("--name", required=True, help="the suite's, in the record")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--jobs", type=at_least_one, default=2)
    parser.add_argument("--only", default="", help="a regular expression: these programs, again")
    given = parser.parse_args(words[:split])
    if not given.folder.is_dir():
        raise InputError(f"{given.folder} is no folder: give the suite's")
    made: Path = given.output
    for folder in ("bin", "inputs", "lib"):
        (made / folder).mkdir(parents=True, exist_ok=True)
    entries = list(enumerate(suites.chosen(given)))
    entries = [(at, one) for at, one in entries if re.search(given.only, str(one.files[0].relative_to(given.folder)))]

    def one(numbered: tuple[int, suites.Entry]) -> dict[str, Any]:
        number, entry = numbered
        binary = f"bin/{given.name}-{number:03d}"
        line: dict[str, Any] = {
            "suite": given.name,
            "program": str(entry.files[0].relative_to(given.folder)),
            "expected": entry.what,
            "binary": binary,
            "stdin": "",
        }
        with tempfile.TemporaryDirectory(prefix="hw4-nvcc-") as folder:
            files = list(entry.files)
            if given.main:
                files = [Path(folder, "main.cu")]
                files[0].write_text(suites.with_main(entry.files[0], given.counted), encoding="utf-8")
            folders = dict.fromkeys([*given.include, *(file.parent for file in entry.files)])
            options = [f"-I{path}" for path in folders]
            options += [f"-D{macro}" for macro in [*given.define, *entry.define]]
            options += ["-rdc=true"] if len(files) > 1 else []
            done = subprocess.run(
                [*NVCC, *options, *map(str, files), "-o", str(made / binary)],
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            lines = (done.stdout + done.stderr).splitlines()
            line["problem"] = next((text for text in lines if "error" in text), "nvcc failed")
        elif entry.stdin:
            line["stdin"] = _kept(entry.stdin, made)
        arguments = entry.arguments or tuple(words[split + 1 :])
        line["arguments"] = [_kept(Path(word), made) if Path(word).is_file() else word for word in arguments]
        print(f"{line['program']}: {line.get('problem', 'built')}", flush=True)
        return line

    with ThreadPoolExecutor(given.jobs) as pool:
        lines = list(pool.map(one, entries))
    again = {(line["suite"], line["program"]) for line in lines}
    listed = made / LIST
    before = [json.loads(line) for line in listed.read_text(encoding="utf-8").splitlines()] if listed.exists() else []
    lines = [line for line in before if (line["suite"], line["program"]) not in again] + lines
    listed.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    lines = [line for line in lines if line["suite"] == given.name]
    nvcc = subprocess.run([*NVCC, "-dryrun", "x.cu"], capture_output=True, text=True, check=False)
    top = re.search(r"_HERE_=(\S+)", nvcc.stderr)
    for library in sorted(Path(top[1]).parent.rglob(LIBRARY)) if top else []:
        shutil.copy(library, made / "lib")
    problems = [line for line in lines if "problem" in line]
    print(f"{given.name}: {len(lines) - len(problems)} programs built, {len(problems)} not")


def _kept(path: Path, made: Path) -> str:
    shutil.copy(path, made / "inputs")
    return f"inputs/{path.name}"


def run(words: Sequence[str]) -> None:
    """Run every tool on every program, several at a time, and write the record; what was not begun in time is said."""
    parser = argparse.ArgumentParser(description="Run compute-sanitizer's tools on what was built.")
    parser.add_argument("folder", type=Path, help="what was built, or a tar file of it")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=12.0, help="a run")
    parser.add_argument("--wall", type=float, default=290.0, help="all of it")
    parser.add_argument("--jobs", type=at_least_one, default=12)
    parser.add_argument("--tool", action="append", choices=TOOLS, help="these alone, in this order")
    parser.add_argument("--suite", action="append", default=[], help="these alone")
    given = parser.parse_args(words)
    began = time.monotonic()
    if given.folder.is_file():
        with tempfile.TemporaryDirectory(prefix="hw4-sanitizer-") as unpacked, tarfile.open(given.folder) as archive:
            archive.extractall(unpacked, filter="data")
            run_all(Path(unpacked), given, began)
    else:
        run_all(given.folder.resolve(), given, began)


def run_all(folder: Path, given: argparse.Namespace, began: float) -> None:
    """The runs of what lies in a folder, and their record."""
    paths = os.pathsep.join([os.environ.get("PATH", ""), *PLACES])
    sanitizer = shutil.which("compute-sanitizer", path=paths)
    if not sanitizer:
        raise MachineError("compute-sanitizer is not in PATH")
    programs = [json.loads(line) for line in (folder / LIST).read_text(encoding="utf-8").splitlines()]
    programs = [program for program in programs if not given.suite or program["suite"] in given.suite]
    runnable = [program for program in programs if "problem" not in program]
    for program in programs:
        program["runs"] = {}
    suites = list(dict.fromkeys(program["suite"] for program in runnable))
    tools = given.tool or TOOLS
    tasks = [(tool, program) for suite in suites for tool in tools for program in runnable if program["suite"] == suite]
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{folder / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    left: list[str] = []

    def one(task: tuple[str, dict[str, Any]]) -> None:
        tool, program = task
        if time.monotonic() - began > given.wall - given.seconds:
            left.append(f"{program['suite']} {tool}")
            return
        command = [sanitizer, "--tool", tool, *(["--racecheck-report", "all"] if tool == "racecheck" else [])]
        command += ["--print-limit", "20", str(folder / program["binary"]), *program["arguments"]]
        program["runs"][tool] = watched(command, folder, program["stdin"], given.seconds, environment)

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(one, tasks))
    record = {
        "gpu": _said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "sanitizer": _said(sanitizer, "--version").splitlines()[-1:],
        "nvcc": " ".join(NVCC),
        "jobs": given.jobs,
        "seconds": given.seconds,
        "wall": round(time.monotonic() - began, 1),
        "not begun": {name: left.count(name) for name in dict.fromkeys(left)},
        "programs": [{key: value for key, value in one.items() if key not in ("binary", "stdin")} for one in programs],
    }
    given.output.write_text(json.dumps(record) + "\n", encoding="utf-8")
    print(f"{record['gpu']}; {record['wall']} s; not begun: {record['not begun']}")
    for suite in suites:
        for tool in tools:
            counts = dict.fromkeys(
                (f"{what} {end}" for what in ("buggy", "right") for end in (FOUND, CLEAN, NOT_RUN)), 0
            )
            for program in runnable:
                if program["suite"] == suite and tool in program["runs"]:
                    counts[f"{program['expected']} {program['runs'][tool]['outcome']}"] += 1
            print(f"{suite} {tool}: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count))


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def watched(
    command: Sequence[str], folder: Path, stdin: str, seconds: float, environment: dict[str, str]
) -> dict[str, Any]:
    """One run of a tool: found, clean, or not run, how many errors and warnings, its first messages, and its time."""
    began = time.monotonic()
    with (folder / stdin if stdin else Path(os.devnull)).open("rb") as given, tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=given,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        text = out.read(1 << 22).decode("utf-8", "replace")
    return {**read(text), "status": status, "seconds": round(time.monotonic() - began, 2)}


def read(text: str) -> dict[str, Any]:
    """What a tool's output says: an outcome, the number of errors and of warnings, and its first messages."""
    messages = [match[1].strip() for match in _MESSAGE.finditer(text)]
    summary = _SUMMARY.search(text)
    if summary:
        errors, warnings = int(summary[2] or summary[1]), int(summary[3] or 0)
    else:  # it was ended before it could add up
        said = [message for message in messages if message.startswith(_TROUBLE)]
        warnings = sum(message.startswith("Warning") for message in said)
        errors = len(said) - warnings
    outcome = FOUND if errors + warnings else CLEAN if summary else NOT_RUN
    first = list(dict.fromkeys(messages))[:MOST_LINES]
    return {"outcome": outcome, "errors": errors, "warnings": warnings, "first": first}


def compare(words: Sequence[str]) -> None:
    """Put what the emulator and the tools found into one record, a line for each program."""
    parser = argparse.ArgumentParser(description="Make the record that the pages show.")
    parser.add_argument("findings", nargs="+", help="SUITE=FILE")
    parser.add_argument("--beside", type=Path, action="append", default=[], help="a record of `run`")
    parser.add_argument("--commit", required=True, help="of the emulator that ran")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(words)
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}  # a program may be there with its mistake and without
    for word in given.findings:
        suite, _, name = word.partition("=")
        if not name:
            raise InputError(f"{word!r} must be SUITE=FILE")
        for text in Path(name).read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            key = (suite, line["program"], line.get("expected", "runs"))
            row = rows.setdefault(key, dict(zip(("suite", "program", "expected"), key, strict=True)))
            row |= {"hw4": line["outcome"], "note": bool(line.get("note"))}
            row |= {key: line[key] for key in ("seconds", "plain", "bytes", "plain_bytes") if "plain" in line}
    head = {"schema": 1, "kind": "suites", "date": time.strftime("%Y-%m-%d"), "commit": given.commit}
    for path in given.beside:
        beside = json.loads(path.read_text(encoding="utf-8"))
        for line in beside.pop("programs"):
            if row := rows.get((line["suite"], line["program"], line["expected"]), {}):
                row |= {"tools": {tool: _kept_of(run) for tool, run in line["runs"].items()}}
                row |= {"problem": line["problem"]} if "problem" in line else {}
        head |= {key: beside[key] for key in ("gpu", "sanitizer", "nvcc", "jobs", "seconds")}
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows.values())
    fields = "".join(f' "{key}": {json.dumps(value)},\n' for key, value in head.items())
    given.output.write_text(f'{{\n{fields} "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def _kept_of(run: dict[str, Any]) -> dict[str, Any]:
    """Of a run what the record keeps: its outcome, which is also found if it was ended while it reported some."""
    shown = run["outcome"] == NOT_RUN and any(message.startswith(_TROUBLE) for message in run["first"])
    return {"outcome": FOUND if shown else run["outcome"], "first": run["first"][:1]}


COMMANDS = {"build": build, "run": run, "compare": compare}


def main() -> None:
    """Run the command that is named first."""
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        raise InputError(f"the first argument must be one of {', '.join(COMMANDS)}")
    COMMANDS[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    end_with(main)
