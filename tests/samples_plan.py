"""A small solved serving problem, made by hand, that tests of plans share."""

from __future__ import annotations

from types import SimpleNamespace

from tokenmill.candidates.columns import Column, OperatingPoint, WorkloadColumns
from tokenmill.milp.solution import Binding, Flow, Purchase, Running, Solution, Termination
from tokenmill.problem import Horizon, Objective, Problem, RequestClass, Workload
from tokenmill.trace import ClassFigures, Evaluated, trace_of
from tokenmill_models.compile import walk
from tokenmill_models.formula import Graph, maximum
from tokenmill_models.symbols import declare

YEAR = 365 * 86400.0
SECONDS = 2.0 * 86400.0

work = declare("sample_work", "FLOP", "work of a step", origin="input.sample_work")
moved = declare("sample_moved", "B", "bytes of a step", origin="input.sample_moved")
speed = declare("sample_speed", "FLOP/s", "compute of a chip", origin="chip.sample_speed", sign="positive")
wire = declare("sample_wire", "B/s", "bandwidth of a chip", origin="chip.sample_wire", sign="positive")


def sample_graph() -> tuple[Graph, dict]:
    """Return a graph of three definitions and its figures."""
    graph = Graph()
    compute = graph.let("sample_C", "s", "compute time", work / speed)
    memory = graph.let("sample_R", "s", "memory time", moved / wire)
    step = graph.let("sample_T", "s", "step time", maximum(compute, memory))
    return graph, {"step_time": step, "tpot.mean": step, "memory.capacity": moved}


def sample_class(flops: float) -> ClassFigures:
    graph, figures = sample_graph()
    values = {"sample_work": flops, "sample_moved": 3e9, "sample_speed": 1e15, "sample_wire": 2e12}
    leaves = {
        "sample_speed": SimpleNamespace(source="data sheet", evidence="datasheet"),
        "sample_wire": SimpleNamespace(source="a run", evidence="measured"),
    }
    walked = walk(graph, figures.values(), values)
    return ClassFigures(
        figures={name: float(walked[symbol.name]) for name, symbol in figures.items()},
        shares={"compute": flops / 1e15, "memory": 1.5e-3, "wait": 1e-4},
        intervals={"step_time": (1e-3, 9e-3)},
        evidence={"step_time": "measured"},
        trace=trace_of(graph, figures, walked, leaves),
    )


def sample_columns() -> WorkloadColumns:
    point = OperatingPoint({"engine.batch": 8.0}, rate=(2.0, 1.0), power_loaded=1000.0)
    column = Column(
        key="chat/mixed/node-8/tp8", workload="chat", role="mixed", kind="pool", system="node-8", chips=8,
        footprint=(("node-8", 8),), layout={"layout.tp": 8.0, "precision.weights": "fp8", "engine.chunk": 512.0},
        points=(point,), power_idle=500.0,
    )  # fmt: skip
    return WorkloadColumns(
        workload="chat", stage="serving", kind="pool", columns={"mixed": (column,)}, routes=(("mixed",),), couplings=(),
        classes=("short", "long"), shares=(0.8, 0.2),
        counts={"cost_per_token.output": (100.0, 400.0), "cost_per_token.all": (200.0, 900.0)},
    )  # fmt: skip


def sample_problem() -> Problem:
    classes = (RequestClass("short", 0.8, {}), RequestClass("long", 0.2, {}))
    return Problem(
        workloads=(Workload("chat", "serving", classes=classes),),
        title="Sample",
        objectives=(Objective("cost_per_token", "chat", "output"),),
        horizon=Horizon(duration=SECONDS, periods=1, slices={"day": 0.5, "night": 0.5}),
    )


def sample_solution() -> Solution:
    key = "chat/mixed/node-8/tp8"
    return Solution(
        termination=Termination("optimal", 1e-5, 1e-5, 0.0, None, 0.2),
        purchases=(
            Purchase("node-8", "site", "on-demand", 1, 1, "day", 3, 24, 16.0, 1152.0, 3000.0, "provider, 2026-01"),
            Purchase("node-8", "site", "on-demand", 1, 1, "night", 1, 8, 16.0, 384.0, 1000.0, "provider, 2026-01"),
        ),
        running=(
            Running(key, "site", 1, "day", 2.0, {(0, 0): 2.5, (1, 0): 0.75}, 1.0, 2000.0),
            Running(key, "site", 1, "day", 1.0, {(0, 0): 1.5, (1, 0): 0.25}, 1.0, 1000.0, tenure="own"),
            Running(key, "site", 1, "night", 1.0, {(0, 0): 1.0, (1, 0): 0.25}, 0.75, 900.0),
        ),
        flows=(Flow("chat", "kv", "a", "b", 1, "day", (("a->b", 1e9, 0.5),)),),
        binding=(Binding("power of site", "hardware.site[0].power", 0.0, "W", 8000.0, 12.5),),
        cost_total=1536.0,
        cost_by_kind={"rent": 1536.0, "capital": 0.0},
        cost_by_workload={"chat": 1536.0},
        cost_by_period=(1536.0,),
        residual=1e-12,
    )


def sample_evaluated() -> Evaluated:
    classes = {"short": sample_class(1e12), "long": sample_class(4e12)}
    return Evaluated("chat", "mixed", "chat/mixed/node-8/tp8", classes, {"engine.batch": 8.0}, {})


def sample_plan():
    from tokenmill.plan_build import build_plan

    found = SimpleNamespace(
        searched=[SimpleNamespace(columns=sample_columns(), left_out={})],
        catalog=SimpleNamespace(
            version="sample",
            system=lambda name: SimpleNamespace(hardware="accelerator", chip="sample"),
            chip=lambda name: SimpleNamespace(peak={"bf16": 1e15}),
        ),
        notes=["a note"],
    )
    return build_plan(sample_problem(), sample_solution(), found, [sample_evaluated()], 1.5)
