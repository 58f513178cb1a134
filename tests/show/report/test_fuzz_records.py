"""Records and profiles with random damage: pictures, the laboratory's page and the report say in a sentence what is
wrong, or show it; none is broken by it."""

import json
from contextlib import suppress
from copy import deepcopy

from fuzzing import EXAMPLES, a_folder, fuzz, json_values
from hypothesis import given, settings
from hypothesis import strategies as st
from records import MACHINE, METHOD, row
from slow import slow
from student import PROFILE

from hw4cli.errors import Hw4Error
from hw4cli.lab.measure import roofs
from hw4cli.problem.workload import Shape
from hw4cli.show.draw import render
from hw4cli.show.kinds import KINDS
from hw4cli.show.labpage import page as lab_page
from hw4cli.show.records import load
from hw4cli.show.report.check import lacks
from hw4cli.show.report.material import gathered
from hw4cli.show.report.page import page as report_page
from hw4cli.show.report.write import FORMS, Contents, updated
from hw4cli.show.scaling import load_scaling
from hw4cli.show.traffic import load_profile

SHAPE = (4, 16384, 64)
ATTACK = "<script>alert(1)</script>"
WHOLE = {"schema": 1, "machine": MACHINE, "method": METHOD, "commit": "abc1234", "date": "2026-01-01"}
PROGRAM = {"program": "./hw4", "median": 1.0, "fastest": 0.9, "slowest": 1.2, "ratio": 1.0, "max_error": 1e-6}
SPANS = [[0, 0, 0, 1, 9], [1, 2, 1, 4, 8]]
RECORDS = [
    {
        **WHOLE,
        "sgemm_tflops": 50.0,
        "copy_gb_per_s": 4000.0,
        "rows": [row(kernel, (4, N, 64), N / 1e4, case=f"t{N}", registers=64, max_error=1e-6)
                 for kernel in ("naive", "flash", "flash 64x32", "./mine.cu") for N in (256, 512, 1024)],
    },
    {**WHOLE, "kind": "end-to-end", "rows": [{**row(), **PROGRAM, "program": name} for name in ("./hw4", "hw4")]},
    {**WHOLE, "kind": "timeline", "activities": ["copy", "S"],
     "rows": [{**row("flash", SHAPE), "block": 3, "keys": 32, "spans": SPANS}]},
    {**WHOLE, "kind": "arrays", "rows": [{**row(), "dtype": "fp16", "heads": 8, "kv_heads": 2, "pass": "forward"}]},
]  # fmt: skip
values = (
    json_values
    | st.floats(0, 1e300)
    | st.sampled_from(
        [ATTACK, "flash", "./x.cu", "../x.cu", "a.cu\0", "flash 0x0", "flash 9999999999x1", [1, 1, 1], [2**31, 1, 64]]
    )
    | st.lists(st.integers(-1, 2**33), min_size=3, max_size=5)
)


def places(value):
    """All objects and lists in a document that hold something."""
    found = [value] if isinstance(value, dict | list) and value else []
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found += places(inner)
    return found


@st.composite
def damaged(draw, document):
    """The bytes of a document with one to three other values, and perhaps cut or with other bytes in it."""
    document = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(document)))
        key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if draw(st.integers(0, 5)):
            place[key] = deepcopy(draw(values))  # or a value of a list of values would lie in itself
        else:
            del place[key]
        if not places(document):
            break
    text = json.dumps(document).encode(errors="replace")
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.binary(max_size=4)) + text[at + draw(st.integers(0, 40)) :]
    return text


@slow
@settings(fuzz, max_examples=max(20, EXAMPLES // 5))
@given(
    texts=st.tuples(*map(damaged, RECORDS)),
    drawn=st.sampled_from(sorted({*KINDS} - {"traffic", "scaling"})),
    rendered=st.integers(0, 29),
    form=st.sampled_from(sorted(FORMS)),
)
def test_records_may_hold_anything(texts, drawn, rendered, form):
    with a_folder() as folder:
        (folder / "mine.cu").write_text("// mine: my own\n// Like: naive\n")
        records = []
        for number, text in enumerate(texts):
            (folder / f"{number}.json").write_bytes(text)
            try:
                records.append(load(folder / f"{number}.json"))
            except Hw4Error as error:
                assert str(error)
        with suppress(Hw4Error):
            assert ATTACK not in lab_page(records, "x")
        with suppress(Hw4Error):
            options = {"base": "naive"} if drawn == "speedup" else {}
            picture = KINDS[drawn](records, **options)
            picture.digest()
            if rendered == 0:
                assert ATTACK.encode() not in render(picture, "svg")
        material = gathered(folder)
        text = updated(None, Contents(material), form)
        assert ATTACK not in report_page(text, folder)
        (folder / "report.md").write_text(text, errors="replace")
        assert lacks(folder / "report.md", material, form)


SCALING = {
    "schema": 1, "kind": "scaling", "machine": MACHINE, "rates": {}, "date": "2026-01-01",
    "rows": [{"case": "t30", "shape": [2, 32768, 64], "gpus": gpus, "seconds": 1 / gpus} for gpus in (1, 2)],
}  # fmt: skip
ROOFS = {"schema": 1, "kind": "roofs", "machine": MACHINE, "roofs": {"copy": {"rate": 1.0, "unit": "GB/s"}}}


@fuzz
@given(scaling=damaged(SCALING), measured=damaged(ROOFS), cut=st.integers(0, 2000), more=st.binary(max_size=30))
def test_scalings_roofs_and_profiles_may_hold_anything(scaling, measured, cut, more):
    csv = PROFILE.encode()
    with a_folder() as folder:
        path = folder / "x.csv"
        for text in (scaling, measured, csv[:cut] + more + csv[cut + len(more) :]):
            path.write_bytes(text)
            for read in (load_scaling, roofs.read, load_profile):
                try:
                    found = read(path)
                    if read is load_scaling:
                        KINDS["scaling"]([found]).digest()
                    if read is load_profile:
                        KINDS["traffic"]([found], shape=Shape(*SHAPE)).digest()
                except Hw4Error as error:
                    assert str(error)
            Contents(gathered(folder)).all()
