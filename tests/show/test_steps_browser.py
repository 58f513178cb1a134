"""The lab page's stepper in a real browser: the numbers, the bytes, the keys, the address."""

import json
import math
import re
import time

import numpy as np
import pytest
from browser import PHONE, find, opened, press, screen, visit
from labpage import at, choose, state, texts
from ownership import owners
from records import blocks

from hw4cli.plans.plan import Digitwise, Linear
from hw4cli.show.labpage import page
from hw4cli.show.records import load

MASK = 0xFFFFFFFF


def elements(which, batch, N, d):
    """Q, K or V of a batch as the page makes them up: a hash of each element's place."""
    x = np.arange(N * d, dtype=np.uint64) + (batch * 3 + which) * N * d & MASK
    x = (x ^ x >> 16) * 0x7FEB352D & MASK
    x = (x ^ x >> 15) * 0x846CA68B & MASK
    return ((x ^ x >> 16).astype(np.float64) / 2**32 * 6 - 3).reshape(N, d)


def walk(lab, *names):
    return lab.execute_script("return arguments[0].map(name => walk[name])", names)


def numbers(lab):
    """m, l and O of the row, where the page stands."""
    return json.loads(find(lab, "#row-table").get_attribute("data-now").replace("null", "-Infinity"))


def begin(lab, **chosen):
    at(lab, view="steps", cc="90", **chosen)


def expected(lab, tiles=None):
    """The row's scores with the block's keys, those in so many tiles, in float64; and V of these keys."""
    batch, N, d, row0, row, first, end = walk(lab, "batch", "N", "d", "row0", "row", "first", "end")
    (base,) = walk(lab, "base")
    q, k, v = (elements(which, batch, N, d) for which in range(3))
    BC = lab.execute_script("return walk.g.BC")
    keys = np.arange(first * BC, min(N, (end if tiles is None else first + tiles) * BC))
    s = k[keys] @ q[row0 + row] / math.sqrt(d)
    if walk(lab, "causal")[0]:
        s[keys > row0 + row] = -np.inf
    return s, v[keys, :4], base


