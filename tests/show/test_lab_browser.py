"""The lab page in a real browser: comparing kernels, by mouse and by keyboard."""

import time

from browser import find, hover, opened, press, visit
from labpage import at, choose, state, texts, toggle
from records import KEPT_RECORDS

from hw4cli.show.records import load


def test_the_first_view_says_which_kernel_is_fastest_and_by_how_much(lab):
    at(lab, gpu="NVIDIA H200")
    assert find(lab, "#say").text.startswith("t28 (4, 16384, 64): split takes 0.7946 ms, 221 times as fast as naive")
    assert texts(lab, "#cards h3")[:3] == ["split", "exact", "flash"]
    assert len(texts(lab, "#cards h3")) == 11
    assert find(lab, "#say").text.endswith("; the two are from different records.")
    choose(lab, "base", "torch math")
    assert find(lab, "#say").text.endswith("times as fast as torch math (14.59 ms).")


def test_a_click_in_the_legend_hides_a_kernel_everywhere_and_one_always_stays(lab):
    toggle(lab, "naive").click()
    assert toggle(lab, "naive").get_attribute("aria-pressed") == "false"
    assert "naive" not in texts(lab, "#cards h3") + texts(lab, "#table tbody th") + texts(lab, "#chart text")
    toggle(lab, "naive").click()
    assert "naive" in texts(lab, "#cards h3")
    at(lab, record="h200-thirty.json", off="split,exact")
    toggle(lab, "flash").click()
    assert set(texts(lab, "#table tbody th")) == {"flash"}


def test_speed_ups_follow_the_chosen_base(lab):
    at(lab, record="h200-split.json", d="64", at="4,16384,64")
    choose(lab, "base", "torch efficient")
    cards = dict(zip(texts(lab, "#cards h3"), texts(lab, "#cards dd:first-of-type"), strict=True))
    assert cards["split"] == "×10.1"
    assert cards["torch efficient"] == "×1"
    choose(lab, "measure", "times")
    assert "speed-up over torch efficient, log" in texts(lab, "#chart text")


def test_curves_over_n_have_two_axes_to_turn_from_log_to_linear(lab):
    at(lab, record="h200-thirty.json", over="B·N=20480")
    ticks = texts(lab, "#chart text")
    assert {"128", "256", "512", "1,024", "2,048", "split", "time, ms, log"} <= set(ticks)
    xs = "return [...document.querySelectorAll('#chart path[stroke-width=\"2\"]')].map(path => path.getAttribute('d'))"
    before = lab.execute_script(xs)
    find(lab, "#nscale button[data-key=linear]").click()
    assert lab.execute_script(xs) != before
    find(lab, "#scale button[data-key=linear]").click()
    assert {"time, ms", "0"} <= set(texts(lab, "#chart text"))
    assert lab.switch_to.active_element.get_attribute("data-key") == "linear", "the pressed button keeps the focus"


def test_each_measure_has_its_unit_and_its_measured_peak(lab):
    at(lab, record="h200-split.json", d="64")
    for measure, label, roof in (
        ("tflops", "rate, TFLOP/s", "cuBLAS SGEMM 51.3 TFLOP/s"),
        ("sgemm", "rate, % of cuBLAS SGEMM", "cuBLAS SGEMM 100 %"),
        ("gbs", "Q, K, V and O, GB/s", "copy 4,250 GB/s"),
        ("error", "largest error, log", "tolerance 5.0e-3"),
    ):
        choose(lab, "measure", measure)
        assert {label, roof} <= set(texts(lab, "#chart text"))


def test_rates_are_shown_with_what_the_copy_bandwidth_allows(lab):
    at(lab, record="h200-split.json", d="64", measure="tflops")
    rise = lab.execute_script(
        "return [...document.querySelectorAll('#chart line.axis')].map(line => line.y1.baseVal.value)"
    )
    ground, (roof,) = max(rise), [y for y in rise if y < max(rise)]
    fastest = min(
        lab.execute_script("return [...document.querySelectorAll('#chart text.soft')].map(t => t.y.baseVal[0]?.value)")
    )
    assert "copy 4,250 GB/s" in texts(lab, "#chart text")
    assert fastest < roof < ground


def test_another_gpu_brings_its_own_records_and_head_sizes(lab):
    choose(lab, "gpu", "NVIDIA H100 80GB HBM3")
    own = [path.name for path in KEPT_RECORDS if path.name.startswith("h100") and load(path).points]
    assert texts(lab, "#record option") == ["all of this GPU", *own]
    assert texts(lab, "#d option") == ["32", "64", "96", "128"]
    choose(lab, "d", "128")
    assert {text.split(", ")[-1] for text in texts(lab, "#at option")} == {"128)"}


