"""What each command writes is read by `plot`, by its page and by `report`; what is not used is named."""

import json

import pytest
from helpers import ROOT
from records import MACHINE, blocks, row, written

from hw4cli.errors import InputError
from hw4cli.lab.measure.counters import Launch
from hw4cli.lab.measure.gpus import model_named
from hw4cli.lab.measure.model import launch_models
from hw4cli.lab.measure.profile import Profiled, profiled
from hw4cli.lab.measure.profile import record as profile_record
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.workload import Shape
from hw4cli.show.bars import tiles
from hw4cli.show.curves import roofline
from hw4cli.show.labpage import page
from hw4cli.show.records import OtherRecordError, load
from hw4cli.show.report.material import gathered
from hw4cli.show.traffic import traffic

BENCHMARKS = ROOT / "benchmarks"
H200 = {"gpu": "NVIDIA H200", "compute_capability": "9.0"}
ROOFS = {"DRAM": 4000.0, "L2": 8000.0, "shared memory": 30000.0, "FFMA": 60.0, "tensor cores": 800.0, "exp2": 4000.0}


def profile_of(kernel, shape, **values):
    """A record of `hw4 profile` of a kernel, as the command makes it from these counters of its main launch."""
    plan = VARIANTS[kernel].plan(shape, model_named("H200").props)
    counters = {"gpu__time_duration.sum": 0.001, "dram__bytes_read.sum": 5e7, "dram__bytes_write.sum": 2e7, **values}
    counters |= {"l1tex__m_xbar2l1tex_read_bytes.sum": 4e9, "lts__t_sector_hit_rate.pct": 90.0}
    launches = [Launch(kernel, counters)]
    found = profiled("Nsight Compute", launches, ["memory", "assignment"], launch_models(plan, shape, plan_props()))
    facts = {"case": "x", "shape": [*shape.sizes], "causal": shape.causal, "seed": 1}
    what = f"{kernel} on (B, N, d) = {shape}"
    of = Profiled(what, tuple(found), "Nsight Compute", "2025.3", ("ncu …",), facts)
    return profile_record(of, "NVIDIA H200", H200)


def plan_props():
    return model_named("H200").props


def tuned(**changes):
    base = {"kernel": "flash", "own": False, "status": "ok", "reason": "", "samples": 9, "registers": 168, "knobs": ""}
    times = {"median": 1.0, "low": 0.9, "high": 1.1, "shared_bytes": 65536, "occupancy": 0.2}
    return {**base, **times, "tile": "128x32", **changes}


def saved(path, document):
    path.write_text(json.dumps(document))
    return path


def tune_record(path, *rows, **workload):
    one = {"case": "t28", "shape": [4, 16384, 64], "causal": False, **workload, "rows": [*rows]}
    head = {"schema": 1, "kind": "tune", "date": "2026-11-22", "commit": "abc", "machine": H200}
    return saved(path, {**head, "workloads": [one]})


def roofs_record(path, **rates):
    head = {"schema": 1, "kind": "roofs", "date": "2026-11-22", "commit": "abc", "machine": H200, "method": "m"}
    return saved(path, {**head, "rates": {**ROOFS, **rates}})


def test_every_committed_record_of_a_command_is_read():
    kinds = {}
    for path in sorted(BENCHMARKS.rglob("*.json")):
        try:
            record = load(path)
        except OtherRecordError as error:  # of the scripts of benchmarks/measure
            kinds.setdefault("other", []).append(str(error))
            continue
        kinds.setdefault(record.kind, []).append(path.name)
        assert record.holds != "nothing that was measured", path
    assert {"kernels", "arrays", "end-to-end", "timeline", "tune", "profile", "roofs"} <= set(kinds)
    of_scripts = (
        "scaling",
        "nodes",
        "first runs",
        "gradient",
        "builds",
        "calls",
        "sequences",
        "windows",
        "tokens",
        "scores",
        "suites",
        "flash-attn",
        "wide",
        "predictions",
    )
    assert all(any(word in said for word in of_scripts) for said in kinds["other"])


def test_a_tune_record_is_a_heat_map_and_what_was_refused_is_kept_in_words(tmp_path):
    refused = tuned(tile="256x64", status="refused", reason="no such tile", median=None, low=None, high=None, samples=0)
    slower = tuned(tile="64x64", median=2.0, high=2.1, low=1.9)
    record = load(tune_record(tmp_path / "t.json", tuned(), slower, refused))
    assert [(p.name, p.ms) for p in record.points] == [("flash 128x32", 1.0), ("flash 64x64", 2.0)]
    assert record.points[0].tflops == pytest.approx(4 * 4 * 16384**2 * 64 / 1e9)
    assert record.failures == ("flash 256x64 on t28 refused: no such tile",)
    (panel,) = tiles([record]).panels
    assert panel.title == "flash, t28 (4, 16384, 64)"
    assert {mark.at for mark in panel.series[0].marks} == {"128x32", "64x64"}


