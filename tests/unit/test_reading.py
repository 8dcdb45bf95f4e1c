"""Problem files that are good: what they become, in SI, with defaults, held choices, classes and overrides."""

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from math import inf

import pytest
import yaml

from tokenmill.catalog import load_catalog
from tokenmill.errors import ProblemError
from tokenmill.problem import Lengths, Limits, Objective, Robust, Scenario
from tokenmill.reading import load_problem, resolved, unsupported
from tokenmill.schema import COUNT, MONEY, QUANTITY, schema
from tokenmill.templates import new
from tokenmill.units import _EXAMPLES
from tokenmill_models.stage import stages
from toy_stage import STAGES

COMMON = """
title = "Chat on Llama 3.1 70B"
seed = 0
objective = { minimise = "cost_per_token", workload = "chat", count = "output" }
gap = 0.001
time_limit = "60 s"
[assume]
efficiency = "calibrated"
chip."h100-sxm" = { bandwidth = "3.35 TB/s" }
[horizon]
duration = "1 year"
periods = 12
slices = { peak = 0.25, day = 0.45, night = 0.30 }
discount_rate = 0.08
commitments = "full"
[hardware]
systems = ["hgx-h100", "hgx-h200", "mi300x-8", "gb200-nvl72"]
markets = ["buy", "reserved-1y", "on-demand", "spot"]
maturity = "production"
fabric = "rail-400g"
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2.10/h"
tiers = [{ from = 64, factor = 0.9 }]
[[hardware.site]]
name = "ashburn"
power = "2 MW"
pue = 1.25
electricity = "$0.07/kWh"
carbon = "350 g/kWh"
rack_power = "130 kW"
cooling = "liquid"
regions = { us-east = "8 ms", eu = "85 ms" }
[[hardware.site]]
name = "oregon"
[[hardware.wan]]
from = "ashburn"
to = "oregon"
bandwidth = "400 Gbit/s"
latency = "60 ms"
[[hardware.supply]]
system = "gb200-nvl72"
at_most = 4
from_period = 3
lead_time = "4 months"
minimum_order = 1
preemptions_per_day = 0.5
[[hardware.owned]]
system = "hgx-h100"
site = "ashburn"
count = 16
retires = 24
[[hardware.chip]]
name = "my-card"
memory = "48 GB"
bandwidth = "768 GB/s"
fp16 = "155 TFLOP/s"
power = "300 W"
like = "rtx-4090"
[hardware.ownership]
life = "5 years"
residual = 0.15
operations = 0.06
maintenance = 0.02
[limits]
budget = "$30M"
cost = "$28M"
chips = 512
power = "2 MW"
spot_share = 0.3
robust = { demand = 1.5, times = 1.5 }
shed = "$0.02/request"
availability = 0.999
[[scenario]]
name = "boom"
probability = 0.3
demand = 2.0
price = { "on-demand" = 1.4 }
supply = { "gb200-nvl72" = 0 }
[[scenario]]
name = "usual"
probability = 0.7
[risk]
cvar_weight = 0.3
cvar_level = 0.9
"""
CHAT = """
[[workload]]
name = "chat"
stage = "toy"
model = "llama-3.1-70b"
sites = ["ashburn"]
region = "eu"
[workload.demand]
requests_per_second = { peak = 400, day = 250, night = 60 }
growth_per_period = 0.05
classes = [ { share = 0.8, input_tokens = { mean = 1200, p95 = 4000 }, output_tokens = { mean = 250, p95 = 900 } },
            { share = 0.2, input_tokens = 12000, output_tokens = 400 } ]
list_price = { output = "$2.4/Mtoken" }
[workload.slo]
tpot = { p95 = "50 ms" }
[workload.engine]
name = "vllm"
graph = true
kv_memory = "3.8 GiB"
chunk = [512, 2048, 8192]
disaggregated = [true, false]
batch = "chosen"
[workload.tool]
core_seconds = 2.5
[workload.precision]
weights = ["fp8", "q4_k_m"]
[workload.layout]
tp = 3
chips = 8
replicas = 2
system = ["hgx-h100", "h100-sxm"]
[workload.prefill]
tp = 2
[workload.decode.layout]
tp = [4, 8]
[workload.decode.precision]
weights = "fp8"
"""
SMALL = """
[[workload]]
name = "chat"
stage = "toy"
model = "llama-3.1-8b"
[workload.demand]
requests_per_second = 10
input_tokens = 1000
output_tokens = { mean = 200, p95 = 600 }
"""


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