def test_the_keyboard_walks_through_the_workloads(lab):
    at(lab, record="h200-thirty.json", d="64")
    chart = find(lab, "#chart")
    chart.send_keys("")
    press(lab, "HOME")
    assert chart.get_attribute("aria-valuetext").startswith("t02 (160, 128, 64): flash 0.03546 ms, exact")
    press(lab, "ARROW_RIGHT", "ARROW_RIGHT", "ARROW_LEFT")
    assert chart.get_attribute("aria-valuenow") == "2"
    assert find(lab, "#at").get_attribute("value") == "80,256,64"
    press(lab, "END", "ARROW_RIGHT")
    assert chart.get_attribute("aria-valuenow") == chart.get_attribute("aria-valuemax") == "15"


def test_the_keyboard_reaches_every_view_and_control(lab):
    press(lab, "TAB")
    assert lab.switch_to.active_element.text == "Compare"
    for view in ("Ladder", "Tiles", "Programs", "Kernels", "Steps", "Compare", "Ladder"):
        press(lab, "ARROW_RIGHT")
        assert lab.switch_to.active_element.text == view
        assert lab.switch_to.active_element.get_attribute("aria-selected") == "true"
    press(lab, "HOME", "TAB")
    assert lab.switch_to.active_element.get_attribute("id") == "gpu"
    seen = set()
    for _ in range(40):
        press(lab, "TAB")
        focused = lab.switch_to.active_element
        seen.add(focused.get_attribute("id") or focused.get_attribute("data-key"))
    assert {"measure", "log", "split", "chart", "at", "base", "save-svg", "save-csv", "TFLOP/s"} <= seen


def test_the_address_keeps_what_is_chosen_and_a_copy_of_it_shows_the_same(lab):
    choose(lab, "measure", "tflops")
    choose(lab, "d", "32")
    toggle(lab, "exact").click()
    find(lab, "#table thead button[data-key='TFLOP/s']").click()
    assert state(lab) == {"measure": "tflops", "d": "32", "off": "exact", "sort": "TFLOP/s ascending"}
    link, rows = lab.current_url, texts(lab, "#table tbody tr")
    visit(lab, link)
    assert texts(lab, "#table tbody tr") == rows
    assert toggle(lab, "exact").get_attribute("aria-pressed") == "false"
    at(lab, gpu="nowhere", d="7", view="none", at="x", base="x", off="a,b", over="?", measure="no", sort="x y")
    assert find(lab, "#say").text.startswith("t28")


def test_a_heading_sorts_the_table_and_turns_it_round(lab):
    def speeds():
        return [float(text.replace(",", "")) for text in texts(lab, "#table tbody td:nth-child(6)")]

    for _ in range(2):
        find(lab, "#table thead button[data-key=ms]").click()
        order = find(lab, "#table thead th[aria-sort]").get_attribute("aria-sort")
        assert speeds() == sorted(speeds(), reverse=order == "descending")
    assert order == "descending"


def test_files_to_keep_hold_the_figures_and_where_they_are_from(lab, tmp_path):
    lab.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    at(lab, record="h200-split.json", d="64")
    find(lab, "#save-csv").click()
    find(lab, "#save-svg").click()
    for _ in range(300):
        if {path.name for path in tmp_path.iterdir()} == {"hw4-lab.csv", "hw4-ms.svg"}:
            break
        time.sleep(0.1)
    lines = (tmp_path / "hw4-lab.csv").read_text().splitlines()
    assert lines[0].startswith("gpu,kernel,case,B,N,d,dtype,causal,pass,ms,low,high,samples,tflops,")
    assert len(lines) == 1 + 30
    assert "commit 0140c3b" in lines[1]
    drawing = (tmp_path / "hw4-ms.svg").read_text()
    assert "commit 0140c3b" in drawing
    assert "var(" not in drawing
    assert "class=" not in drawing


def test_hovering_tells_every_kernel_of_a_workload(lab):
    at(lab, record="h200-thirty.json", d="64")
    hover(lab, find(lab, "#chart"))
    tip = find(lab, "#tip").text
    assert all(name in tip for name in ("split", "exact", "flash", "n = ", "±"))
    press(lab, "ESCAPE")
    assert not find(lab, "#tip").is_displayed()


def test_a_page_without_records_has_the_kernels_and_their_steps(chromium, hw4_in_process, tmp_path):
    page = tmp_path / "lab.html"
    assert hw4_in_process("plot", "-o", page).returncode == 0
    with opened(chromium, page.as_uri()):
        assert texts(chromium, "#tabs button") == ["Kernels", "Steps"]
        assert "records of hw4 bench add what was measured" in find(chromium, "#facts").text
        assert "flash" in texts(chromium, "#list a, #list button") and "__global__" in find(chromium, "#code").text
        find(chromium, "#tab-steps").click()
        before = find(chromium, "#step-count").text
        find(chromium, "#forward").click()
        assert find(chromium, "#step-count").text != before
