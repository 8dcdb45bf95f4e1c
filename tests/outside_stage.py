"""A stage from outside the product: a print shop of two roles joined by a coupling, and a survey run of two parts.

It shares no word with the shipped stages; the solver must take it from a problem file as it stands.
"""

from __future__ import annotations

from tokenmill_models.formula import Graph, maximum
from tokenmill_models.stage import Axis, Coupling, Demand, Input, Role, Route, Rule, StageModel
from tokenmill_models.symbols import constant, declare

page_bytes = declare("shop_page_bytes", "B", "bytes of a page", origin="request.page_bytes", sign="positive")
page_work = declare("shop_page_work", "FLOP", "work to set a page", origin="request.page_work", sign="positive")
peak = declare("shop_peak", "FLOP/s", "speed of a press", origin="chip.peak[ink]", sign="positive")
bandwidth = declare("shop_bandwidth", "B/s", "memory speed of a press", origin="chip.bandwidth", sign="positive")
width = declare("shop_width", "1", "presses of a line", origin="axis.width", sign="positive")
queue = declare("shop_queue", "1", "pages in flight", origin="axis.queue", sign="positive")
hold = declare("shop_hold", "1", "share of the patience a line takes", origin="axis.hold", sign="positive")
patience = declare(
    "shop_patience", "1", "most that the shares of patience may sum to", origin="input.patience", sign="positive"
)
longest = declare("shop_longest", "s", "most time of a page", origin="input.longest", sign="positive")
idle = declare("shop_idle", "W", "draw of an idle press", origin="chip.idle_power")
tdp = declare("shop_tdp", "W", "limit of a press", origin="chip.tdp")
squeeze = constant("shop_squeeze", 1e-3, "1", "share of a page's bytes that is handed over")
gloss = declare("shop_gloss", "1", "work factor of the paper", origin="axis.paper", sign="positive")

INK = Axis("ink", "press.ink", ("bf16", "fp32"), "number format of the press", default=("bf16",))
PAPER = Axis(
    "paper", "press.paper", ("plain", "glossy"), "paper", codes={"plain": {gloss: 1.0}, "glossy": {gloss: 1.5}}
)
WIDTH = Axis("width", "press.width", (1, 2, 4), "presses of a line", width)
HOLD = Axis("hold", "press.hold", (0.25, 0.5, 0.75), "share of the patience", hold)
QUEUE = Axis("queue", "press.queue", (1, 2, 4, 8), "pages in flight", queue, operate=True)


def _line(name: str, seconds: object) -> tuple[Graph, dict[str, object]]:
    graph = Graph()
    time = graph.let(f"{name}_time", "s", "time of a page", seconds)
    ports = {
        "ranks": graph.let(f"{name}_ranks", "1", "presses", width),
        "rate": graph.let(f"{name}_rate", "1/s", "pages a second", width * queue / (queue + 1) / time),
        "power_idle": graph.let(f"{name}_idle", "W", "idle draw", width * idle),
        "power_loaded": graph.let(f"{name}_draw", "W", "draw", width * (idle + (tdp - idle) * queue / (queue + 1))),
        "share": graph.let(f"{name}_share", "1", "share of the patience", hold),
    }
    return graph, {**ports, "time": time}


def _setter() -> Role:
    graph, ports = _line("setter", page_work * gloss / peak)
    time = ports.pop("time")
    ports["sheet"] = graph.let("setter_sheet", "B", "bytes handed over a page", page_bytes * squeeze)
    ports["pages"] = graph.let("setter_pages", "1", "pages of a page", width / width)
    rules = (
        Rule("setter.longest", time, longest, "limit", "a page takes at most", unit="s", cure="longest"),
        Rule("setter.width", width, 4, "at_most", "lines are short"),
    )
    figures = {"step_time": time, "tokens_per_second": ports["rate"]}
    return Role("setter", "pool", (INK, PAPER, WIDTH, HOLD, QUEUE), graph, rules, (), ports, figures)


def _binder() -> Role:
    graph, ports = _line("binder", page_bytes / bandwidth)
    time = ports.pop("time")
    return Role("binder", "pool", (INK, PAPER, WIDTH, HOLD, QUEUE), graph, (), (), ports, {"step_time": time})


