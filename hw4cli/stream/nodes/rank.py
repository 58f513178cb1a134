"""What each of several processes does: its share of a file's parts."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from hw4cli.errors import InputError, MachineError
from hw4cli.problem.casefile import InputFile
from hw4cli.problem.workload import Workload
from hw4cli.stream.layout import Files
from hw4cli.stream.nodes.jointfile import JointFile, Range, covers, key_of
from hw4cli.stream.nodes.place import Place
from hw4cli.stream.nodes.writer import Writer
from hw4cli.stream.pipeline import Job, compute
from hw4cli.stream.team import Notify
from hw4cli.stream.timeline import Timeline
from hw4cli.stream.work import Part, stretches
from hw4cli.system.files import check_different

PERIOD = 0.2  # seconds between two looks at what the others have written
SILENT = 10.0  # seconds that the first rank waits before it says so


def compute_share(
    source: Path,
    target: Path,
    job: Job,
    options: Sequence[object],
    timeline: Timeline,
    notify: Notify,
    place: Place,
    expected: str | None,
) -> None:
    """Compute the share of the process at a place, and write it into the file that all of them write.

    `options` decide about the bytes of the output. `expected` is the key that --srun has found; without one, the first
    process waits for the others, and brings the output to its place. Raises InputError and MachineError; what is
    written stays.
    """
    with InputFile(source) as inputs:
        check_different(source, target)
        shape, parts = job.parts(inputs)
        key, completes = key_of(source, target, options), expected is None and place.rank == 0
        if expected not in (None, key):
            raise InputError(f"{source} has changed since the run began, or is another file here")
        joint = JointFile(target, shape.output_bytes, key, begun_elsewhere=expected is not None)
        with joint.held() if completes else nullcontext():
            if mine := share(parts, shape, joint, place):
                with Writer(joint) as writer:

                    def written(part: Part) -> None:
                        writer.note(*bytes_of(part, shape))

                    files = Files(inputs.read, writer.write_at, written)
                    compute(inputs, mine, files, job, timeline, notify).finish()
            if completes:
                _wait_until_whole(joint, notify)
                inputs.check_unchanged()
                joint.complete()


def share(parts: Sequence[Part], shape: Workload, joint: JointFile, place: Place) -> list[Part]:
    """The parts that a place computes: of those that were not written before, a stretch; less what is written now."""
    before, now = joint.written_before(), joint.left()
    missing = [part for part in parts if not covers(before, *bytes_of(part, shape))]
    mine = stretches(missing, shape, [1.0] * place.size)[place.rank]
    return [part for part in mine if not covers(now, *bytes_of(part, shape))]


def bytes_of(part: Part, shape: Workload) -> Range:
    """Where a part's output lies in the file."""
    row = 4 * shape.d
    begin = (part.first * shape.N + part.row) * row
    return begin, begin + part.batches * part.rows * row


def _wait_until_whole(joint: JointFile, notify: Notify) -> None:
    """Wait until all ranks have written their shares.

    A launcher ends this process if another one fails. MachineError if the part disappears.
    """
    started, notified = time.monotonic(), False
    while (done := joint.share) < 1:
        if not joint.part.exists():
            raise MachineError(f"the part of {joint.path} has disappeared: another run has completed or removed it")
        if not notified and time.monotonic() - started > SILENT:
            notified = True
            notify(f"waiting for the other ranks: {done:.0%} of the output is written in {joint.folder}")
        time.sleep(PERIOD)
