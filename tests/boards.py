"""Journals as the judge leaves them, for the tests of what is made from them."""

import json
from dataclasses import replace

from hw4cli.problem import suite
from hw4cli.scoring import journal
from hw4cli.scoring.record import Attempt

RIGHT = Attempt("t01", (320, 128, 32), 2.0, wall=0.5, exit_code=0, max_error=1e-5)


def write(folder, *attempts, **facts):
    """A journal as the judge writes it, in one go."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [journal.header(**facts), *(journal.run("key", attempt) for attempt in attempts)]
    (folder / journal.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))


ATTACK = "<script>alert(1)</script>"
QUOTED = 'O\'Neil "the" & co'
ARABIC = "معاذ"
LONG = "a-very-long-name-" * 20
COMPILER = 'does not compile: hw4.cu(3): error: identifier "<x>" is undefined'
GPU = "NVIDIA <GeForce> GTX 1080"
REST = "hw4.cu(4): error: expected a ;"


def write_class(folder):
    """Six users with a verdict of each kind among thirty cases, and one whose journal is damaged."""
    names = list(suite.cases())

    def attempts(wall, **others):
        for name in names:
            attempt = replace(RIGHT, case=name, limit=6.0, wall=wall)
            yield from others.get(name, [attempt])

    at = {name: replace(RIGHT, case=name, limit=6.0) for name in names}
    late = [replace(at["t02"], wall=7.31)]
    killed = [replace(at["t03"], wall=16.0, killed=True, max_error=None)]
    wrong = [replace(at["t04"], max_error=0.1, wrong='7 of 9 elements are off, stderr: "<b>&"')]
    fault = [replace(at["t05"], fault="no space left on the judge's disk", wall=None)]
    close = [replace(at["t06"], wall=wall, repeat=repeat) for repeat, wall in enumerate((5.9, 5.95, 6.1))]
    facts = {"cases": names, "gpu": {"name": GPU, "uuid": "GPU-1"}, "settings": {"penalty": 50.0}}
    write(folder / "a", *attempts(0.5, t04=wrong, t06=close), user=ATTACK, **facts)
    write(folder / "b", *attempts(0.6), user=QUOTED, **facts)
    write(folder / "c", *attempts(0.4, t02=late, t03=killed, t30=[]), user=ARABIC, **facts)
    write(folder / "d", *attempts(0.7, t05=fault), user=LONG, **facts)
    write(folder / "e", user="eve", note=f"{COMPILER}\n{REST}\n", **facts)
    (folder / "f").mkdir()
    (folder / "f" / journal.NAME).write_text("broken\n")
    return folder