@pytest.mark.parametrize("mask", ["", "causal"])
@pytest.mark.parametrize("kernel", ["shared", "flash", "split", "exact", "float64", "naive", "Algorithm 1"])
def test_a_row_ends_with_its_attention(lab, kernel, mask):
    order = {"kernel": "warp", "order": "1"} if kernel == "Algorithm 1" else {"kernel": kernel}
    begin(lab, **order, mask=mask, step="999999", row="20")
    found = numbers(lab)
    s, v, base = expected(lab)
    top = s.max()
    weights = np.exp(s - top)
    np.testing.assert_allclose(np.array(found["O"]) / found["l"], weights @ v / weights.sum(), rtol=1e-11, atol=1e-12)
    assert found["m"] / base + math.log(found["l"]) == pytest.approx(top + math.log(weights.sum()), rel=1e-12)
    shown = [float(text.replace("−", "-")) for text in texts(lab, "#row-table tbody tr td:last-child")[-4:]]
    np.testing.assert_allclose(shown, weights @ v / weights.sum(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", ["shared", "flash", "split"])
def test_at_every_step_m_l_and_o_are_those_of_the_keys_so_far(lab, kernel):
    begin(lab, kernel=kernel, mask="causal")
    (count,) = walk(lab, "count")
    press(lab, "HOME")
    for step in range(1, count, 5):
        begin(lab, kernel=kernel, mask="causal", step=str(step))
        found = numbers(lab)
        if not found["tiles"] or found["m"] == -math.inf:
            assert found["O"] == [0, 0, 0, 0]
            continue
        s, v, base = expected(lab, found["tiles"])
        now = lab.execute_script("return rowNumbers(walk).after[arguments[0]].m", found["tiles"])
        np.testing.assert_allclose(found["O"], np.exp(s - now / base) @ v, rtol=1e-11, atol=1e-11)
        if kernel == "shared":
            assert now == pytest.approx(s.max() * base, rel=1e-12), "the running maximum"


OTHER_STEPS = """
const found = [], w = walk;
for (let k = 0, before = [0, 0]; k < w.count; k++) {
  const now = movedBy(w, k), here = stepAt(w, k), tile = here.tile ?? w.first, own = [0, 0];
  const rows = Math.min(w.g.BR, w.N - (here.rowBlock ?? w.rowBlock) * w.g.BR);
  for (const move of here.phase.moves) if (!move.ahead || tile + move.ahead < w.end)
    own[move.to === "device" ? 1 : 0] += moveBytes(w, move, rows, 1, tile + move.ahead, tile + move.ahead + 1);
  if (now.some((n, i) => n - before[i] !== own[i])) found.push([k, before, now, own]);
  before = now;
}
return found;
"""


@pytest.mark.parametrize("order", ["", "1"])
@pytest.mark.parametrize("mask", ["", "causal"])
def test_the_bytes_so_far_are_the_sum_of_what_each_step_moves(lab, mask, order):
    for kernel in ("shared", "split") if order else lab.execute_script("return data.steps.kernels"):
        begin(lab, kernel=kernel, mask=mask, order=order)
        assert lab.execute_script(OTHER_STEPS) == [], kernel


def whole_kernel(lab, **chosen):
    begin(lab, **chosen)
    return [int(n) for n in find(lab, "#bytes").get_attribute("data-moved").split(",")][4:]


def test_the_bytes_of_the_whole_kernel_are_those_of_all_its_blocks(lab):
    B, N, d = 4, 16384, 64
    matrix = 4 * B * N * d
    for kernel, rows in (("smallbr", 4), ("shared", 64), ("flash", 128)):
        read, written = whole_kernel(lab, kernel=kernel, shape="t28")
        splits = walk(lab, "splits")[0]
        parts = 0 if splits == 1 else splits * (matrix + 8 * B * N)
        assert read == matrix * splits + 2 * matrix * N // rows + parts, kernel
        assert written == matrix + parts
    assert whole_kernel(lab, kernel="naive", shape="t28") == [
        2 * matrix * N // 16 + 4 * 4 * B * N * N + matrix * N // 4,
        2 * 4 * B * N * N + matrix,
    ]
    read, written = whole_kernel(lab, kernel="shared", shape="t28", order="1")
    assert read == 2 * matrix + N // 32 * (2 * matrix + 8 * B * N)
    assert written == N // 32 * (matrix + 8 * B * N)


def test_a_causal_mask_spares_tiles_that_are_never_loaded(lab):
    full, _ = whole_kernel(lab, kernel="shared", shape="t28")
    causal, _ = whole_kernel(lab, kernel="shared", shape="t28", mask="causal")
    tiles = sum(64 // 32 * (block + 1) for block in range(16384 // 64))
    assert causal == 4 * 4 * 64 * (16384 + 2 * 32 * tiles) < 0.51 * full
    begin(
        lab, kernel="shared", mask="causal", block="26"
    )  # rows 128 to 191: the lowest rows of both batches come first
    assert find(lab, "#skips").text == "The mask spares these rows 26 of 32 tiles of keys: they are never loaded."
    begin(lab, kernel="shared", mask="causal", block="26", step="18")
    assert "The diagonal crosses this tile" in find(lab, "#step-text").text
    begin(lab, kernel="shared", step="999999")
    press(lab, "ARROW_LEFT", times=3)
    assert find(lab, "#step-text").text.endswith(
        "Only 8 of the tile's 32 keys are there: the others count for nothing."
    )
    begin(lab, kernel="naive", mask="causal")
    assert find(lab, "#skips").text == "The steps of this kernel are shown without the mask."


@pytest.mark.parametrize("kernel", ["flash", "float64"])
def test_causal_blocks_with_the_most_keys_come_first_and_share_their_own_tiles(lab, kernel):
    """By the numbers of kernels/schedule.cuh."""
    begin(lab, kernel=kernel, mask="causal", shape="t09")
    B, blocks = walk(lab, "B", "rowBlocks")
    places = lab.execute_script(
        "return [...Array(walk.B * walk.rowBlocks).keys()].map(n => { const at = placeOf(walk, n); "
        "return [at.batch, at.rowBlock, blockOf(walk, at.batch, at.rowBlock)]; })"
    )
    assert [number for *_, number in places] == list(range(B * blocks))
    section = min(B, 16) if kernel == "flash" else 1
    assert [(batch, row) for batch, row, _ in places[: 2 * section]] == [
        (batch, blocks - 1) for batch in range(section)
    ] + ([(batch, blocks - 2) for batch in range(section)])
    assert len({(batch, row) for batch, row, _ in places}) == B * blocks
    shared = lab.execute_script(
        "return [...Array(walk.rowBlocks).keys()].map(r => [...Array(walk.splits).keys()].map(s => keysOf(walk, r, s)))"
    )
    for row, parts in enumerate(shared):
        taken = [tile for first, end in parts for tile in range(first, end)]
        assert taken == list(range(lab.execute_script("return tilesOf(walk, arguments[0])", row))), "each tile once"


def test_the_page_gives_each_element_to_the_thread_that_the_layout_does(lab):
    begin(lab)
    script = """
    const g = data.steps.geometries[arguments[0]];
    const [layout, columns] = arguments[1] ? [g.outputs, g.d] : [g.scores, g.BC];
    return Array.from({ length: g.BR }, (_, i) => Array.from({ length: columns }, (_, j) => ownerOf(g, layout, i, j)));
    """
    for number, g in enumerate(lab.execute_script("return data.steps.geometries")[::9]):
        for which, columns in (("scores", g["BC"]), ("outputs", g["d"])):
            layout = Linear(**g[which]) if "width" in g[which] else Digitwise(**g[which])
            mine = owners(layout, g["BR"], columns, g["threads"]).tolist()
            assert lab.execute_script(script, 9 * number, which == "outputs") == mine


def test_keys_walk_and_play_and_the_address_keeps_where_one_is(lab):
    begin(lab, kernel="flash")
    press(lab, "ARROW_RIGHT", "ARROW_RIGHT", "ARROW_RIGHT", "ARROW_LEFT")
    assert find(lab, "#step-name").text == "Softmax, K comes, tile 0"
    assert find(lab, "#step-count").text.startswith("step 3 of ")
    press(lab, "END")
    assert find(lab, "#step-name").text == "Store a part"
    assert not find(lab, "#forward").is_enabled()
    press(lab, "HOME", "SPACE")
    assert find(lab, "#play").text == "Pause"
    deadline = time.monotonic() + 30
    while state(lab).get("step", "0") == "0" and time.monotonic() < deadline:
        time.sleep(0.1)
    press(lab, "SPACE")
    assert find(lab, "#play").text == "Play"
    assert int(state(lab)["step"]) >= 1
    find(lab, "#mask button[data-key=causal]").click()
    find(lab, "#forward").click()
    assert state(lab) == {"view": "steps", "cc": "90", "kernel": "flash", "mask": "causal", "step": "1"}
    link, text = lab.current_url, find(lab, "#step-text").text
    visit(lab, link)
    assert find(lab, "#step-text").text == text


def test_a_slider_a_row_a_thread_and_a_block_are_chosen(lab):
    begin(lab, kernel="shared", shape="t10")
    slider = find(lab, "#step")
    slider.send_keys("")
    press(lab, "ARROW_RIGHT", times=3)
    assert slider.get_attribute("aria-valuetext").endswith(": Softmax, tile 0")
    for name, value in (("row", "63"), ("thread", "255"), ("block", "7")):
        box = find(lab, f"#{name}")
        lab.execute_script("arguments[0].select()", box)
        box.send_keys(value + "\n")
        assert state(lab)[name] == value
    assert "thread 255" in find(lab, "#hierarchy").text
    find(lab, "#map").click()
    assert state(lab)["block"] != "7"
    before = state(lab)["thread"]
    find(lab, "#owners .odd").click()
    assert state(lab)["thread"] != before


def test_a_gpu_that_cannot_start_a_kernel_is_named_with_the_reason(lab):
    begin(lab, kernel="split")
    assert find(lab, "#memory").is_displayed()
    choose(lab, "cc", "75")
    assert find(lab, "#refusal").text.startswith("Kernel split needs compute capability 8.0, this GPU has 7.5.")
    assert not find(lab, "#memory").is_displayed()
    press(lab, "ARROW_RIGHT", "SPACE")
    choose(lab, "steps-kernel", "flash")
    assert find(lab, "#memory").is_displayed()


def test_stages_hold_the_tiles_that_were_asked_for_ahead(lab):
    begin(lab, kernel="split", shape="t28", step="23")
    held = lab.execute_script("return contents(walk)")
    assert find(lab, "#step-name").text == "Ask ahead, tile 5"
    tiles = {name: (held[f"stage {n}"]["tile"], held[f"stage {n}"]["arriving"]) for n, name in enumerate("0123")}
    arriving = {str(tile % 4): (tile, True) for tile in range(5, 8)}
    assert tiles == {"0": (4, False), **arriving}


def test_nothing_moves_by_itself_where_motion_is_to_be_reduced(lab):
    begin(lab, kernel="shared", step="1")
    script = "return getComputedStyle(document.querySelector('.way')).animationName"
    assert lab.execute_script(script) == "flow"
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    lab.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert lab.execute_script(script) == "none"


def test_a_recorded_block_is_drawn_around_the_tile_at_hand(chromium, tmp_path):
    spans = [
        [w, t, a, 1000 * t + 100 * a, 1000 * t + 100 * a + 90] for w in range(4) for t in range(9) for a in range(5)
    ]
    records = blocks(tmp_path / "a.json", ("flash", (4, 16384, 64), spans), ("flash", (1, 512, 32), spans[:5]))
    (tmp_path / "lab.html").write_text(page([load(records)], "a"))
    with opened(chromium, f"{(tmp_path / 'lab.html').as_uri()}#view=steps&kernel=flash&shape=t28&step=8"):
        assert find(chromium, "#step-name").text == "Softmax, K comes, tile 2"
        assert texts(chromium, "#activities li") == ["copy", "copy of V", "S = Q Kᵀ", "exponentials", "O += P V"]
        assert len(texts(chromium, "#spans .doing")) == 4 * 4 * 5
        assert texts(chromium, "#spans .here title")[2] == "S = Q Kᵀ, tile 2, warp 0: 90 clocks"
        assert find(chromium, "#timeline-words").text.startswith("Tiles 2 to 5 of those recorded, of 32 keys each")
        choose(chromium, "timeline", "1")
        assert len(texts(chromium, "#spans .doing")) == 4, "a copy that had come long before is left out"
        screen(chromium, PHONE)
        assert chromium.execute_script("return document.documentElement.scrollWidth") == PHONE
        at(chromium, view="steps", kernel="shared")
        assert not find(chromium, "#timeline-card").is_displayed()


def test_a_block_of_a_kernel_of_arrays_is_drawn_beside_the_steps_of_any_kernel(chromium, tmp_path):
    spans = [[w, t, a, 1000 * t + 90 * a, 1000 * t + 90 * a + 80] for w in (0, 4) for t in range(6) for a in range(5)]
    records = blocks(tmp_path / "a.json", ("half", (32, 8192, 128), spans), ("flash", (4, 16384, 64), spans[:9]))
    (tmp_path / "lab.html").write_text(page([load(records)], "a"))
    with opened(chromium, f"{(tmp_path / 'lab.html').as_uri()}#view=steps&kernel=shared&shape=t28"):
        assert find(chromium, "#timeline-card").is_displayed()
        assert texts(chromium, "#timeline option")[0].startswith("half on (32, 8192, 128), block 3, ")
        assert len(texts(chromium, "#timeline option")) == 1, "flash has steps of its own"
        assert len(texts(chromium, "#spans .doing")) == 2 * 4 * 5
        choose(chromium, "steps-kernel", "flash")
        assert texts(chromium, "#timeline option")[1].startswith("(4, 16384, 64)")
        assert chromium.execute_script("return document.querySelector('#timeline').value") == "1", "its own comes first"


def test_banks_are_calculated_for_rows_of_any_length(lab):
    """As counts on the CPU and the profiler have them: 16 lanes' rows of 64 floats, 16 bytes each, meet eightfold."""
    of = {
        (stride, wide): lab.execute_script("return wavefronts(...arguments)", stride, wide)
        for stride, wide in [(64, 1), (65, 1), (32, 1), (48, 1), (1, 1), (64, 4), (68, 4), (64, 2), (66, 2), (36, 4)]
    }
    assert [of[one, 1] for one in (64, 65, 32, 48, 1)] == [32, 1, 32, 16, 1]
    assert [of[one, 4] for one in (64, 68, 36)] == [32, 4, 4]
    assert [of[one, 2] for one in (64, 66)] == [32, 2]
    at(lab, view="steps", kernel="shared", shape="t28")
    assert find(lab, "#bank-words").text.endswith("32 times as many; none too many with rows of 65 floats.")
    at(lab, view="steps", kernel="shared", shape="t28", stride="65")
    assert find(lab, "#bank-words").text.endswith("1 access where 1 would do: no conflict.")
    choose(lab, "wide", "4")
    assert "needs rows that begin at multiples of that" in find(lab, "#bank-words").text
    at(lab, view="steps", kernel="shared", shape="t28", stride="x", wide="3")
    assert find(lab, "#stride").get_attribute("value") == "64"


def test_what_no_address_should_hold_is_taken_for_nothing(lab):
    at(lab, view="steps", kernel="nosuch", shape="?", cc="1", mask="x", order="9", block="-5", row="x", thread="1e9")
    assert find(lab, "#step-name").text == "Load Q"
    assert find(lab, "#block").get_attribute("value") == "0"


CAPTIONS = """
const shown = {};
for (const text of document.querySelectorAll("#memory text.small")) {
  const name = text.previousElementSibling.textContent;
  if (name === "S" || name === "O") shown[name] = text.textContent;
}
const words = document.querySelector("#hierarchy").textContent.matchAll(/([\\d,]+) of ([SO]) in/g);
const said = Object.fromEntries([...words].map(m => [m[2], m[1]]));
return [shown, said];
"""


@pytest.mark.parametrize("cc", ["61", "80", "90"])
def test_what_a_thread_holds_is_one_number_wherever_it_is_said(lab, cc):
    """ "S 24 a thread" stood beside "thread 37: 32 of S": 128 of 512 threads hold nothing, which an average hides."""
    for shape in ("t05", "t28", "t30"):
        for kernel in lab.execute_script("return data.steps.kernels"):
            at(lab, view="steps", cc=cc, kernel=kernel, shape=shape)
            if not find(lab, "#memory").is_displayed():
                continue
            shown, said = lab.execute_script(CAPTIONS)
            assert said, (kernel, shape)
            for name, count in said.items():
                assert re.match(r"[\d,]+", shown[name])[0] == count, (kernel, shape, name, shown[name])


def test_of_a_block_with_threads_that_only_copy_the_others_are_counted(lab):
    begin(lab, kernel="split", shape="t28", step="8")
    assert "32 a thread of 384" in texts(lab, "#memory text.small")
