"""What section 1 says of a kernel: from the header of its file, its launches, and the GPU's limits."""

from collections.abc import Mapping

from hw4cli.device.occupancy import Occupancy, occupancy
from hw4cli.errors import MachineError
from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.plan import Launch
from hw4cli.problem.workload import Workload
from hw4cli.show.records import Point
from hw4cli.show.report.document import missing, table
from hw4cli.show.report.figures import Figures, sweep
from hw4cli.show.report.material import Material, same_kernel
from hw4cli.text.tables import escaped
from hw4cli.text.words import counted

# Labels of a header that a section takes, with the words that introduce them.
SAYS = {"Idea": "Idea", "Before": "Against the kernel before it", "Limits": "Limits", "Source": "Source"}


def no_kernel(material: Material) -> str:
    """Nothing where the folder is of a whole program, whose author has to say it; else what to do."""
    programs = material.judged or any(source.programs for source in material.sources)
    if not material.kernel and programs:
        return ""
    if not material.kernel:
        return missing(
            "no kernel is known: name one, as in `hw4 report DIR flash`, or measure one with `hw4 bench -o FILE.json`"
        )
    return missing(escaped(material.no_variant or f"the file of {material.kernel} is not here"))


def _no_plan(material: Material) -> str:
    """The same where kernel and case are needed, and one of them is not known."""
    return missing("no case is known: name one behind the folder") if material.variant else no_kernel(material)


def idea(material: Material) -> str:
    """1.a: what the header of the author's own kernel says of it; nothing of a kernel of hw4's."""
    story = material.story(material.kernel) if material.kernel else None
    if not story:
        return "" if material.variant else no_kernel(material)
    said = [
        f"*{words}.* {escaped(_sentence(story.labels[label]))}"
        for label, words in SAYS.items()
        if label in story.labels
    ]
    about = f"`{material.kernel}`: {escaped(story.headline)}".rstrip(": ")
    return "\n\n".join([_sentence(about), *said])


def _said(material: Material, label: str) -> list[str]:
    """What the header says under a label, as a paragraph; nothing if it has no such label."""
    story = material.story(material.kernel)
    return [escaped(_sentence(story.labels[label]))] if story and label in story.labels else []


def geometry(material: Material) -> str:
    """1.b: how the work is divided, in the header's words and in numbers."""
    shape = material.shape
    if not material.variant or not shape:
        return _no_plan(material)
    parts = _said(material, "Geometry")
    try:
        plan = material.plan(shape)
    except MachineError as error:
        return "\n\n".join([*parts, missing(str(error))])
    br, bc = plan.macros["BR"], plan.macros["BC"]
    blocks, tiles = ceil_div(shape.N, br), ceil_div(shape.N, bc)
    every = shape.B * blocks
    parted = f", cut into {plan.splits} parts with a block for each, {every * plan.splits:,} in all"
    parts.append(
        f"On {_where(material, shape)}, the {shape.N:,} rows of Q of each batch are cut into "
        f"{counted(blocks, 'block')} of {br} rows, {every:,} for all batches; K and V pass by in "
        f"{counted(tiles, 'tile')} of {bc} keys{parted if plan.splits > 1 else ''}."
    )
    return "\n\n".join(parts)


def launch(material: Material) -> str:
    """1.d: every launch on the case, and on the largest one measured at each other head size."""
    if not material.variant:
        return no_kernel(material)
    rows, lacking = [], []
    for name, shape in _launched(material).items():
        try:
            plan = material.plan(shape)
        except MachineError as error:
            lacking.append(missing(str(error)))
            continue
        tile = f"{plan.macros['BR']}x{plan.macros['BC']}"
        for step in plan.launches:
            shared = f"{step.shared / 1024:.1f}"
            rows.append([escaped(name), str(shape), step.symbol, tile, f"{step.grid:,}", str(step.block), shared])
    header = ["case", "(B, N, d)", "launch", "B_r x B_c", "blocks", "threads a block", "shared KB a block"]
    launches = [table(header, rows)] if rows else []
    own = material.point and material.point.figures.get("registers")
    registers = [f"`{material.kernel}` has {own:.0f} registers a thread there, by the record."] if own else []
    return "\n\n".join([*launches, *registers, *_compiled(material), *lacking]) or _no_plan(material)


def _compiled(material: Material) -> list[str]:
    """What `hw4 check` found of the kernel's launches on this architecture; nothing without its record."""
    architecture = f"{material.props.cc / 10:.1f}"
    rows = {
        one.symbol: f"{escaped(one.symbol)} takes {one.registers} registers a thread, and {one.spilled} bytes spill"
        for source in material.sources
        for one in source.record.compiled
        if same_kernel(one.kernel, material.kernel) and one.architecture == architecture
    }
    return [f"Compiled for compute capability {architecture}: {'; '.join(rows.values())}."] if rows else []