def test_tiles_of_half_have_a_panel_for_each_number_of_stages_and_the_fastest_schedule_counts(tmp_path):
    rows = [
        tuned(kernel="half", tile="128x128", knobs="groups=2 stages=2 ones=0", median=1.0),
        tuned(kernel="half", tile="128x128", knobs="groups=2 stages=2 ones=0 turns=0", median=2.0, high=2.5),
        tuned(kernel="half", tile="128x96", knobs="groups=2 stages=3 ones=0", median=1.05),
    ]
    path = tune_record(tmp_path / "t.json", *rows, case="lm8k")
    document = json.loads(path.read_text())
    del document["workloads"][0]["shape"], document["workloads"][0]["causal"]
    document["workloads"][0]["workload"] = "(2, 16, 8192, 128) bf16 causal"
    record = load(saved(path, document))
    assert record.points[0].setting.words == "d = 128, bfloat16, causal"
    assert record.points[0].tflops == pytest.approx(2 * 32 * 8192**2 * 128 / 1e9)
    picture = tiles([record])
    assert [panel.title.split(",")[:2] for panel in picture.panels] == [["half", " 2 stages"], ["half", " 3 stages"]]
    (mark,) = picture.panels[0].series[0].marks
    assert mark.value == record.points[0].tflops


def test_a_profile_is_traffic_beside_its_model_without_naming_the_shape(tmp_path):
    shape = Shape(4, 4096, 64)
    record = load(saved(tmp_path / "p.json", profile_of("flash", shape)))
    (one,) = record.profiles
    assert (one.kernel, one.shape, one.figures["dram_read"]) == ("flash", (4, 4096, 64), 50.0)
    (panel,) = traffic([record]).panels
    found = {(s.name, s.limit): s.marks[0].value for s in panel.series}
    assert found["read", False] == 50.0
    assert found["read", True] == pytest.approx(3 * 4 * shape.elements / 1e6)
    assert record.facts in traffic([record]).facts
    with pytest.raises(InputError, match="no record here has counters of bytes on"):
        traffic([record], Shape(1, 64, 64))


def test_a_profile_over_n_is_curves_of_each_level_of_the_memory_and_of_the_time(tmp_path):
    lengths = (1024, 2048, 4096)
    swept = [profile_of("flash", Shape(4, N, 64), **{"gpu__time_duration.sum": N / 1e6}) for N in lengths]
    picture = traffic([load(saved(tmp_path / "p.json", swept))])
    labels = [panel.value_label for panel in picture.panels]
    assert labels == [
        "device memory, read, MB",
        "device memory, written, MB",
        "L2 cache to multiprocessors, MB",
        "duration, ms",
    ]
    time = picture.panels[-1].series[0]
    assert [(mark.at, mark.value) for mark in time.marks] == [(N, pytest.approx(N / 1e3)) for N in lengths]
    names = [one.name for one in picture.panels[2].series]
    assert names == ["flash", "flash, model"]
    model = [mark.value for mark in picture.panels[2].series[1].marks]
    assert 3.5 < model[1] / model[0] < 4.1, "L2 is asked for N·N·d / BR: four times as much for twice the rows"


def test_an_old_hit_rate_above_100_is_refused_when_it_is_read():
    record = load(BENCHMARKS / "figures/h200-limits.json")
    start = [one for one in record.profiles if one.symbol == "half_start"]
    assert len(start) == 2
    assert all("l2_hit_rate" not in one.figures and "cannot be" in one.refused[0] for one in start)
    rates = [one.figures["l2_hit_rate"] for one in record.profiles if "l2_hit_rate" in one.figures]
    assert rates
    assert max(rates) <= 100


def test_a_roofline_has_a_slant_for_each_memory_and_each_kernel_at_what_its_launches_move(tmp_path):
    rows = [row(name, (4, 4096, 64), gb_per_s=100.0) for name in ("naive", "shared", "flash")]
    timed = load(written(tmp_path / "a.json", *rows, machine=H200))
    picture = roofline([timed, load(roofs_record(tmp_path / "r.json"))])
    assert [panel.title for panel in picture.panels] == ["H200, DRAM", "H200, L2", "H200, shared memory"]
    slopes = [panel.rules[-1].slope for panel in picture.panels]
    assert slopes == [4.0, 8.0, 30.0]
    assert [rule.value for rule in picture.panels[0].rules[:2]] == [60.0, 800.0]
    at = {one.name: one.marks[0].at for one in picture.panels[0].series}
    shape = Shape(4, 4096, 64)
    plan = VARIANTS["flash"].plan(shape, model_named("H200").props)
    moved = sum(sum(one.dram) for one in launch_models(plan, shape, model_named("H200").props))
    flops = timed.points[2].tflops * timed.points[2].ms * 1e9
    assert at["flash"] == pytest.approx(flops / moved)
    assert at["naive"] < at["flash"] / 10, "naive moves its scores, too: no kernels share one ideal intensity"
    assert "naive" not in {one.name for one in picture.panels[2].series}, "it has no shared memory"


