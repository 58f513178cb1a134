"""Predicted times: a range that holds what was measured, where something was; and the page has what the model says."""

import re

import pytest
from helpers import ROOT

from hw4cli.lab.measure.gpus import MODELS, model_named
from hw4cli.lab.measure.predict import COLUMNS, TABLES, others, predict, table
from hw4cli.plans.dispatch import AUTO, candidates
from hw4cli.problem import suite
from hw4cli.problem.workload import Shape
from hw4cli.show.records import load

RECORDS = {"h100-thirty": "H100", "h200-thirty": "H200"}
LONG = {case.name for case in suite.cases().values() if case.shape.N >= 2048}


@pytest.mark.parametrize("name", RECORDS)
def test_what_was_measured_lies_in_the_predicted_range(name):
    points = load(ROOT / f"benchmarks/{name}.json").points
    chosen = [p for p in points if p.kernel == "flash" or (p.kernel == "split" and p.case in LONG)]
    assert len(chosen) >= 10
    for p in chosen:
        found = predict(p.kernel, Shape(p.B, p.N, p.setting.d), model_named(RECORDS[name]))
        assert found.least <= p.ms / 1000 <= found.most, (p.kernel, p.case, p.ms, str(found))


def test_idle_simds_and_shared_memory_make_flash_slower_on_an_mi210_than_the_matrix_cores():
    shape = suite.cases()["t28"].shape
    flash, matrix = (predict(kernel, shape, model_named("MI210")) for kernel in ("flash", "kernels/hip/matrix.cu"))
    assert matrix.most < flash.least
    assert matrix.least > shape.flops / 45.3e12  # what the matrix cores can do at best


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_tables_of_the_model(name):
    (found,) = re.findall(
        rf"<!-- predicted: {name} -->\n(.*?)<!-- end -->", (ROOT / "docs/amd.md").read_text(), re.DOTALL
    )
    assert found == table(name), "python3 -m hw4cli.lab.measure.predict prints the tables for docs/amd.md"


def test_the_kernel_that_is_chosen_is_not_the_one_that_is_predicted_to_be_slower():
    chosen = {}
    for row, model in zip(others(), MODELS, strict=True):
        name = f"NVIDIA GeForce {model.name}" if "TX" in model.name else model.name
        chosen[model.name] = candidates(AUTO, model.props, name, 64, 1024)[0][0]
        # split8 is split with fewer products in fp16: no slower where split is faster than flash
        assert row["faster"] in (chosen[model.name].removesuffix("8"), "not decided"), row
    assert (chosen["L40S"], chosen["B200"], chosen["RTX 4090"], chosen["T4"]) == ("split8", "split", "split8", "flash")
    assert len(COLUMNS) == 3


def test_the_page_names_what_the_native_program_calls():
    names = re.findall(r"#define (\w+) (\w+)", (ROOT / "kernels/host/gpu.h").read_text())
    rows = (ROOT / "docs/amd.md").read_text()
    assert len(names) >= 12
    assert [pair for pair in names if any(f"`{name}`" not in rows for name in pair)] == []
