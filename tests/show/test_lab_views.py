"""The lab page in a real browser: its other views, small screens, dark ones, and records that hold little."""

import json
from itertools import pairwise

import pytest
from browser import COLOURS, PHONE, find, opened, screen, visit
from labpage import at, choose, state, texts
from records import COMMITTED, row, written

from hw4cli.show.labpage import page
from hw4cli.show.records import load

VIEWS = ("compare", "ladder", "tiles", "programs", "kernels", "steps")


def test_the_ladder_counts_from_the_first_rung_and_from_the_one_before(lab):
    at(lab, view="ladder", rungs="h200-ladder.json 4,16384,64")
    rows = texts(lab, "#ladder-table tbody tr")
    assert rows[0].startswith("naive175.81.564×1–")
    assert rows[5].startswith("flash5.79247.46×30.3×2.21")
    assert "5.792 ms  ×30.3" in texts(lab, "#ladder text")


def test_the_best_tile_is_framed(lab):
    at(lab, view="tiles")
    assert texts(lab, ".map td.best") == ["26.7", "48.3", "25.8", "46.7"]
    choose(lab, "cells", "ms")
    assert len(texts(lab, ".map td.best")) == 4
    assert "flash on t28 (4, 16384, 64), H200, ms" in texts(lab, ".map caption")


def test_programs_are_compared_case_by_case_and_in_sum(lab):
    at(lab, view="programs", programs="h200-end-to-end.json")
    assert find(lab, "#sums").text == "All cases together: ./hw4 12.43 s, hw4 14.3 s."
    assert len(texts(lab, "#programs-table tbody tr")) == 31


def test_a_kernel_shows_its_story_its_source_and_what_it_changed(lab):
    at(lab, view="kernels", kernel="warp")
    assert "A lane owns one key of the tile" in find(lab, "#story").text
    assert texts(lab, "#story dt") == ["Idea", "Geometry", "Shared", "Limits", "Source", "Before"]
    assert texts(lab, "#code .l")[0].startswith("// warp:")
    choose(lab, "diff", "shared")
    assert find(lab, "#code-title").text == "From shared to warp"
    assert "+ constexpr int ROWS = WARP_ROWS;" in "".join(texts(lab, "#code .add"))
    assert all(line.startswith("- ") for line in texts(lab, "#code .cut"))
    find(lab, "#list button[data-key=split]").click()
    header = texts(lab, "#file option")[1]
    choose(lab, "file", header)
    assert state(lab) == {"view": "kernels", "kernel": "split", "file": header}


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_scrolls_tables_and_code_but_not_the_page(lab, address, view):
    screen(lab, PHONE)
    visit(lab, f"{address}#view={view}")
    assert lab.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [PHONE, PHONE]
    assert find(lab, f"#tab-{view}").rect["x"] + find(lab, f"#tab-{view}").rect["width"] <= PHONE


CONTRASTS = """
const ground = element => { // of the nearest element behind it that has one
  for (; element; element = element.parentElement) {
    const color = numbers(getComputedStyle(element).backgroundColor);
    if (color.length < 4 || color[3] === 1) return color;
  }
};
const hasText = element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
return [...document.body.querySelectorAll("*")].filter(one => hasText(one) && one.getClientRects().length).map(one => {
  const style = getComputedStyle(one), ink = numbers(one.namespaceURI.endsWith("svg") ? style.fill : style.color);
  const ratio = contrast(ink.slice(0, 3), ground(one).slice(0, 3));
  return [one.textContent.slice(0, 40), ratio];
});
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable(lab, address, scheme):
    screen(lab, scheme=scheme)
    for view in (*VIEWS, "kernels&kernel=warp&diff=shared"):
        visit(lab, f"{address}#view={view}")
        found = lab.execute_script(COLOURS + CONTRASTS)
        assert len(found) > 10
        assert [(name, round(ratio, 2)) for name, ratio in found if ratio < 4.5] == []


def test_the_page_is_there_within_a_second(lab, address):
    """Of its own work: what a loaded machine adds is not the page's."""

    def milliseconds():
        visit(lab, address)
        return lab.execute_script("return performance.getEntriesByType('navigation')[0].domComplete")

    assert any(milliseconds() < 1000 for _ in range(10))


def test_types_masks_and_passes_are_offered_where_records_have_them(chromium, tmp_path):
    rows = [row("flash", shape=(4, N, 64), median=N / 128) for N in (128, 256, 512)]
    rows += [row("half", dtype="float16", causal=causal, median=0.1 + causal) for causal in (False, True)]
    rows += [row("</script>&", **{"pass": "backward"})]
    (tmp_path / "lab.html").write_text(page([load(written(tmp_path / "a.json", *rows))], "<i>"))
    with opened(chromium, (tmp_path / "lab.html").as_uri()):
        assert texts(chromium, "[role=tab]") == ["Compare", "Kernels", "Steps"], "no view without data"
        assert texts(chromium, "#dtype option") == ["float16", "float32"]
        assert texts(chromium, "#over option") == ["N, at B = 4", "all workloads"]
        choose(chromium, "dtype", "float16")
        assert texts(chromium, "#causal option") == ["full", "causal"]
        choose(chromium, "causal", "true")
        assert texts(chromium, "#cards .big") == ["1.1 ms ±1.5 %"]
        choose(chromium, "dtype", "float32")
        choose(chromium, "pass", "backward")
        assert texts(chromium, "#cards h3") == ["</script>&"]
        assert json.loads(chromium.execute_script("return JSON.stringify(document.title)")) == "<i>"


