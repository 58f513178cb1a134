"""`pytest --cpu`: what tests take of the processors' time, with the processes that they start and wait for: by folder,
by file, by test; and how much of it their fixtures take (tests/README.md)."""

import resource
from collections import defaultdict
from pathlib import PurePath

FILES, TESTS = 40, 50  # so many are listed


def processor_seconds():
    """What this process and those that have ended below it took of the processors' time."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def begin(item):
    """Before a test's fixtures."""
    item.seconds = [processor_seconds()]


def end_of_phase(item, report):
    """After its fixtures' begin, after the test, after their end: which the reports of other processes take along."""
    item.seconds.append(processor_seconds())
    report.processor_seconds = item.seconds[-1] - item.seconds[-2]


def write_summary(terminalreporter):
    """The sums, and what takes most. Time that passes beside the processors' (`waits`) is that of a test that sleeps,
    or of a machine that is busy."""
    reports = [report for group in terminalreporter.stats.values() for report in group if _has_time(report)]
    tests, files, folders = (defaultdict(_Sum) for _ in range(3))
    for report in reports:
        file = PurePath(report.nodeid.partition("::")[0])
        for sums, key in ((tests, report.nodeid), (files, str(file)), (folders, str(file.parent))):
            sums[key].add(report)
    seconds = sum(one.seconds for one in tests.values())
    terminalreporter.section(f"{seconds:.0f} s of processors' time in {len(tests):,} tests, collection not counted")
    for title, sums, most in (("folders", folders, None), ("files", files, FILES), ("tests", tests, TESTS)):
        terminalreporter.write_line(f"  seconds  fixtures   waits  {title}")
        for name, one in sorted(sums.items(), key=lambda pair: -pair[1].seconds)[:most]:
            terminalreporter.write_line(f"{one.seconds:9.2f} {one.fixtures:9.2f} {one.waits:7.1f}  {name}")


def _has_time(report):
    return hasattr(report, "processor_seconds")


class _Sum:
    """The processors' time of some tests: all of it, that of their fixtures; and how long they waited."""

    def __init__(self):
        self.seconds = self.fixtures = self.waits = 0.0

    def add(self, report):
        self.seconds += report.processor_seconds
        self.fixtures += report.processor_seconds if report.when != "call" else 0.0
        self.waits += max(0.0, report.duration - report.processor_seconds)