@pytest.fixture(scope="module")
def read(catalog):
    return lambda source, overrides=(): load_problem(source, overrides, catalog=catalog, known=STAGES)


def test_common_tables_in_si(read):
    problem = read(COMMON + CHAT)
    hardware, limits = problem.hardware, problem.limits
    assert problem.objectives == (Objective("cost_per_token", "chat", "output"),)
    assert problem.time_limit == 60
    assert problem.horizon.duration == 365 * 86400
    assert problem.horizon.slices == {"peak": 0.25, "day": 0.45, "night": 0.30}
    assert problem.assume.chip == {"h100-sxm": {"bandwidth": 3.35e12}}
    assert (hardware.prices[0].per_chip_hour, hardware.prices[0].tiers) == (pytest.approx(2.10), ((64, 0.9),))
    site = hardware.sites[0]
    assert (site.power, site.pue, site.rack_power, site.cooling) == (2e6, 1.25, 130e3, "liquid")
    assert site.electricity == {"all": pytest.approx(0.07 / 3.6e6)}
    assert site.carbon == {"all": pytest.approx(0.35 / 3.6e6)}
    assert site.regions == {"us-east": 0.008, "eu": 0.085}
    assert (hardware.wan[0].source, hardware.wan[0].target, hardware.wan[0].bandwidth) == ("ashburn", "oregon", 50e9)
    assert hardware.supply[0].lead_time == pytest.approx(365 * 86400 / 3)
    assert hardware.supply[0].preemptions_per_day == 0.5
    assert (hardware.owned[0].count, hardware.owned[0].retires) == (16, 24)
    chip = hardware.chips[0]
    assert (chip.like, chip.fields) == (
        "rtx-4090",
        {"memory": 48e9, "bandwidth": 768e9, "fp16": 155e12, "power": 300.0},
    )
    assert (limits.budget, limits.cost, limits.shed, limits.robust) == (30e6, 28e6, 0.02, Robust(1.5, 1.5))
    assert problem.scenarios[0] == Scenario("boom", 0.3, 2.0, {"on-demand": 1.4}, {"gb200-nvl72": 0})
    assert (problem.risk.cvar_weight, problem.risk.cvar_level) == (0.3, 0.9)


def test_a_workload_from_what_its_stage_declares(read):
    (chat,) = read(COMMON + CHAT).workloads
    assert (chat.name, chat.stage, chat.model, chat.sites, chat.region) == (
        "chat", "toy", "llama-3.1-70b", ("ashburn",), "eu",
    )  # fmt: skip
    assert chat.values["demand.requests_per_second"] == {"peak": 400, "day": 250, "night": 60}
    assert chat.values["slo.tpot"] == {"p95": 0.05}
    assert chat.values["demand.list_price.output"] == pytest.approx(2.4e-6)
    assert chat.values["engine.kv_memory"] == 3.8 * 2**30
    assert chat.values["tool.core_seconds"] == 2.5
    assert chat.values["engine.graph"] is True
    assert [item.share for item in chat.classes] == [0.8, 0.2]
    assert chat.classes[0].values == {"input_tokens": Lengths(1200, 4000), "output_tokens": Lengths(250, 900)}
    assert chat.classes[1].values == {"input_tokens": Lengths(12000), "output_tokens": Lengths(400)}
    assert chat.held == {
        "engine.chunk": (512, 2048, 8192),
        "engine.disaggregated": (True, False),
        "precision.weights": ("fp8", "q4_k_m"),
        "layout.tp": (3,),
        "layout.chips": (8,),
        "layout.replicas": (2,),
        "layout.system": ("hgx-h100", "h100-sxm"),
    }
    assert chat.role_held == {
        "prefill": {"layout.tp": (2,)},
        "decode": {"layout.tp": (4, 8), "precision.weights": ("fp8",)},
    }


