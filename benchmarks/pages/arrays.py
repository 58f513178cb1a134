"""Tables of attention of arrays: beside peers, without rest, decoding beside a copy, errors."""

from benchmarks.pages.table import PACKAGES, Record, Table, beside, made, timed, times
from hw4cli.lab.arrays.named import described
from hw4cli.lab.tables import workload_of
from hw4cli.show.leaderboard.contest import Contest
from hw4cli.show.leaderboard.published import PUBLISHED, Published

NUMBERS = {"normal": "normal", "uniform": "uniform in [-3, 3)"}
PEERS = ("cuDNN", "FA2")


def published(row: Record, gpu: str) -> list[Published]:
    """What others published for a row's workload on this GPU, the fastest first: of a program whose fastest that is,
    all runs that it states, such as a ranked one beside a benchmark."""
    work = workload_of(row)
    if (work.kv_heads, work.Nk) != (work.heads, work.Nq):
        return []
    same = Contest.of(work.batch, work.Nq, work.d, work.heads, work.dtype, work.causal)
    figures = [one for one in PUBLISHED if one.workload == same and one.machine in gpu]
    figures.sort(key=lambda one: one.ms)
    return [one for one in figures if one.program.partition(",")[0] == figures[0].program.partition(",")[0]]


def arrays(*records: Record) -> Table:
    """A line for each workload: the first kernel's figures, and the peers' times, behind which stands how many times as
    fast ours is; then the same run after run without rest; below, what others published, by their own measurement."""
    header = ["workload", "kernel", "ms", "TFLOP/s", "of a copy", "error", *(f"{name} ms" for name in PEERS)]
    header += ["without rest, ms", *(f"{name} ms" for name in PEERS)]
    lines, figures = list[list[str]](), list[str]()
    for record in records:
        gpu = record["machine"].get("gpu") or ""
        for own, by_kernel in beside(record):
            peers = [by_kernel.get(name) for name in PEERS]
            name = own["case"]
            line = [_case(own), own["kernel"], f"{own['median']:.4g}"]
            line += [f"{own['tflops']:.0f}", _of_a_copy(own, record), f"{own['relative_error']:.1e}"]
            line += [times(peer, own) if peer else "-" for peer in peers]
            lines.append([*line, _sustained(own, own), *(_sustained(peer, own) if peer else "-" for peer in peers)])
            if own["kernel"] == lines[0][1] and (runs := published(own, gpu)):
                figures.append(f"`{name}` {_stated(runs)}, beside {_ours(own)}")
    stated = (
        "Published, and not measured here: "
        + "; ".join(dict.fromkeys(figures))
        + ". Others' runs follow one another as they do; the time without rest is the one to compare them with."
    )
    return Table(header, lines, (stated,) if figures else ())


def others(record: Record) -> Table:
    """A line for each kernel and peer of each workload, whatever the peers are; of runs without rest the watts and the
    operations for each joule; below, what peers did not compute, and why."""
    energy = any(row.get("gflop_per_joule") for row in record["rows"])
    lines = []
    for own, by_kernel in beside(record):
        for row in by_kernel.values():
            spent = f"{own['median']:.4g}" if row is own else times(row, own)
            line = [_case(own), _named(row), spent, f"{row['tflops']:.0f}"]
            line += [_number(row.get(key), ".0f") for key in ("watts", "gflop_per_joule")] if energy else []
            lines.append([*line, f"{row['relative_error']:.1e}"])
    header = ["workload", "kernel", "ms", "TFLOP/s", *(("W", "GFLOP/J") if energy else ()), "error"]
    below = (WITHOUT_REST,) if energy else ()
    return Table(header, lines, (*below, _not_computed(record)))


WITHOUT_REST = "W and GFLOP/J: of the whole board, of runs without rest in the same session."


def _case(row: Record) -> str:
    """A row's workload: its name, if it has one, and its sizes."""
    name, sizes = row["case"], described(workload_of(row))
    return sizes if name == sizes else f"`{name}` {sizes}"


