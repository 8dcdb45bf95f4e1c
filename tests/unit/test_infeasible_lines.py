"""Which lines of a file are in the way: one alone, several that exclude one another, pools that do not match."""

from dataclasses import replace

import pytest

from cross_check.toys import YEAR, pool, pool_column, problem, rent, run, solve
from tokenmill.candidates.columns import Column, CouplingEnd, CouplingUse, OperatingPoint, WorkloadColumns
from tokenmill.milp.solution import Shortfall
from tokenmill.problem import Supply, Workload
from tokenmill.releases import Line, blamed, lines, told, without

WORKLOAD = Workload(
    "chat", "toy", held={"layout.tp": (2,), "layout.zero": (0,), "layout.pp": (1,)},
    role_held={"decode": {"precision.kv": ("fp8",)}}, values={"slo.tpot": {"p95": 0.01, "p99": 1.0}, "engine.chunk": 512},
)  # fmt: skip


def able(*conflicts):
    """Return a stand-in for the search: a layout exists where no conflict has all of its keys held."""

    def search(workload):
        held = {*workload.held, *(key for table in workload.role_held.values() for key in table)}
        held |= {f"slo.tpot.{word}" for word in workload.values["slo.tpot"] or ()}
        return not any(set(conflict) <= held for conflict in conflicts)

    return search


def test_lines_are_what_is_held_and_limits_that_differ_from_their_default():
    found = {
        (line.role, line.key)
        for line in lines(WORKLOAD, ["slo.tpot.p95", "engine.chunk", "layout.tp"], {"engine.chunk": 512})
    }
    assert found == {
        ("", "layout.tp"), ("", "layout.zero"), ("", "layout.pp"), ("decode", "precision.kv"), ("", "slo.tpot.p95"),
    }  # fmt: skip


def test_one_line_alone_is_to_blame():
    every = lines(WORKLOAD, ["slo.tpot.p95"], {})
    alone, together = blamed(WORKLOAD, every, {}, able({"slo.tpot.p95"}))
    assert [line.text for line in alone] == ["slo.tpot.p95 = 0.01"]
    assert together == []


def test_a_limit_of_one_percentile_goes_alone():
    rest = without(WORKLOAD, [Line("slo.tpot.p95", "", 0.01)], {}).values["slo.tpot"]
    assert rest == {"p99": 1.0}
    both = [Line("slo.tpot.p95", "", 0.01), Line("slo.tpot.p99", "", 1.0)]
    assert without(WORKLOAD, both, {}).values["slo.tpot"] is None


def test_what_would_do_alone_is_told_first():
    asked = problem(replace(WORKLOAD, held={}, role_held={}))
    missing = [
        Shortfall("workload.chat.engine.batch", "memory.kv", 1.6e10, "B", None, "change engine.batch"),
        Shortfall("workload.chat.slo.tpot.p95", "tpot.p95", 0.02, "s", None, "change slo.tpot.p95"),
    ]

    def search(changed):
        kept = "p95" in changed.workloads[0].values["slo.tpot"]
        return pool() if kept else pool(pool_column())

    found = told(missing, asked, ["chat"], {"chat": ["slo.tpot.p95"]}, {"chat": {}}, search)
    assert [short.key for short in found] == ["workload.chat.slo.tpot.p95", "workload.chat.engine.batch"]
    assert found[0].alone_would_do
    assert found[0].cure == "change slo.tpot.p95; without slo.tpot.p95 = 0.01 there are layouts"


def test_any_of_two_that_exclude_one_another_alone_would_do():
    alone, _ = blamed(WORKLOAD, lines(WORKLOAD, (), {}), {}, able({"layout.tp", "precision.kv"}))
    assert [line.text for line in alone] == ["layout.tp = 2", "decode.precision.kv = fp8"]


def test_two_conflicts_at_once_leave_an_irreducible_set():
    conflicts = [{"layout.tp", "layout.zero"}, {"layout.pp", "precision.kv"}]
    alone, together = blamed(WORKLOAD, lines(WORKLOAD, (), {}), {}, able(*conflicts))
    assert alone == []
    assert {line.key for line in together} in conflicts


