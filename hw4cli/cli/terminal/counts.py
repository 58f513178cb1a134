"""`hw4 check --run --counts`: what kernels, and those of whole programs, do where the CPU executes them, by launch and
line, and predicted times."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hw4cli.cli.terminal.bar import Bar
from hw4cli.cli.terminal.programs import BAR_DELAY, ProgramOptions, ending, printed
from hw4cli.errors import InputError, MachineError
from hw4cli.plans.plan import DeviceProperties, Variant
from hw4cli.problem.workload import Workload
from hw4cli.text import tables
from hw4cli.text.progress import Progress
from hw4cli.text.words import columns, wrapped

if TYPE_CHECKING:
    from hw4cli.emulator.counts import Counts, Line
    from hw4cli.emulator.program.execute import Execution
    from hw4cli.lab.measure.timing import Times, Work

GPUS = ("GTX 1080", "MI210", "H100")  # of which times are predicted
SMALL = Workload.one_head(1, 256, 64)  # which is counted, if no shape is given
MOST_OPERATIONS = 5e8  # of a shape that is executed: minutes
LINES = 12  # that are shown
# What a multiprocessor does in a clock, by which lines are ranked: wavefronts of shared memory, sectors of global
# memory, fp32 operations, exponentials, operations of tensor cores, threads that meet.
_PER_CLOCK = {"wavefronts": 1.0, "sectors": 2.0, "fp32": 256.0, "special": 16.0, "products": 2048.0, "issued": 4.0}
Predicted = Mapping[str, "Times | None"]  # by the GPU's name; None where it does not start


def count_kernel(
    variant: Variant, props: DeviceProperties, shape: Workload | None, causal: bool, progress: Progress
) -> tuple[list[dict[str, Any]], str]:
    """The records of what a kernel's launches do, and the tables for people.

    A shape that would take minutes is not executed: its times are predicted from counts of small ones. Raises
    MachineError and InputError as `lab.measure.counted.count` does.
    """
    from hw4cli.lab.measure.counted import Part, count

    wanted = shape or replace(SMALL, causal=causal)
    small = wanted if wanted.flops <= MOST_OPERATIONS else Workload.one_head(1, 256, wanted.d, wanted.causal)
    progress.grow(1)
    (counts,) = count(variant, [Part(small)], props, advance=progress.add)
    times = _predicted(variant, wanted, props, counts if small == wanted else None, progress)
    heading = f"{variant.name} on (B, N, d) = {small}{', causal' if small.causal else ''}, counted on the CPU"
    width = columns(sys.stdout)
    parts = [
        f"{wrapped(heading, width)}\n",
        _by_launch(counts, width),
        _by_line(counts, width),
        f"{wrapped(_times_sentence(f'(B, N, d) = {wanted}', times), width)}\n",
    ]
    records = [
        {
            "kernel": variant.name,
            "shape": [small.B, small.N, small.d],
            "causal": small.causal,
            **record_of(one),
            "predicted_for": [wanted.B, wanted.N, wanted.d],
            "predicted": _record_of_times(times),
        }
        for one in counts
    ]
    return records, "\n".join(parts)


def count_program(
    files: tuple[Path, ...], gpu: DeviceProperties, name: str, options: ProgramOptions, shape: Workload | None
) -> tuple[list[dict[str, Any]], str, bool]:
    """The records of what a program's launches do, the tables for people, and whether it came to its end.

    A program that takes INPUT OUTPUT, and is given no arguments, gets a small case. Raises as `compile_program` and
    `run_program` do.
    """
    from hw4cli.emulator.check import RANDOM_DATA, make_data
    from hw4cli.emulator.program.attention import CASES, limit_of, takes_a_case
    from hw4cli.emulator.program.build import Source, compile_program
    from hw4cli.emulator.program.execute import ENDED, run_program
    from hw4cli.problem.arrays import write_input

    source = Source(files, options.include, options.define)
    lanes = 64 if source.hip else gpu.lanes
    arguments, seconds, on = options.arguments, options.seconds, ""
    progress = Progress(1)

    def say(launches: int, done: int, blocks: int) -> None:
        progress.total, progress.done = max(blocks, 1), min(done, blocks)

    with Bar("counting", progress, BAR_DELAY, wanted=True), tempfile.TemporaryDirectory(prefix="hw4-") as folder:
        own = arguments is None and (shape is not None or takes_a_case(source))
        if own:
            case = shape or CASES[0]
            write_input(Path(folder, "case.in"), make_data(RANDOM_DATA, case))
            arguments, seconds, on = ("case.in", "case.out"), limit_of(case, seconds), f" on (B, N, d) = {case}"
        program = compile_program(source, cc=gpu.cc or 80, lanes=lanes, counted=True)
        execution = run_program(
            program,
            arguments or (),
            gpu=gpu,
            gpu_name=name,
            seconds=seconds,
            folder=Path(folder) if own else None,
            stdin=options.stdin,
            progress=say,
        )
    times = {each: [_time(work, each) for work in works_of(execution, lanes)] for each in GPUS}
    width = columns(sys.stdout)
    counted = [
        replace(one, symbol=launch.kernel, width=lanes)
        for one, launch in zip(execution.counts, execution.launches, strict=True)
    ]
    by_kernel = _merged(counted)
    launches = {name: sum(one.times for one in execution.launches if one.kernel == name) for name in by_kernel}
    lines = [*printed(execution), f"{files[0]}{on}: {ending(execution)}; counted on the CPU"]
    parts = ["".join(f"{wrapped(line, width, '    ', '')}\n" for line in lines)]
    if by_kernel:
        parts += [_by_launch([*by_kernel.values()], width, launches), _by_line([*by_kernel.values()], width)]
        parts += [_by_gpu([one.symbol for one in counted], times, width)]
    records: list[dict[str, Any]] = [
        {"program": str(files[0]), "what": "run", "end": execution.end, "status": execution.status}
        | {"sentence": execution.why, "seconds": round(execution.seconds, 2)}
    ]
    for number, (one, launch) in enumerate(zip(counted, execution.launches, strict=True)):
        sizes = {"place": launch.place, "blocks": [*launch.grid], "block": [*launch.block], "launches": launch.times}
        predicted = _record_of_times({each: found[number] for each, found in times.items()})
        records.append({"program": str(files[0]), "what": "launch"} | record_of(one) | sizes | {"predicted": predicted})
    return records, "\n".join(parts), execution.end == ENDED


def works_of(execution: "Execution", lanes: int) -> "list[Work]":
    """What a program's launches do, for a predicted time; registers are not known."""
    from hw4cli.lab.measure.timing import Work, amounts_of

    return [
        Work(
            launch.kernel,
            counts.grid,
            counts.threads,
            launch.shared + launch.static_shared,
            amounts_of(counts, lanes),
            times=launch.times,
        )
        for counts, launch in zip(execution.counts, execution.launches, strict=True)
    ]