def test_what_is_absent_takes_its_default_and_is_listed(read):
    problem = read(SMALL)
    (chat,) = problem.workloads
    assert [(item.name, item.share) for item in chat.classes] == [("all", 1.0)]
    assert chat.classes[0].values == {"input_tokens": Lengths(1000), "output_tokens": Lengths(200, 600)}
    assert chat.held == {}
    assert chat.values["engine.name"] == "generic"
    assert problem.hardware.systems is None
    assert problem.hardware.sites[0].power == inf
    assert problem.horizon.periods == 1
    assert {"horizon", "hardware", "workload.chat.engine.name", "workload.chat.layout.tp"} <= set(problem.defaulted)
    assert "workload.chat.demand.requests_per_second" not in problem.defaulted


def test_a_class_may_leave_to_the_level_above_what_all_share(read):
    text = SMALL.replace(
        "input_tokens = 1000", "input_tokens = 1000\nclasses = [{ share = 0.5 }, { share = 0.5, input_tokens = 7 }]"
    )
    classes = read(text).workloads[0].classes
    assert [item.values["input_tokens"].mean for item in classes] == [1000, 7]
    assert [item.values["output_tokens"].mean for item in classes] == [200, 200]


def test_the_only_workload_that_fits_is_the_objectives(read):
    problem = read('objective = { minimise = "cost_per_token" }\n' + SMALL)
    assert problem.objectives == (Objective("cost_per_token", "chat"),)


@pytest.mark.parametrize("rate", ["0", "{ day = 0, night = 0.0 }"])
def test_a_cost_divided_by_no_demand_is_refused(read, rate):
    """Cost per token of no tokens is no number; the cost of nothing, and a demand at some time of the day, are."""
    slices = "\n[horizon]\nslices = { day = 0.5, night = 0.5 }\n" if "day" in rate else "\n"
    text = SMALL.replace("requests_per_second = 10", f"requests_per_second = {rate}") + slices
    assert f"requests_per_second = {rate}" in text
    with pytest.raises(ProblemError) as caught:
        read('objective = { minimise = "cost_per_token" }\n' + text)
    assert [mistake.key for mistake in caught.value.mistakes] == ["workload.chat.demand.requests_per_second"]
    read('objective = { minimise = "cost" }\n' + text)
    if "day" in rate:
        read('objective = { minimise = "cost_per_token" }\n' + text.replace("night = 0.0", "night = 1"))


def test_tables_in_python_take_si_or_units(read):
    workload = {
        "name": "chat", "stage": "toy", "model": "llama-3.1-8b",
        "demand": {"requests_per_second": 10, "input_tokens": 1000, "output_tokens": 200},
        "slo": {"tpot": {"p95": 0.05}},
    }  # fmt: skip
    problem = read({"limits": {"power": 2e6, "budget": "$30M"}, "workload": [workload]})
    assert (problem.limits.power, problem.limits.budget) == (2e6, 30e6)
    assert problem.workloads[0].values["slo.tpot"] == {"p95": 0.05}


def test_the_same_in_json_and_as_a_file(read, tmp_path):
    import tomllib

    text = COMMON + CHAT
    (tmp_path / "chat.json").write_text(json.dumps(tomllib.loads(text)))
    (tmp_path / "chat.toml").write_text(text)
    problem = read(text)
    assert replace(read(tmp_path / "chat.json"), base=problem.base) == problem
    assert replace(read(str(tmp_path / "chat.toml")), base=problem.base) == problem