def sram(material: Material) -> str:
    """1.e: the shared memory of a block against what there is, and what keeps more blocks out."""
    shape = material.shape
    if not material.variant or not shape:
        return _no_plan(material)
    try:
        plan = material.plan(shape)
    except MachineError as error:
        return missing(str(error))
    props, main = material.props, plan.launches[plan.main]
    own = {key: plan.macros[key] for key in ("BR", "BC")}
    rows = []
    for br, bc in dict.fromkeys([(own["BR"], own["BC"]), (own["BR"], 2 * own["BC"]), (2 * own["BR"], own["BC"])]):
        mark = " (chosen)" if (br, bc) == (own["BR"], own["BC"]) else ""
        rows.append([f"{br}x{bc}{mark}", *_fitting(material, shape, {"BR": br, "BC": bc})])
    found = _occupancy(material, main)
    limits = (
        f"On this GPU a block may have {props.shared_limit / 1024:.0f} KB of shared memory, and a multiprocessor has "
        f"{props.shared_sm / 1024:.0f} KB."
    )
    end = []
    if found:
        share, blocks = found.share, counted(found.blocks, "block")
        end = [
            f"A multiprocessor holds {blocks} at once, {share:.0%} of its warps: the next would lack "
            f"{' and '.join(found.limited_by)}."
        ]
    header = ["B_r x B_c", "shared KB a block", "% of what a block may have", "blocks that fit the shared memory"]
    return "\n\n".join([*_said(material, "Shared"), limits, table(header, rows), *end])


def tiles(material: Material, figures: Figures) -> str:
    """1.c: the tile on this GPU, and the sweep, drawn and in words."""
    parts = []
    if material.variant and material.shape:
        try:
            macros = material.plan(material.shape).macros
            parts.append(
                f"`{material.kernel}` has B_r = {macros['BR']} and B_c = {macros['BC']} on "
                f"{_where(material, material.shape)} on this GPU."
            )
        except MachineError as error:
            parts.append(missing(str(error)))
    parts.append(figures.shown("tiles"))
    parts += [_swept(group) for group in sweeps(material).values()]
    return "\n\n".join(parts)


def sweeps(material: Material) -> dict[tuple[str, str], list[Point]]:
    """The measurements with given tiles, by kernel and case."""
    found: dict[tuple[str, str], list[Point]] = {}
    for p in sweep(material):
        found.setdefault((p.kernel, p.where), []).append(p)
    return found


def _swept(points: list[Point]) -> str:
    best, worst = min(points, key=lambda p: p.ms), max(points, key=lambda p: p.ms)
    sizes = ["{}x{}".format(*p.tile) for p in (best, worst) if p.tile]
    return (
        f"`{best.kernel}` on {escaped(best.where)}: of {counted(len(points), 'tile')}, {sizes[0]} is the fastest "
        f"({best.ms:.4g} ms) and {sizes[1]} the slowest ({worst.ms:.4g} ms, {worst.ms / best.ms:.3g} times as long)."
    )


def _launched(material: Material) -> dict[str, Workload]:
    """The case, and of each other head size that the kernel was measured at the case with the most work."""
    found = {material.case: material.shape} if material.shape else {}
    sizes = {shape.d for shape in found.values()}
    for p in sorted(material.points, key=lambda p: -p.B * p.N**2 * p.setting.d):
        if p.kernel == material.kernel and p.setting.d not in sizes:
            sizes.add(p.setting.d)
            found[p.case] = Workload.one_head(p.B, p.N, p.setting.d)
    return found


def _fitting(material: Material, shape: Workload, tile: Mapping[str, int]) -> list[str]:
    """Of a tile: its shared memory a block, the share of the limit, and how many such blocks fit a multiprocessor."""
    props, variant = material.props, material.variant
    assert variant is not None
    shape = shape.stored
    try:
        chosen = {**variant.tile(shape, props), **tile}
        chosen.update(variant.derived(shape, chosen, props))
        size = variant.shared(shape.d, chosen)
    except (ArithmeticError, KeyError, LookupError, ValueError):
        return ["-", "-", "no such tile"]
    share = f"{100 * size / props.shared_limit:.0f}"
    if size > props.shared_limit:
        return [f"{size / 1024:.1f}", share, "none"]
    blocks = props.shared_sm // (size + props.shared_reserved) if size else "all"
    return [f"{size / 1024:.1f}", share, str(blocks)]


def _occupancy(material: Material, main: Launch) -> Occupancy | None:
    """By the registers, and the shared memory, that the record has; None where it has none."""
    figures = material.point.figures if material.point else {}
    registers = figures.get("registers")
    shared = int(figures.get("shared_bytes") or main.shared)
    return occupancy(material.props, int(registers), shared, main.block) if registers else None


def _where(material: Material, shape: Workload) -> str:
    """The case and its shape; the shape alone if the case is named after it."""
    return str(shape) if material.case == f"{shape.B}x{shape.N}x{shape.d}" else f"{escaped(material.case)} {shape}"


def _sentence(text: str) -> str:
    """A text with a full stop at its end."""
    return text if text.endswith((".", "!", "?", ")")) else f"{text}."