def _time(work: "Work", gpu: str) -> "Times | None":
    from hw4cli.lab.measure.gpus import model_named
    from hw4cli.lab.measure.timing import time_of

    return time_of(work, model_named(gpu))


def _merged(counts: "Sequence[Counts]") -> "dict[str, Counts]":
    """Launches of one kernel together, whatever their sizes."""
    found: dict[str, Counts] = {}
    for one in counts:
        found[one.symbol] = found[one.symbol] + one if one.symbol in found else one
    return found


def _record_of_times(times: Predicted) -> dict[str, Any]:
    return {name: time and {"ms": 1e3 * time.seconds, "limit": time.limit} for name, time in times.items()}


def record_of(counts: "Counts") -> dict[str, Any]:
    """A launch's counts by name, as JSON has them."""
    asked, sectors = counts.global_read
    written, written_sectors = counts.global_written
    wavefronts, least = counts.shared_wavefronts
    return {
        "launch": counts.symbol,
        "grid": counts.grid,
        "threads": counts.threads,
        "dram_read_bytes": counts.first_read,
        "dram_written_bytes": counts.written,
        "block_read_bytes": counts.block_read,
        "block_written_bytes": counts.block_written,
        "global_read_bytes": asked,
        "global_read_sectors": sectors // 32,
        "global_written_bytes": written,
        "global_written_sectors": written_sectors // 32,
        "shared_wavefronts": wavefronts,
        "shared_wavefronts_without_conflicts": least,
        "shared_bytes_of_tensor_cores": counts.operand_bytes,
        "operations": {kind: counts.total("amount", kind) for kind in _operations(counts)},
        "products": dict(counts.products),
        "meetings": _meetings(counts),
        "atomics": {level: _atomics(counts, level) for level in ("global", "shared")},
        "active_lanes": counts.active_lanes,
        "lines": [asdict(line) for line in counts.lines],
    }