SHOP = StageModel(
    name="printshop",
    doc="Sets pages and binds them",
    inputs=(
        Input("pages_per_second", "slices", "pages a second", required=True),
        Input("kinds", "records", "kinds of page"),
        Input("kinds[].share", "number", "share of the pages", required=True, maximum=1.0),
        Input("kinds[].page_bytes", "number", "bytes of a page", page_bytes, dimension="B", required=True),
        Input("kinds[].page_work", "number", "work of a page", page_work, dimension="FLOP", required=True),
        Input("patience", "number", "most that the shares of patience may sum to", patience, default=1.0),
        Input("longest", "number", "most time to set a page", longest, dimension="s"),
    ),
    roles=lambda _: (_setter(), _binder()),
    routes=(Route("shop", ("setter", "binder")),),
    couplings=(Coupling("setter", "binder", "sheets", "sheet", ("paper",), ("share", "share", patience)),),
    demand=Demand("page", "pages_per_second", "kinds"),
    yields={"cost_per_task": {"output": _setter().ports["pages"]}},
    axes=(INK, PAPER, WIDTH, HOLD, QUEUE),
)

houses = declare("survey_houses", "1", "houses to visit", origin="input.houses", sign="positive")
crew = declare("survey_crew", "1", "devices of a crew", origin="axis.crew", sign="positive")
visit = declare("survey_visit", "FLOP", "work of a visit", origin="input.visit", sign="positive")
walk_seconds = declare("walk_seconds", "s", "time of a visit", origin="part.walkers.seconds", sign="positive")
walk_ranks = declare("walk_ranks", "1", "walkers", origin="part.walkers.ranks", sign="positive")
walk_power = declare("walk_power", "W", "draw of walkers", origin="part.walkers.power_loaded", sign="positive")
clerk_seconds = declare("clerk_seconds", "s", "time of a form", origin="part.clerks.seconds", sign="positive")
clerk_ranks = declare("clerk_ranks", "1", "clerks", origin="part.clerks.ranks", sign="positive")
clerk_power = declare("clerk_power", "W", "draw of clerks", origin="part.clerks.power_loaded", sign="positive")
CREW = Axis("crew", "crew.size", (1, 2, 4, 8), "devices of a crew", crew)


def _part(name: str, seconds: object) -> Role:
    graph = Graph()
    spent = graph.let(f"{name}_seconds", "s", "time of one house", seconds)
    ports = {
        "ranks": graph.let(f"{name}_devices", "1", "devices", crew),
        "seconds": spent,
        "power_idle": graph.let(f"{name}_rest", "W", "idle draw", crew * idle),
        "power_loaded": graph.let(f"{name}_load", "W", "draw", crew * tdp),
    }
    return Role(name, "part", (INK, CREW), graph, (), (), ports, {"step_time": spent}, prefer=())


def _survey() -> Role:
    graph = Graph()
    step = graph.let("survey_step", "s", "time of a house: the slower crew", maximum(walk_seconds, clerk_seconds))
    ports = {
        "ranks": graph.let("survey_ranks", "1", "devices", walk_ranks + clerk_ranks),
        "duration": graph.let("survey_duration", "s", "time of the survey", houses * step),
        "power_idle": graph.let("survey_rest", "W", "idle draw", 0 * walk_power),
        "power_loaded": graph.let("survey_power", "W", "draw", walk_power + clerk_power),
    }
    parts = {"walkers": _part("walkers", visit / (peak * crew)), "clerks": _part("clerks", visit / (4 * peak * crew))}
    return Role(
        "survey", "run", (), graph, (), (), ports, {"step_time": step, "wall_time": ports["duration"]}, parts=parts
    )


SURVEY = StageModel(
    name="housesurvey",
    doc="Visits houses and files forms",
    inputs=(
        Input("houses", "number", "houses to visit", houses, required=True),
        Input("visit", "number", "work of a visit", visit, dimension="FLOP", required=True),
    ),
    roles=lambda _: (_survey(),),
    axes=(INK, CREW),
)