def test_the_nearest_roof_of_a_tensor_core_kernel_is_not_sgemm(tmp_path):
    """794 % of the most there is: cuBLAS in float32 was taken for the roof of split8."""
    rows = row("split8", (4, 16384, 64), 0.67, case="t28", tflops=410.0, gb_per_s=100.0, sgemm_percent=794.0)
    written(tmp_path / "a.json", rows, machine=H200, sgemm_tflops=51.6, copy_gb_per_s=4200.0)
    from hw4cli.show.report.measuredparts import headroom

    text = headroom(gathered(tmp_path, "split8", "t28"))
    assert "SGEMM" not in text
    assert "794" not in text
    roofs_record(tmp_path / "roofs.json")
    table = [line.split(" | ") for line in headroom(gathered(tmp_path, "split8", "t28")).splitlines()[2:]]
    shares = {cells[0].strip("| "): float(cells[-1].strip("| ")) for cells in table}
    assert 50 < shares["tensor cores, TFLOP/s"] < 100
    assert max(shares.values()) < 100
    assert [*shares.values()] == sorted(shares.values(), reverse=True), "the nearest roof comes first"


def test_cards_have_the_bytes_that_a_profiler_counted_or_the_models_and_the_energy(tmp_path):
    shape = Shape(4, 4096, 64)
    rows = row("flash", shape.sizes, joules=0.5, gflop_per_joule=34.0), row("warp", shape.sizes)
    timed = load(written(tmp_path / "a.json", *rows, machine=H200))
    counted = load(saved(tmp_path / "p.json", profile_of("flash", shape)))
    made = page([timed, counted, load(roofs_record(tmp_path / "r.json"))], "lab")
    data = json.loads(made.partition('id="data">')[2].partition("</script>")[0])
    flash, warp = (dict(zip(data["fields"], values, strict=True)) for values in data["points"])
    assert (flash["dram_read"], flash["dram_written"], flash["counted"], flash["joules"]) == (50.0, 20.0, True, 0.5)
    assert warp["dram_read"] == pytest.approx(4 * 4 * shape.elements / 1e6, rel=1e-4)
    assert (warp["counted"], warp["joules"]) == (False, None)
    assert flash["roof"] in ROOFS
    assert data["unused"] == []


def test_a_card_says_how_many_launches_a_kernel_is_and_what_they_leave_in_memory(tmp_path):
    """Three launches and N x N in memory, or one kernel and nothing."""
    timed = load(written(tmp_path / "a.json", *(row(k, (64, 4096, 64)) for k in ("naive", "warp")), machine=H200))
    data = json.loads(page([timed], "lab").partition('id="data">')[2].partition("</script>")[0])
    naive, warp = (dict(zip(data["fields"], values, strict=True)) for values in data["points"])
    assert (naive["launches"], warp["launches"], warp["between"]) == (3, 1, 0)
    assert naive["between"] >= 64 * 4096**2 * 4 / 1e6


def results(**changes):
    gpu = {"name": "NVIDIA H200", "uuid": "u"}
    session = {"host": "node", "gpu": gpu, "machine": {"cpu": "C"}, "started": "2026-11-26T1"}
    result = {"case": "t01", "shape": [2, 128, 32], "verdict": "AC", "wall": 0.4, "fastest": 0.3, "slowest": 0.5}
    one = {"user": "ann", "cases": ["t01"], "session": session, "results": [{**result, **changes}]}
    return {"schema": 1, "kind": "hw4-results", "version": "0.3", "rules": {}, "standings": [one]}


def test_what_the_judge_accepted_is_runs_of_programs(tmp_path):
    record = load(saved(tmp_path / "results.json", results()))
    (run,) = record.runs
    assert (run.program, run.case, run.seconds, run.fastest, run.slowest) == ("ann", "t01", 0.4, 0.3, 0.5)
    assert record.gpu == "NVIDIA H200"
    wrong = load(saved(tmp_path / "wa.json", results(verdict="WA")))
    assert (wrong.runs, wrong.failures) == ((), ("ann on t01: WA",))


CHECKED = {"kernel": "./mine.cu", "symbol": "mine", "compute_capability": "9.0", "registers": 40, "spilled_bytes": 8}


