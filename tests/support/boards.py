"""Journals as the judge writes them, for tests of standings, results and boards."""

import json
import random
from dataclasses import replace

from hw4cli.judge.scoring import journal
from hw4cli.judge.scoring.record import Attempt, combine, make_standing, rank
from hw4cli.problem import suite

RIGHT = Attempt("t01", (320, 128, 32), 2.0, wall=0.5, exit_code=0, max_error=1e-5)


def write(folder, *attempts, **fields):
    """Write a journal with one header and these attempts."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [journal.header_line(**fields), *(journal.run_line("key", attempt) for attempt in attempts)]
    (folder / journal.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))


ATTACK = "<script>alert(1)</script>"
QUOTED = 'O\'Neil "the" & co'
ARABIC = "معاذ"
LONG = "a-very-long-name-" * 20
COMPILER = 'does not compile: hw4.cu(3): error: identifier "<x>" is undefined'
GPU = "NVIDIA <GeForce> GTX 1080"
REST = "hw4.cu(4): error: expected a ;"


def write_class(folder):
    """The journals of five users, with each kind of verdict among thirty cases, and a damaged one."""
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


SCRIPTS = (
    *("José Álvarez", "李明", "山田 花子", "김민준", "Ольга Петрова", "Δημήτρης", "नेहा शर्मा", "ธนา", "שרה לוי"),
    "Nguyễn Thị Hồng Phương-Anh",
)


def crowd(size, wall=1.0):
    """So many made-up users and their results: good ones, slow ones, broken ones, ties; the same ones every time."""
    chance, found = random.Random(20), []
    for number in range(size):
        skill, luck = wall * (1 + 0.05 * (number % 7)) * 10 ** (1.9 * number / max(size, 60)), chance.random()
        results = [_made_up(case, skill, luck, chance) for case in suite.cases().values()]
        user = SCRIPTS[number // 4] if number % 4 == 3 and number // 4 < len(SCRIPTS) else f"student.{number:03}"
        facts = {"note": "make hw4 failed: hw4.cu(118): error: expected a ;", "public_note": "make hw4 failed"}
        if number % 29 == 28:
            found.append(make_standing(user, [], list(suite.cases()), session=BOARD, **facts))
        else:
            kept = [one for one in results if one and not (number % 23 == 22 and one.case > "t24")]
            found.append(make_standing(user, kept, list(suite.cases()), session=BOARD))
        if number in (20, 21):
            found[-1] = replace(found[20], user=user)
        if number % 17 == 16:
            found[-1] = replace(found[-1], late=3600.0 * number)
    return rank(found)


BOARD = {"gpu": {"name": "NVIDIA GeForce GTX 1080", "uuid": "GPU-1"}}


def _made_up(case, skill, luck, chance):
    work = 4 * case.shape.B * case.shape.N**2 * case.shape.d
    shape = (case.shape.B, case.shape.N, case.shape.d)
    wall = 0.19 + chance.random() * 0.03 + skill * work / 1.2e12 * (0.8 + 0.5 * chance.random())
    attempt = Attempt(case.name, shape, case.limit, wall=wall, exit_code=0, max_error=1.2e-5 * (1 + luck))
    if wall > case.limit + 10:
        return combine([replace(attempt, wall=case.limit + 10, killed=True)])
    if luck > 0.45 and chance.random() < (luck - 0.4) ** 2:
        count = f"{chance.randrange(9999):,} of 640,000 elements"
        wrong = f"{count} are off by more than 0.005: first at batch 3, row 112, column 8"
        return combine([replace(attempt, max_error=0.3, wrong=wrong)])
    if luck > 0.9 and case.name > "t20":
        return combine([replace(attempt, exit_code=-11, problem="ended by signal 11 (SIGSEGV)", max_error=None)])
    if 0.40 < luck < 0.41:
        return combine([replace(attempt, fault="no space left")])
    if 0.30 < luck < 0.34 and case.name in ("t13", "t19"):
        return combine([replace(attempt, wall=case.limit * k, repeat=i) for i, k in enumerate((0.97, 0.99, 1.02))])
    return combine([attempt])