def _atomics(counts: "Counts", level: str) -> dict[str, int]:
    """Atomics of threads; requests of warps; and how many lanes of a request share a word, all requests together."""
    lines = [line for line in counts.lines if line.what == f"atomic, {level}"]
    names = {"threads": "lanes", "requests": "times", "turns": "amount"}
    return {name: sum(getattr(line, field) for line in lines) for name, field in names.items()}


def _operations(counts: "Counts") -> list[str]:
    from hw4cli.emulator.counts import OPERATIONS

    found = dict.fromkeys(
        line.what for line in counts.lines if line.what.partition(",")[0] in OPERATIONS and line.amount
    )
    return [*(kind for kind in OPERATIONS if counts.total("amount", kind)), *(kind for kind in found if "," in kind)]


def _meetings(counts: "Counts") -> dict[str, int]:
    """How often warps, or blocks, meet at barriers, shuffles and votes."""
    from hw4cli.emulator.counts import NOT_MEETINGS

    found: dict[str, int] = {}
    for line in counts.lines:
        if line.times and not line.bytes and not line.amount and line.what not in NOT_MEETINGS:
            found[line.what] = found.get(line.what, 0) + line.times
    return found


def _by_launch(counts: "Sequence[Counts]", width: int | None, launches: Mapping[str, int] | None = None) -> str:
    """A line for each launch; for each kernel, with the number of its launches, where `launches` has that."""
    header = ["launch"] if launches is None else ["kernel", "launches"]
    header += ["DRAM KB", "written", "asked KB", "sectors/request", "shared KB", "conflicts"]
    header += ["MFLOP", "tensor", "exp", "atomics", "barriers", "shuffles", "lanes"]
    lines = []
    for one in counts:
        wavefronts, least = one.shared_wavefronts
        meetings = _meetings(one)
        barriers = sum(number for name, number in meetings.items() if name.startswith(("__syncthreads", "bar.")))
        shuffles = sum(number for name, number in meetings.items() if "shfl" in name or name.endswith("_sync"))
        lines.append(
            [
                one.symbol,
                *([f"{launches[one.symbol]:,}"] if launches is not None else []),
                *(_kb(moved) for moved in (one.first_read, one.written, one.global_read[0])),
                _ratio(one.total("sectors", "load", "store", "atomic"), one.requests),
                _kb(128 * wavefronts),
                _ratio(wavefronts, least),
                f"{(one.total('amount', 'fp32 FLOP') + one.total('amount', 'fp64 FLOP')) / 1e6:,.2f}",
                f"{sum(one.products.values()) / 1e6:,.2f}" if one.products else "-",
                *(
                    f"{number:,}"
                    for number in (
                        one.total("amount", "exponentials"),
                        one.total("lanes", "atomic"),
                        barriers,
                        shuffles,
                    )
                ),
                f"{one.active_lanes:.0%}",
            ]
        )
    return tables.plain(header, lines, width)


def _by_line(counts: "Sequence[Counts]", width: int | None) -> str:
    rows = [(clocks_of(line), one, line) for one in counts for line in one.lines]
    all_clocks = sum(clocks for clocks, _, _ in rows) or 1.0
    rows.sort(key=lambda row: -row[0])
    several = len(counts) > 1
    header = [
        *(["launch"] if several else []),
        "line",
        "what",
        "times",
        "sectors/request",
        "conflicts",
        "operations",
        "lanes",
    ]
    lines = [
        [
            *([one.symbol] if several else []),
            line.where,
            line.what,
            f"{line.times:,}",
            _ratio(line.sectors, line.times),
            _ratio(*_turns(line)),
            f"{line.amount:,}" if line.amount and not line.bytes else "-",
            "-" if (share := one.lanes_of(line)) is None else f"{share:.0%}",
            f"{clocks / all_clocks:.0%}",
        ]
        for clocks, one, line in rows[:LINES]
        if clocks
    ]
    return tables.plain([*header, "share"], lines, width)