LONG = "/home/somebody/a/folder/in/a/folder/with-a-kernel-of-my-own.cu"
RECORDS = {
    "none": [],
    "one": [row()],
    "tiles": [row("flash 128x32"), row("flash 64x32")],
    "sweep": [row(name, shape=(1, N, 64), median=N / 64) for name in ("naive", "flash", LONG) for N in (64, 256, 1024)],
    "same": [row(name, low=1.0, high=1.0) for name in ("naive", "flash", "split")],
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_page_of_little_data_is_whole_and_complains_of_nothing(chromium, tmp_path, name):
    (tmp_path / "lab.html").write_text(page([load(written(tmp_path / "a.json", *RECORDS[name]))], name))
    with opened(chromium, (tmp_path / "lab.html").as_uri()):
        screen(chromium, PHONE)
        for view in VIEWS:
            at(chromium, view=view)
            assert chromium.execute_script("return document.documentElement.scrollWidth") == PHONE
            assert len(chromium.find_elements("css selector", "[role=tabpanel]:not([hidden])")) == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The address of a page of all records of the tree."""
    path = tmp_path_factory.mktemp("whole") / "lab.html"
    path.write_text(page([load(record) for record in COMMITTED], "whole"))
    return path.as_uri()


BOXES = """
return [...document.querySelectorAll(arguments[0])].map(one => {
  const { left, right, top, bottom } = one.getBoundingClientRect();
  return [one.textContent, left, top, right, bottom];
});
"""


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_every_curve_has_its_name_beside_it_and_no_name_covers_another(chromium, whole, scale):
    with opened(chromium, f"{whole}#over=cases&scale={scale}"):
        kernels = texts(chromium, "#legend button")
        names = chromium.execute_script(BOXES, "#chart text[fill]")
        _, left, top, right, bottom = chromium.execute_script(BOXES, "#chart svg")[0]
    assert len(kernels) > 20
    assert sorted(name for name, *_ in names) == sorted(kernels)
    assert all(x0 >= left and y0 >= top and x1 <= right and y1 <= bottom for _, x0, y0, x1, y1 in names)
    middles = sorted((y0 + y1) / 2 for _, _, y0, _, y1 in names)
    assert min(b - a for a, b in pairwise(middles)) > 12


def test_on_a_phone_the_names_of_workloads_do_not_cover_each_other(chromium, whole):
    with opened(chromium, f"{whole}#over=cases"):
        screen(chromium, PHONE)
        visit(chromium, f"{whole}#over=cases")
        places = sorted(left for _, left, *_ in chromium.execute_script(BOXES, "#chart text[transform]"))
        bold = texts(chromium, "#chart text[font-weight='600']")
    assert len(places) > 5
    assert min(b - a for a, b in pairwise(places)) > 8
    assert bold == ["t28"], "the chosen one is named"


def test_tiles_that_are_nearly_as_fast_have_nearly_the_same_shade(chromium, whole):
    """13.8 and 11.7 TFLOP/s of a kernel lay at the two ends of its colours; so did 48.7 and 39.2."""
    with opened(chromium, f"{whole}#view=tiles"):
        cells = chromium.execute_script(
            "return [...document.querySelectorAll('.map')].map(one => [one.querySelector('caption').textContent,"
            "[...one.querySelectorAll('td[class]')].map(td =>"
            "[parseFloat(td.textContent), Number(td.className.match(/heat(\\d+)/)[1])])])"
        )
        shades = texts(chromium, "#shades span")
    assert shades == ["0", "10", "20", "30", "40", "50", "60", "70", "80", "90–100 %"]
    steps = {caption.partition(" on ")[0]: dict(pairs) for caption, pairs in reversed(cells)}["halfwarp"]
    assert (steps[13.8], steps[11.7]) == (9, 8)
    for _, pairs in cells:
        best = max(rate for rate, _ in pairs)
        assert all(abs(10 * rate / best - step) <= 1.1 for rate, step in pairs)


def test_the_list_of_records_is_folded_and_says_why_one_is_not_shown(chromium, whole):
    with opened(chromium, f"{whole}#view=tiles"):
        assert find(chromium, "#records-title").text == f"Records: 4 of {len(COMMITTED)} are shown here"
        height = "return document.querySelector('footer').offsetHeight / document.body.scrollHeight"
        assert chromium.execute_script(height) < 0.1
        find(chromium, "footer summary").click()
        listed = dict(zip([path.name for path in COMMITTED], texts(chromium, "#records > li"), strict=True))
        assert "not shown" not in listed["h200-tiles.json"]
        assert listed["h100-thirty.json"].endswith("not shown here: it holds times of kernels, not a sweep of tiles")
        at(chromium, view="compare", gpu="NVIDIA H200", d="64")
        listed = dict(zip(listed, texts(chromium, "#records > li"), strict=True))
        assert listed["h100-flash.json"].endswith("not shown here: of another GPU")
        assert "it holds whole programs, not times of kernels" in listed["h200-end-to-end.json"]
        assert "not shown" not in listed["h200-ladder.json"]
        at(chromium, view="programs", programs="h200-end-to-end.json")
        listed = dict(zip(listed, texts(chromium, "#records > li"), strict=True))
        assert listed["h100-end-to-end.json"].endswith("not shown here: another one is chosen above")
        at(chromium, view="steps", kernel="flash", shape="t28")
        assert find(chromium, "#records-title").text == f"Records: 1 of {len(COMMITTED)} is shown here"
        at(chromium, view="kernels")
        assert find(chromium, "#records-title").text == f"Records: none of {len(COMMITTED)} is shown here"
