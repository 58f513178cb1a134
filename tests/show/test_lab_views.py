"""The lab page in a real browser: its other views, small screens, dark ones, and records that hold little."""

import json

import pytest
from browser import COLOURS, PHONE, find, opened, screen
from labpage import at, choose, state, texts
from records import row, written

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
    assert "+ constexpr int ROWS = 4;" in "".join(texts(lab, "#code .add"))
    assert all(line.startswith("- ") for line in texts(lab, "#code .cut"))
    find(lab, "#list button[data-key=split]").click()
    header = texts(lab, "#file option")[1]
    choose(lab, "file", header)
    assert state(lab) == {"view": "kernels", "kernel": "split", "file": header}


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_scrolls_tables_and_code_but_not_the_page(lab, address, view):
    screen(lab, PHONE)
    lab.get("about:blank")
    lab.get(f"{address}#view={view}")
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
        lab.get("about:blank")
        lab.get(f"{address}#view={view}")
        found = lab.execute_script(COLOURS + CONTRASTS)
        assert len(found) > 10
        assert [(name, round(ratio, 2)) for name, ratio in found if ratio < 4.5] == []


def test_the_page_is_there_within_a_second(lab, address):
    """Of its own work: what a loaded machine adds is not the page's."""

    def milliseconds():
        lab.get("about:blank")
        lab.get(address)
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