def _turns(line: "Line") -> tuple[int, int]:
    """Wavefronts of shared memory, and the fewest that there could be; of atomics of global memory, lanes that share a
    word, and requests."""
    if line.what == "atomic, global":
        return line.amount, line.times
    return (0, 0) if line.sectors else (line.wavefronts, line.least)


def clocks_of(line: "Line") -> float:
    """About how many clocks of a multiprocessor a line takes, if nothing else is done meanwhile."""
    from hw4cli.emulator.counts import INSTRUCTIONS

    if line.sectors:  # whichever takes longer: lines of the L1 cache, or what comes from behind it
        return max(line.wavefronts / _PER_CLOCK["wavefronts"], line.sectors / _PER_CLOCK["sectors"])
    amounts = {"wavefronts": line.wavefronts}
    if line.what == INSTRUCTIONS:
        amounts["issued"] = line.times
    elif line.what.startswith("product"):
        amounts["products"] = line.amount
    elif line.what in ("exponentials", "logarithms", "divisions and roots", "conversions"):
        amounts["special"] = line.amount
    else:
        amounts["fp32"] = line.amount
    return sum(number / _PER_CLOCK[name] for name, number in amounts.items())


def _predicted(
    variant: Variant,
    shape: Workload,
    props: DeviceProperties,
    counts: "Sequence[Counts] | None",
    progress: Progress,
) -> Predicted:
    """The times that are predicted for a kernel on each of GPUS. `counts`: of this shape, on the GPU that was counted
    for, if there are any; they serve where the plan is the same. Registers are not known."""
    from hw4cli.lab.measure.counted import counted_works
    from hw4cli.lab.measure.gpus import model_named
    from hw4cli.lab.measure.timing import Work, amounts_of, total

    counted, found = variant.plan(shape, props), dict[str, "Times | None"]()
    for name in GPUS:
        gpu = model_named(name)
        try:
            plan = variant.plan(shape, gpu.props)
            if counts and plan.launches == counted.launches and plan.macros == counted.macros:
                works = [
                    Work(one.symbol, launch.grid, launch.block, launch.shared, amounts_of(one, props.lanes))
                    for one, launch in zip(counts, plan.launches, strict=True)
                ]
            else:
                works = counted_works(variant, shape, gpu.props, progress=progress)
            found[name] = total(works, gpu)
        except (MachineError, InputError):
            found[name] = None
    return found


def _times_sentence(what: str, times: Predicted) -> str:
    said = [f"{name} {_cell(time)}" for name, time in times.items()]
    return f"predicted for {what}, not measured: {'; '.join(said)} (docs/emulator.md)"


def _by_gpu(symbols: Sequence[str], times: "Mapping[str, Sequence[Times | None]]", width: int | None) -> str:
    """The times that are predicted for each kernel, all launches together."""
    from hw4cli.lab.measure.timing import together

    rows = []
    for symbol in dict.fromkeys(symbols):
        own = {
            name: together([time for at, time in zip(symbols, found, strict=True) if at == symbol])
            for name, found in times.items()
        }
        rows.append([symbol, *(_cell(time) for time in own.values())])
    note = "Predicted, not measured: milliseconds of all launches, and what limits the longest (docs/emulator.md)."
    return tables.plain(["kernel", *times], rows, width) + f"{wrapped(note, width)}\n"


def _cell(time: "Times | None") -> str:
    return f"{_digits(1e3 * time.seconds)} ms, {time.limit}" if time else "does not start"


def _kb(number: int) -> str:
    return f"{number / 1e3:,.1f}"


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if part and whole else "-"


def _digits(number: float) -> str:
    """A predicted number with two digits: it is not known better."""
    return f"{float(f'{number:.2g}'):g}"