def test_what_a_compiler_said_is_read_and_stands_in_the_report(tmp_path, hw4_here):
    (tmp_path / "mine.cu").write_text("// mine: my own\n//\n// Like: naive\n// Idea: Two rows a thread.\n")
    record = load(saved(tmp_path / "check.json", [{**CHECKED, "shared_bytes": 0, "occupancy": 0.5, "problem": ""}]))
    assert (record.compiled[0].registers, record.compiled[0].spilled) == (40, 8)
    written(tmp_path / "a.json", row("./mine.cu", (4, 16384, 64), case="t28"), machine=H200)
    assert hw4_here("report", tmp_path).returncode == 0
    text = (tmp_path / "report.md").read_text()
    assert "mine takes 40 registers a thread, and 8 bytes spill" in text


@pytest.fixture
def folder(tmp_path):
    """A folder with a record of each command, on one GPU."""
    written(tmp_path / "bench.json", row("flash", (4, 16384, 64), case="t28", gb_per_s=10.0), machine=H200)
    tune_record(tmp_path / "tune.json", tuned(), tuned(tile="64x64", median=2.0, high=2.1, low=1.9))
    saved(tmp_path / "profile.json", profile_of("flash", Shape(4, 16384, 64)))
    roofs_record(tmp_path / "roofs.json")
    blocks(tmp_path / "blocks.json", ("flash", (4, 16384, 64), [[0, 1, 2, 10, 25]]))
    return tmp_path


def test_a_report_uses_each_record_and_names_the_one_that_it_does_not(folder, hw4_here):
    saved(folder / "else.json", {"schema": 1, "kind": "scaling", "machine": MACHINE})
    saved(folder / "package.json", {"kind": "Pod"})  # which is nobody's record
    result = hw4_here("report", folder)
    assert result.returncode == 0, result.stderr
    text = (folder / "report.md").read_text()
    assert "Nsight Compute (profile.json) on NVIDIA H200" in text
    (made_from,) = (line for line in text.splitlines() if "charts are made from" in line)
    assert made_from.count("profile.json") == 1, "each record is named once"
    assert "of 2 tiles, 128x32 is the fastest" in text
    assert "tensor cores, measured" in text
    said = " ".join(result.stderr.split())
    assert "else.json is a record of scaling, not of" in said
    assert "package.json" not in said
    assert "blocks.json is not used: it holds timelines of blocks, which `hw4 plot blocks.json" in said
    for name in ("bench", "tune", "profile", "roofs"):
        assert f"{name}.json is not used" not in said
    checked = hw4_here("report", folder, "--check").stdout
    assert "blocks.json is not used" in " ".join(checked.split())


def test_a_picture_names_the_records_that_it_shows_nothing_of(folder, hw4_here):
    result = hw4_here("plot", "tiles", folder / "tune.json", folder / "roofs.json", "-o", folder / "a.svg")
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stderr.split())
    assert "roofs.json is not used: it holds a GPU's roofs, of which tiles shows nothing here" in said
    assert "tune.json is not used" not in result.stderr


def test_a_page_takes_records_of_all_commands_and_names_what_it_leaves_out(folder, hw4_here):
    names = [folder / f"{name}.json" for name in ("bench", "tune", "profile", "roofs", "blocks")]
    other = saved(folder / "scaling.json", {"schema": 1, "kind": "scaling", "machine": MACHINE})
    result = hw4_here("plot", *names, other, "-o", folder / "lab.html")
    assert result.returncode == 0, result.stderr
    assert "not used: " in result.stderr
    assert "is a record of scaling" in " ".join(result.stderr.split())
    data = json.loads((folder / "lab.html").read_text().partition('id="data">')[2].partition("</script>")[0])
    assert ["is a record of scaling" in said for said in data["unused"]] == [True]
    assert len(data["timelines"]) == 1


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"kind": "profile", "tool": "t", "gpu": "G", "of": "x", "launches": [{}]}, "damaged record of hw4 profile"),
        ({"kind": "tune", "machine": {}, "workloads": [{"case": "t01"}]}, "damaged record of hw4 tune"),
        ({"kind": "hw4-results", "standings": [{}]}, "damaged record of hw4 judge"),
        ({"kind": "roofs", "machine": {"gpu": "G"}, "rates": {"L2": -1}}, "is not a record of roofs"),
        ([{**CHECKED, "registers": "x"}], "damaged record of hw4 check"),
        ({"a": 1}, "is not a record of hw4"),
        ([1], "is not a record of hw4"),
    ],
)
def test_a_damaged_record_is_reported_with_the_command_that_writes_such(tmp_path, document, words):
    with pytest.raises(InputError, match=words):
        load(saved(tmp_path / "bad.json", document))