def test_paths_are_relative_to_the_file(read, tmp_path):
    (tmp_path / "net.json").write_text("{}")
    (tmp_path / "chat.toml").write_text('[hardware]\ntopology = "net.json"\n' + SMALL)
    assert read(tmp_path / "chat.toml").hardware.topology == tmp_path / "net.json"


def test_yaml_is_read_and_its_mistakes_are_named(read):
    text = yaml.safe_dump({"workload": [{"name": "run", "stage": "toyrun", "model": "llama-3.1-8b", "tokens": 1e9}]})
    assert read(text).workloads[0].values["tokens"] == 1e9
    for broken in (text + "workload: []\n", "a: &x 1\nb: *x\n", "a: [\n"):
        with pytest.raises(ProblemError):
            read(broken)


OVERRIDES = [
    ("workload.chat.demand.requests_per_second.peak", "500", lambda p: p.workloads[0].values["demand.requests_per_second"]["peak"] == 500),
    ("hardware.site.ashburn.power", '"3 MW"', lambda p: p.hardware.sites[0].power == 3e6),
    ("hardware.site.ashburn.power", "3 MW", lambda p: p.hardware.sites[0].power == 3e6),
    ("hardware.price.hgx-h100.per_chip_hour", "$3/h", lambda p: p.hardware.prices[0].per_chip_hour == pytest.approx(3)),
    ("horizon.periods", "4", lambda p: p.horizon.periods == 4),
    ("hardware.systems", '["hgx-h200"]', lambda p: p.hardware.systems == ("hgx-h200",)),
    ("workload[0].layout.tp", "[1, 2]", lambda p: p.workloads[0].held["layout.tp"] == (1, 2)),
    ("scenario.boom.price.on-demand", "1.5", lambda p: p.scenarios[0].price == {"on-demand": 1.5}),
    ('assume.chip."h100-sxm".memory', "80 GB", lambda p: p.assume.chip["h100-sxm"].get("memory") == 80e9),
    ("limits.budget_per_period", "$3M", lambda p: p.limits.budget_per_period == 3e6),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "holds"), OVERRIDES)
def test_values_are_set_by_path(read, path, value, holds):
    assert not holds(read(COMMON + CHAT))
    assert holds(read(COMMON + CHAT, [(path, value)]))


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ("workload.chta.demand.at_least", "1", "workload.chta.demand.at_least"),
        ("horizon.periods.x", "1", "horizon.periods.x"),
        ("horizon.periods", "[1,", "horizon.periods"),
        ("horizon.periods", "1\nseed = 2", "horizon.periods"),
        ("horizon.period", "1", "horizon.period"),
        ("horizon.periods", "many", "horizon.periods"),
        ("", "1", "--set"),
    ],
)
def test_what_cannot_be_set_is_refused(read, path, value, key):
    with pytest.raises(ProblemError) as refused:
        read(COMMON + CHAT, [(path, value)])
    assert key in [mistake.key for mistake in refused.value.mistakes]


def test_resolved_is_json_and_says_everything(read):
    tables = json.loads(json.dumps(resolved(read(COMMON + CHAT)), allow_nan=False))
    assert tables["workloads"][0]["held"]["layout.tp"] == [3]
    assert tables["hardware"]["sites"][1]["power"] is None
    assert tables["risk"] == {"cvar_weight": 0.3, "cvar_level": 0.9}
    assert "workload.chat.deadline" in tables["defaulted"]


def test_what_plans_do_not_take_into_account_is_said(read):
    problem = read(SMALL)
    assert unsupported(problem) == []
    asked = replace(problem, limits=Limits(robust=Robust(demand=1.5)), scenarios=(Scenario("a", 1.0),))
    for mistake in unsupported(asked):
        assert mistake.key in ("limits.robust", "scenario")
        assert "yet" in mistake.allowed