def _named(row: Record) -> str:
    """A kernel's or a peer's name; a function's of a file as code."""
    return row["kernel"] if row["ours"] or ":" not in row["kernel"] else f"`{row['kernel']}`"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _not_computed(record: Record) -> str:
    """The kernels and peers of a record that failed or were wrong, each with its reasons and where; "" if none did."""
    failed = [row for row in record["rows"] if row["status"] != "ok"]
    names = [f"`{row['case']}`" if " " not in row["case"] else row["case"] for row in failed]
    every = len(dict.fromkeys(row["case"] for row in record["rows"]))
    return _reasons([(_named(row), row["reason"], name) for row, name in zip(failed, names, strict=True)], every)


def _reasons(missing: list[tuple[str, str, str]], every: int) -> str:
    """In a sentence, what is missing, why, and where, of `every` places; "" if nothing is."""
    places: dict[tuple[str, str], dict[str, None]] = {}
    for name, why, place in missing:
        places.setdefault((name, why), {})[place] = None
    said = [
        f"{name} ({'all' if len(found) == every else ', '.join(found)}): {why}" for (name, why), found in places.items()
    ]
    return f"Not computed: {'; '.join(said)}." if said else ""


def _stated(runs: list[Published]) -> str:
    """A program's published times, each with what it is of; all are of one workload."""
    times = " and ".join(f"{one.ms:g} ms" + (f" ({one.run})" if one.run else "") for one in runs)
    return f"{times} ({runs[0].program.partition(',')[0]}: {runs[0].source})"


def _ours(own: Record) -> str:
    """Our time with rest before each sample, and without."""
    rested = f"{own['median']:.4g} ms with rest"
    return f"{rested} and {own['sustained_ms']:.4g} ms without" if own["sustained_ms"] else rested


def _of_a_copy(own: Record, record: Record) -> str:
    """The rate at which a row's arrays pass, of that of a copy: of as many bytes where one was timed, else of a large
    one."""
    if memory := record.get("memory", {}).get(own["case"]):
        return f"{memory['copy'] / own['median']:.0%}"
    copy = record.get("copy_gb_per_s")
    return f"{own['gb_per_s'] / copy:.0%}" if copy else "-"


def _sustained(row: Record, own: Record) -> str:
    """A row's time without rest: of ours with its watts, of a peer with how many times as fast ours is."""
    if not row["sustained_ms"] or not own["sustained_ms"]:
        return "-"
    if row is not own:
        return times(row, own, "sustained_ms")
    return f"{row['sustained_ms']:.4g}" + ("" if row["watts"] is None else f", {row['watts']:.0f} W")


def decoding(record: Record) -> Table:
    """A line for each workload of measure/decoding.py, in microseconds: ours, a kernel that only reads K and V, a
    copy that moves as many bytes, and the peers."""
    header = ["(B, H, N, d)", "kernel", "K and V", "µs", "only read", "copy", "of the copy's rate"]
    header += [text for name in PEERS for text in (name, f"× {name}")]
    lines = []
    for own, by_kernel in beside(record):
        memory = record["memory"][own["case"]]
        line = [described(workload_of(own)), own["kernel"], f"{memory['bytes'] / 1e6:.0f} MB"]
        line += [f"{1000 * ms:.1f}" for ms in (own["median"], memory["read"], memory["copy"])]
        line.append(f"{memory['copy'] / own['median']:.0%}")
        for name in PEERS:
            other = by_kernel.get(name)
            line += [f"{1000 * other['median']:.1f}", f"{other['median'] / own['median']:.2f}"] if other else ["-", "-"]
        lines.append(line)
    return Table(header, lines)


# The peers of records of whole calls: the name in a record's times, that in tables, and whose versions count.
CALLED = {
    "fa2": ("FA2", ("torch",)),
    "fa4": ("flash-attn 4", ("flash_attn_4", "cutlass_dsl")),
    "cudnn": ("cuDNN", ("cudnn_frontend", "frontends_cudnn")),
    "cudnn flex": ("cudnn-frontend flex", ("cudnn_frontend", "cutlass_dsl")),
    "torch cudnn": ("torch's cuDNN", ("torch", "cudnn")),
    "flex": ("FlexAttention", ("torch", "triton")),
    "efficient": ("efficient", ("torch",)),
}


