"""What Nsight Compute counted on an H200, launch by launch, beside the models of today's plans."""

import csv
from dataclasses import replace
from functools import cache

from helpers import ROOT

from hw4cli.lab.arrays.named import workload
from hw4cli.lab.candidates import plan_of
from hw4cli.lab.measure.gpus import model_named
from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.common import converters_of
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape

H200 = DEVICES[90]
TRAFFIC = [*csv.DictReader((ROOT / "benchmarks/h200-traffic.csv").open())]  # benchmarks/measure/traffic.py
L2_BYTES = model_named("H200").cache


def models(kernel, shape, props=H200):
    plan = VARIANTS[kernel].plan(shape, props)
    return {model.symbol: model for model in launch_models(plan, shape, props)}


def counted_models(plan, shape):
    """The models of a plan's launches, but of the one whose blocks convert and attend: how much of what they write
    others find in the L2 cache is not modelled."""
    converting = plan.macros.get("CONVERTING") and converters_of(shape, plan.macros, plan.splits).blocks
    found = launch_models(plan, shape, H200, L2_BYTES)
    return [model for model in found if not (converting and model.symbol == plan.variant)]


@cache
def modelled(kernel, workload_text, causal, splits):
    """The models of a kernel's launches, with their grids and the splits of the keys, by symbol."""
    if kernel in VARIANTS:
        shape = Shape(*map(int, workload_text.split(",")), causal=causal == "1")
        plan = replace(VARIANTS[kernel], splits=lambda *_: int(splits)).plan(shape, H200)
        found = counted_models(plan, shape)
    else:
        work = workload(workload_text).work
        plan = plan_of(kernel, work, H200)
        found = launch_models(plan, work, H200, L2_BYTES)
    sizes = {launch.symbol: (str(launch.grid), str(plan.splits)) for launch in plan.launches}
    return {model.symbol: (model, sizes[model.symbol]) for model in found}


def counted_on_an_h200(*kernels):
    """The recorded launches of kernels that are of today's plan, each with its model."""
    for line in (line for line in TRAFFIC if line["kernel"] in kernels):
        found = modelled(*(line[name] for name in ("kernel", "workload", "causal", "splits")))
        model, size = found.get(line["launch"], (None, None))
        if size == (line["grid"], line["splits"]) and not planned_otherwise(line):
            yield line, model


def planned_otherwise(line):
    """Whether, with a mask, keys were cut otherwise than today, or more heads computed together."""
    if line["causal"] != "1":
        return False
    if line["kernel"] == "flash":
        return line["splits"] != "1"
    if line["kernel"] == "backward_once":
        return line["workload"] in ("lm8k-causal", "lm16k")
    return line["kernel"] in ("half", "half_mma")