def test_released_lines_are_gone_and_others_stay():
    free = without(WORKLOAD, [Line("layout.tp", "", (2,)), Line("precision.kv", "decode", ("fp8",))], {})
    assert set(free.held) == {"layout.zero", "layout.pp"}
    assert free.role_held["decode"] == {}


def _split(sent, taken):
    def column(role, kind):
        end = CouplingEnd((kind,), 0.0, (10.0,) if role == "prefill" else ())
        point = OperatingPoint({}, (10.0,), 5600.0)
        return Column(
            role, "chat", role, "pool", "node", 8, (("node", 8),), {}, (point,), 800.0, 5600.0, ends={"kv0": end}
        )

    coupling = CouplingUse("kv0", "prefill", "decode", "kv", None, ("precision.kv",))
    return WorkloadColumns(
        "chat", "toy", "pool", {"prefill": (column("prefill", sent),), "decode": (column("decode", taken),)},
        (("prefill", "decode"),), (coupling,), ("all",), (1.0,),
    )  # fmt: skip


def test_formats_that_do_not_match_are_no_lack_of_demand():
    (short,) = solve(problem(), [_split("fp8", "bf16")], [rent()]).infeasible
    assert short.key == "workload.chat.precision.kv"
    assert "fp8" in short.limit
    assert "bf16" in short.limit
    assert solve(problem(), [_split("fp8", "fp8")], [rent()]).infeasible == ()


@pytest.mark.parametrize(
    ("limits", "hardware", "key"),
    [
        ({"budget": 1000.0}, {}, "limits.budget"),
        ({"cost": 1000.0}, {}, "limits.cost"),
        ({"chips": 16}, {}, "limits.chips"),
        ({"power": 2000.0}, {}, "limits.power"),
        ({}, {"supply": (Supply("node", at_most=2),)}, "hardware.supply.node"),
    ],
)
def test_every_limit_is_named_by_its_own_line(limits, hardware, key):
    """25 units/s need three systems of 8 chips: $420 480 a year at $16/h, 24 chips, 4.8 kW a loaded chip of 700 W and 1 kW of host."""
    plan = solve(problem(limits=limits, hardware=hardware), [pool(pool_column())], [rent()])
    alone = {short.key for short in plan.infeasible if short.alone_would_do}
    assert key in alone
    assert alone <= {key, "workload.chat.demand"}


def test_a_lead_time_and_what_must_come_first_are_named():
    late = problem(
        Workload("train", "toy", deadline=YEAR / 4), hardware={"supply": (Supply("node", lead_time=YEAR / 2),)}
    )
    keys = {
        short.key
        for short in solve(
            replace(late, horizon=replace(late.horizon, periods=4)), [run("train", (8, 10.0))], [rent()]
        ).infeasible
    }
    assert keys & {"hardware.supply.node.lead_time", "workload.train.deadline", "hardware.supply.node"}
    two = problem(
        Workload("one", "toy", deadline=30 * 86400.0), Workload("two", "toy", needs=("one",), deadline=15 * 86400.0)
    )
    shorts = solve(two, [run("one", (8, 10.0)), run("two", (8, 10.0))], [rent()]).infeasible
    amounts = {short.key: short.shortfall for short in shorts}
    assert amounts["workload.two.deadline"] == pytest.approx(5 * 86400.0)
    assert amounts["workload.two.needs"] == pytest.approx(5 * 86400.0)


def test_where_easing_no_limit_would_do_a_conflict_is_named():
    """At most 2 systems may be had, and at most 16 chips: easing either alone leaves the other; the demand is a last resort."""
    asked = problem(limits={"chips": 16}, hardware={"supply": (Supply("node", at_most=2),)})
    plan = solve(asked, [pool(pool_column())], [rent()])
    short = {item.key: item for item in plan.infeasible}
    assert short["limits.chips"].alone_would_do is False
    assert short["hardware.supply.node"].alone_would_do is False
    (note,) = [note for note in plan.notes if "cannot hold" in note]
    assert note.split(" cannot hold ")[0] in ("limits.chips", "hardware.supply.node")  # either is a conflict by itself