def sequences(record: Record) -> Table:
    """A line for each mix of measure/sequences.py and each pass: milliseconds of a call, and those of the peers with
    how many times as fast ours is in brackets."""
    peers = _called(record)
    header = ["sequences", "tokens", "heads, d", "pass", "ms", "TFLOP/s", *(f"{CALLED[peer][0]} ms" for peer in peers)]
    lines = []
    for row in timed(record):
        heads = f"{row['heads']}/{row['kv_heads']}" if row["kv_heads"] != row["heads"] else f"{row['heads']}"
        mask = " causal" if row["causal"] else ""
        mix = f"{row['sequences']} {row['mix']} of {row['shortest']:,} to {row['longest']:,}{mask}"
        figures = row["pass"], f"{row['ms']['hw4']:.3g}", f"{row['tflops']:.0f}"
        lines.append([mix, f"{row['tokens']:,}", f"{heads}, {row['d']}", *figures, *_beside_call(row, peers)])
    absent = _absent(record, [line[0] for line in lines])
    how = _calls_measured(record, "sequences", "FLOPs as above, backward 2.5 times as many")
    return Table(header, lines, (absent, how))


def windows(record: Record) -> Table:
    """A line for each case of measure/windows.py and each pass: milliseconds of a call, its time as a share of that
    without a window beside the pairs' share, and the peers' with how many times as fast ours is in brackets."""
    peers = _called(record)
    header = ["(batch, heads, N, d)", "window", "pass", "ms", "TFLOP/s", "of the full time", "of its pairs"]
    header += [f"{CALLED[peer][0]} ms" for peer in peers]
    lines = []
    for row in timed(record):
        (batch, count, kv_count, length, d), ms, (left, right) = row["sizes"], row["ms"], row["window"]
        heads = f"{count}/{kv_count}" if kv_count != count else f"{count}"
        lines.append(
            [
                *(f"({batch}, {heads}, {length}, {d})", f"{left:,}, {right:,}{', causal' if row['causal'] else ''}"),
                *(row["pass"], f"{ms['hw4']:.3g}", f"{row['tflops']:.0f}", f"{ms['hw4'] / ms['hw4 full']:.1%}"),
                *(f"{row['share']:.1%}", *_beside_call(row, peers)),
            ]
        )
    absent = _absent(record, [f"{line[0]}, window {line[1]}" for line in lines])
    how = _calls_measured(record, "windows", "FLOPs of the pairs in the window, backward 2.5 times as many")
    return Table(header, lines, (absent, how))


def _called(record: Record) -> list[str]:
    """The peers whose calls a record has times of."""
    return [peer for peer in CALLED if any(peer in row["ms"] for row in timed(record))]


def _beside_call(row: Record, peers: list[str]) -> list[str]:
    """Peers' times of a call, each with how many times as fast ours is."""
    ms = row["ms"]
    return [f"{ms[peer]:.3g} ({ms[peer] / ms['hw4']:.2f})" if peer in ms else "-" for peer in peers]


def _absent(record: Record, names: list[str]) -> str:
    """The peers of calls that are missing, each with its reasons and where, by the lines' names; "" if none is."""
    rows = [(name, row) for name, row in zip(names, timed(record), strict=True)]
    return _reasons(
        [(CALLED[peer][0], why, name) for name, row in rows for peer, why in row.get("absent", {}).items()],
        len(dict.fromkeys(names)),
    )


def _calls_measured(record: Record, kind: str, flops: str) -> str:
    """How calls were measured, with the versions of the peers that took part."""
    machine = record["machine"]
    names = dict.fromkeys(["torch", *(name for peer in _called(record) for name in CALLED[peer][1])])
    versions = ", ".join(f"{PACKAGES[name]} {machine[name]}" for name in names if machine.get(name))
    return f"{machine['gpu']}, {versions}; {made(record)}; bf16; {record['method'][kind]}; {flops}."