@pytest.mark.parametrize("known", [STAGES, stages()], ids=["toys", "shipped"])
def test_templates_load_as_they_stand_and_with_every_optional_key(known, catalog):
    for stage in known:
        text = new(stage, known)
        assert load_problem(text, catalog=catalog, known=known).workloads[0].stage == stage
        full = "\n".join(line[1:] if re.match(r"#[a-z]", line) else line for line in text.splitlines())
        assert len(load_problem(full, catalog=catalog, known=known).defaulted) < 40
    with pytest.raises(ProblemError, match="did you mean"):
        new(f"{next(iter(known))}x", known)


def _check(value, shape, path=""):
    """Check a value against the few words of JSON Schema that ours uses."""
    options = shape.get("anyOf") or shape.get("oneOf")
    if options:
        return any(_check(value, option, path) for option in options)
    if "const" in shape or "enum" in shape:
        return value in shape.get("enum", [shape.get("const")])
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "number": (int, float), "integer": int}
    if "type" in shape and not isinstance(value, kinds[shape["type"]]):
        return False
    if isinstance(value, dict):
        known, free = shape.get("properties", {}), shape.get("additionalProperties", {})
        missing = set(shape.get("required", ())) - value.keys()
        inner = (
            _check(item, known.get(name, free), f"{path}.{name}") if known.get(name, free) else False
            for name, item in value.items()
        )
        return not missing and all(inner)
    if isinstance(value, list):
        return len(value) >= shape.get("minItems", 0) and all(
            _check(item, shape.get("items", {}), path) for item in value
        )
    if isinstance(value, str):
        return re.search(shape.get("pattern", ""), value) is not None
    low, above, high = shape.get("minimum", -inf), shape.get("exclusiveMinimum", -inf), shape.get("maximum", inf)
    return low <= value <= high and value > above


def test_the_schema_takes_what_the_reader_takes():
    import tomllib

    made = json.loads(json.dumps(schema(STAGES)))
    good = tomllib.loads(COMMON + CHAT)
    assert _check(good, made)
    for path, value in (
        (("horizon", "periods"), 0),
        (("limits", "power"), 3),
        (("hardware", "sites"), []),
        (("gap",), "x"),
    ):
        bad = tomllib.loads(COMMON + CHAT)
        inner = bad
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        assert not _check(bad, made), path
    for known in (STAGES, stages()):
        for stage in known:
            assert _check(tomllib.loads(new(stage, known)), schema(known)), stage


def test_patterns_take_the_examples_of_every_dimension():
    for dimension, (_, example) in _EXAMPLES.items():
        pattern = COUNT if dimension == "1" else MONEY if dimension.startswith("USD") else QUANTITY
        assert re.search(pattern, example), (dimension, example)
        if dimension != "1":
            assert not re.search(pattern, "80")


def test_reading_is_quick_and_imports_neither_pint_nor_pydantic(tmp_path):
    file = tmp_path / "chat.toml"
    file.write_text(COMMON + CHAT)
    code = (
        "import sys, time; import tokenmill_models.stage, toy_stage; from tokenmill.catalog import load_catalog;"
        "start = time.process_time(); from tokenmill.reading import load_problem; catalog = load_catalog();"
        f"load_problem({str(file)!r}, catalog=catalog, known=toy_stage.STAGES);"
        "print(time.process_time() - start, 'pint' in sys.modules, 'pydantic' in sys.modules)"
    )
    path = ":".join(part for part in sys.path if part)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": path})
    seconds, pint, pydantic = run.stdout.split()
    assert (pint, pydantic) == ("False", "False"), run.stderr
    assert float(seconds) < 1.0


def test_a_file_of_mistakes_only_ends_soon(read):
    text = "\n".join(f"key{i} = {i}" for i in range(200_000))
    start = time.perf_counter()
    with pytest.raises(ProblemError) as refused:
        read(text)
    assert len(refused.value.mistakes) == 1000
    assert time.perf_counter() - start < 20