def wide(record: Record) -> Table:
    """A line for each case of measure/wide.py and each pass: milliseconds of a call, and of torch's, with how many
    times as fast ours is."""
    peers = {"cudnn": "cuDNN", "fa2": "FA2"}
    header = ["(batch, heads, N, d, dV)", "pass", "ms", "TFLOP/s", *(f"{peer} ms" for peer in peers.values())]
    lines = []
    for row in timed(record):
        ms, sizes = row["ms"], ", ".join(map(str, row["sizes"]))
        theirs = (f"{ms[peer]:.3g} ({ms[peer] / ms['hw4']:.2f})" if peer in ms else "-" for peer in peers)
        mask = " causal" if row["causal"] else ""
        lines.append([f"({sizes}){mask}", row["pass"], f"{ms['hw4']:.3g}", f"{row['tflops']:.0f}", *theirs])
    machine = record["machine"]
    versions = f"torch {machine['torch']}, cuDNN {machine['cudnn']}"
    how = f"{machine['gpu']}, {versions}; {made(record)}; bf16; {record['method']['wide']}; "
    return Table(header, lines, (f"{how}FLOPs as above, backward 2.5 times as many.",))


def scores(record: Record) -> Table:
    """A line for each case of measure/scores.py, each change and each pass: milliseconds of a call, how many times
    those of plain scores, and the peers', with how many times as fast ours is."""
    peers = _called(record)
    header = ["(batch, heads, N, d)", "scores", "pass", "ms", "TFLOP/s", "of plain"]
    header += [f"{CALLED[peer][0]} ms" for peer in peers]
    lines = []
    for row in timed(record):
        ms, sizes = row["ms"], ", ".join(map(str, row["sizes"]))
        own = f"{ms['hw4']:.3g}", f"{row['tflops']:.0f}", f"{ms['hw4'] / ms['hw4 plain']:.2f}"
        change = f"{row['change']}{', causal' if row['causal'] else ''}"
        lines.append([f"({sizes})", change, row["pass"], *own, *_beside_call(row, peers)])
    absent = _absent(record, [f"{line[0]}, {line[1]}" for line in lines])
    how = _calls_measured(record, "scores", "FLOPs as above, backward 2.5 times as many")
    return Table(header, lines, (absent, how))


def float32(record: Record) -> Table:
    """A line for each kernel and peer of each workload of measure/float32.py, the most exact first: its rate, and its
    largest error and that of the answer's norm."""
    lines = []
    for own, by_kernel in beside(record):
        for row in sorted(by_kernel.values(), key=lambda row: float(row["max_error"])):
            errors = f"{row['max_error']:.1e}", f"{row['relative_error']:.1e}"
            where = f"{_case(own)}, {NUMBERS[own['distribution']]}"
            lines.append([where, _named(row), f"{row['median']:.4g}", f"{row['tflops']:.0f}", *errors])
    header = ["workload", "by", "ms", "TFLOP/s", "largest error", "of the norm"]
    return Table(header, lines, (_not_computed(record),))


def exactness(*records: Record) -> Table:
    """A line for each kind of numbers: of each kernel and peer the largest error, and that of the answer's norm; of
    several GPUs one after the other where they differ."""
    rows = [row for record in records for row in timed(record)]
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    kinds: dict[tuple[str, int, str], dict[str, list[str]]] = {}
    for row in rows:
        cells = kinds.setdefault((row["dtype"], row["shape"][2], row["distribution"]), {})
        cells.setdefault(row["kernel"], []).append(f"{row['max_error']:.1e}, {row['relative_error']:.1e}")
    lines = [
        [
            f"{dtype}, d={d}, {NUMBERS[distribution]}",
            *("; ".join(dict.fromkeys(errors.get(kernel, ["-"]))) for kernel in kernels),
        ]
        for (dtype, d, distribution), errors in kinds.items()
    ]
    return Table(["numbers", *kernels], lines)
