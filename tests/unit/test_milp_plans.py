"""Plans whose optimum is worked out by hand, one mechanism at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cross_check.toys import DAY, FREE, YEAR, Ownership, buy, pool, pool_column, problem, rent, run, solve
from tokenmill.candidates.columns import OperatingPoint
from tokenmill.errors import SolverError
from tokenmill.problem import Objective, Owned, Site, Supply, Workload

HOURS = 8760


def test_whole_replicas_and_whole_systems():
    plan = solve(problem(), [pool(pool_column())], [rent()])  # 25/s at 10/s a replica of 8 chips: three systems
    assert plan.termination.status == "optimal"
    assert plan.cost_total == pytest.approx(3 * 16 * HOURS)
    assert [(p.system, p.count, p.chips) for p in plan.purchases] == [("node", 3, 24)]
    assert plan.running[0].replicas == 3
    assert plan.running[0].utilisation == pytest.approx(25 / 30)


def test_renting_by_the_chip_pays_for_chips_alone():
    columns = [pool(pool_column(chips=2, rate=10.0))]
    assert solve(problem(), columns, [rent()]).cost_total == pytest.approx(16 * HOURS)
    assert solve(problem(), columns, [rent(by_chip=True)]).cost_total == pytest.approx(6 * 2 * HOURS)


def test_small_and_large_replicas_share_out_domains():
    # 3-chip replicas: two a domain of 8; 12 chips span two domains
    assert solve(problem(), [pool(pool_column(chips=3, rate=5.0))], [rent()]).purchases[0].count == 3
    assert solve(problem(), [pool(pool_column(chips=12, rate=30.0))], [rent()]).purchases[0].count == 2


def test_a_peak_is_rented_for_its_slice_alone():
    asked = problem(horizon={"slices": {"peak": 0.25, "night": 0.75}})
    plan = solve(asked, [pool(pool_column())], [rent()], demand=[[35.0, 5.0]])
    assert plan.cost_total == pytest.approx((4 * 0.25 + 1 * 0.75) * 16 * HOURS)
    assert {p.slice: p.count for p in plan.purchases} == {"peak": 4, "night": 1}


def test_buying_pays_the_price_less_what_is_left():
    own = Ownership(life=5 * YEAR, residual=0.0)
    asked = problem(hardware={"ownership": own})
    plan = solve(
        asked, [pool(pool_column())], [rent(), buy(400_000.0)]
    )  # a fifth is gone after a year: 80 000 < 140 160
    assert plan.cost_total == pytest.approx(3 * 80_000)
    assert plan.purchases[0].market == "buy"
    assert solve(asked, [pool(pool_column())], [rent(), buy(800_000.0)]).purchases[0].market == "on-demand"


def test_owners_pay_for_electricity():
    site = Site(pue=1.5, electricity={"all": 0.10 / 3.6e6})
    plan = solve(
        problem(hardware={"sites": (site,), "ownership": Ownership(life=YEAR)}), [pool(pool_column())], [buy(50_000.0)]
    )
    watts = 3 * (1000 + 800) + 2.5 * 8 * 600  # hosts and idle chips, and what 2.5 replicas' worth of work adds
    assert plan.cost_by_kind is not None
    assert plan.cost_by_kind["energy"] == pytest.approx(watts / 1000 * HOURS * 1.5 * 0.10)
    assert plan.energy == pytest.approx(watts * YEAR * 1.5)
    (paid,) = plan.electricity
    assert [watts for _, watts in paid.draws] == pytest.approx([3 * (1000 + 800), 2.5 * 8 * 600])
    assert (paid.pue, paid.seconds, paid.price) == (1.5, YEAR, 0.10 / 3.6e6)
    assert paid.cost == pytest.approx(plan.cost_by_kind["energy"], rel=1e-12)


def test_what_owners_pay_for_electricity_adds_up_over_moments_and_runs():
    """A working day in two parts and two discounted periods, a pool and a run that holds its systems."""
    day = Site(pue=1.2, electricity={"peak": 0.2 / 3.6e6, "night": 0.05 / 3.6e6})
    asked = problem(
        Workload("chat", "toy"), Workload("train", "toy"),
        horizon={"duration": 2 * YEAR, "periods": 2, "slices": {"peak": 0.25, "night": 0.75}, "discount_rate": 0.1},
        hardware={"sites": (day,), "ownership": Ownership(life=2 * YEAR)},
    )  # fmt: skip
    plan = solve(asked, [pool(pool_column()), run("train", (8, 100.0))], [buy(50_000.0)], demand=[[25.0, 5.0]] * 2)
    assert plan.cost_by_kind is not None
    assert {each.what.partition(" of ")[0] for each in plan.electricity} >= {"run"}
    assert len(plan.electricity) == 5
    assert sum(each.cost for each in plan.electricity) == pytest.approx(plan.cost_by_kind["energy"], rel=1e-12)
    (ran,) = [each for each in plan.electricity if each.what == "run of train"]
    # 8 chips loaded in place of idle; 100 days at the mean price of a day
    assert ran.power == pytest.approx(8 * (700.0 - 100.0))
    assert ran.cost == pytest.approx(4.8 * 2400 / (1.0 - asked.hardware.ownership.maintenance) * 1.2 * 0.0875)


def test_maintenance_takes_time_of_own_systems():
    asked = problem(hardware={"ownership": Ownership(life=YEAR, maintenance=0.2)})
    assert solve(asked, [pool(pool_column())], [buy(1.0)], demand=30.0).purchases[0].count == 4  # 8/s each


def test_growth_is_followed_period_by_period():
    asked = problem(horizon={"periods": 3})
    plan = solve(asked, [pool(pool_column())], [rent()], demand=[[5.0], [15.0], [25.0]])
    assert plan.cost_by_period == pytest.approx([n * 16 * HOURS / 3 for n in (1, 2, 3)])


def test_reservations_bind_for_their_term():
    reserve = rent(10.0, market="reserved-1y", kind="reserve", commitment=YEAR)
    asked = problem(horizon={"periods": 2, "duration": YEAR})
    plan = solve(asked, [pool(pool_column())], [rent(), reserve], demand=[[25.0], [5.0]])
    # one for the year at 10; two more for half a year: 16/2 = 8 on demand beats 10 reserved
    assert plan.cost_total == pytest.approx((10 + 2 * 8) * HOURS)
    short = problem(horizon={"duration": YEAR / 4})
    assert solve(short, [pool(pool_column())], [reserve], demand=5.0).cost_total == pytest.approx(10 * HOURS)
    prorated = problem(horizon={"duration": YEAR / 4, "commitments": "prorate"})
    assert solve(prorated, [pool(pool_column())], [reserve], demand=5.0).cost_total == pytest.approx(10 * HOURS / 4)


def test_money_later_is_worth_less():
    asked = problem(horizon={"periods": 2, "duration": 2 * YEAR, "discount_rate": 0.25})
    plan = solve(asked, [pool(pool_column())], [rent()], demand=5.0)
    assert plan.cost_total == pytest.approx(16 * HOURS * (1 + 1 / 1.25))


def test_owned_systems_cost_nothing_and_run_out():
    owned = rent(0.0, market="owned", kind="owned", at_most=2)
    asked = problem(hardware={"owned": (Owned("node", 2),)})
    plan = solve(asked, [pool(pool_column())], [rent(), owned])
    assert plan.cost_total == pytest.approx(16 * HOURS)
    assert {p.market: p.count for p in plan.purchases} == {"owned": 2, "on-demand": 1}


def test_smallest_orders_and_price_tiers():
    tier = rent(12.0, minimum=4)  # four at 12 are dearer than three at 16 by nothing: 48 each
    assert solve(problem(), [pool(pool_column())], [rent(), tier]).cost_total == pytest.approx(48 * HOURS)
    assert solve(problem(), [pool(pool_column())], [rent(), tier], demand=35.0).cost_total == pytest.approx(48 * HOURS)
    assert solve(problem(), [pool(pool_column())], [tier], demand=5.0).purchases[0].count == 4


def test_spot_is_held_to_its_share_and_needs_columns_for_it():
    spot = rent(4.0, market="spot")
    columns = [pool(pool_column(name="a"), pool_column(name="b", reliability="spot"))]
    free = solve(problem(), columns, [rent(), spot])
    assert free.cost_total == pytest.approx(3 * 4 * HOURS)
    held = solve(problem(limits={"spot_share": 0.4}), columns, [rent(), spot])
    assert held.cost_total == pytest.approx((4 + 2 * 16) * HOURS)
    assert solve(problem(), [pool(pool_column())], [rent(), spot]).cost_total == pytest.approx(3 * 16 * HOURS)


def test_refusing_is_worth_its_price():
    dear, cheap = (problem(limits={"shed": price / YEAR}) for price in (1e6, 30_000.0))
    assert solve(dear, [pool(pool_column())], [rent()]).refused == {}
    plan = solve(cheap, [pool(pool_column())], [rent()])  # the last 5/s for 150 000 a year or a system for 140 160
    assert plan.cost_total == pytest.approx(3 * 16 * HOURS)
    plan = solve(cheap, [pool(pool_column())], [rent()], demand=24.0)  # now 4/s for 120 000: refuse them
    assert plan.cost_total == pytest.approx(2 * 16 * HOURS + 4 * 30_000)
    assert plan.refused == pytest.approx({("chat", 0, 1, "all"): 4 / 24})


def test_held_replicas():
    asked = problem(Workload("chat", "toy", held={"layout.replicas": (5,)}))
    assert solve(asked, [pool(pool_column())], [rent()]).running[0].replicas == 5
    few = problem(Workload("chat", "toy", held={"layout.replicas": (2,)}))
    plan = solve(few, [pool(pool_column())], [rent()])
    assert {s.key for s in plan.infeasible if s.alone_would_do} == {
        "workload.chat.demand",
        "workload.chat.layout.replicas",
    }


def test_a_run_takes_the_slow_cheap_way_unless_due():
    columns = [run("train", (8, 30.0), (16, 20.0))]
    slow = solve(problem(Workload("train", "toy")), columns, [rent()])
    assert slow.cost_total == pytest.approx(30 * 24 * 16)
    assert (slow.runs[0].start, slow.runs[0].end) == (0.0, pytest.approx(30 * DAY))
    fast = solve(problem(Workload("train", "toy", deadline=25 * DAY)), columns, [rent()])
    assert fast.cost_total == pytest.approx(20 * 24 * 2 * 16)
    assert fast.purchases[0].workload == "train"
    soonest = solve(problem(Workload("train", "toy"), objectives=("time", "cost")), columns, [rent()])
    assert soonest.termination.objective == pytest.approx(20 * DAY)


def test_two_parts_of_a_run_on_one_system_stand_in_either_market():
    asked = problem(Workload("train", "toy"), hardware={"owned": (Owned("node", 1),)})
    owned = rent(0.0, market="owned", kind="owned", at_most=1)
    # one part fits what is owned, the larger if they differ; the other is rented
    for parts, rented in (((8, 4), 4), ((4, 8), 4), ((8, 8), 8)):
        columns = run("train", (sum(parts), 10.0))
        split = replace(columns.columns["train"][0], footprint=tuple(("node", chips) for chips in parts))
        plan = solve(asked, [replace(columns, columns={"train": (split,)})], [rent(by_chip=True), owned])
        assert plan.cost_total == pytest.approx(rented * 2 * 240)  # $2 a chip-hour


def test_runs_one_after_the_other_share_what_is_bought():
    first, second = Workload("first", "toy"), Workload("second", "toy", needs=("first",))
    columns = [run("first", (8, 30.0)), run("second", (8, 40.0))]
    asked = problem(first, second, hardware={"ownership": Ownership(life=YEAR)})
    plan = solve(asked, columns, [buy(1000.0)])
    assert plan.purchases[0].count == 1
    assert [(r.workload, r.start, r.end) for r in plan.runs] == [
        ("first", 0.0, pytest.approx(30 * DAY)), ("second", pytest.approx(30 * DAY), pytest.approx(70 * DAY))
    ]  # fmt: skip
    alongside = problem(first, replace(second, needs=()), hardware={"ownership": Ownership(life=YEAR)})
    assert solve(alongside, columns, [buy(1000.0)]).purchases[0].count == 2


def test_runs_in_periods_hold_what_they_touch():
    asked = problem(Workload("train", "toy", starts=100 * DAY), horizon={"periods": 4, "duration": 400 * DAY})
    plan = solve(replace(asked, hardware=replace(asked.hardware, owned=(Owned("node", 1),))), [run("train", (8, 150.0))],
                 [rent(0.0, market="owned", kind="owned", at_most=1)])  # fmt: skip
    assert plan.purchases[0].period == 2
    assert plan.purchases[0].until == 3
    assert plan.runs[0].start == pytest.approx(100 * DAY)


def test_supply_comes_late_and_in_small_numbers():
    cheap, dear = rent(10.0), rent(16.0, system="other")
    columns = [pool(pool_column(), pool_column(system="other"))]
    supply = (Supply("node", at_most=1, from_period=2), Supply("other"))
    plan = solve(problem(horizon={"periods": 2}, hardware={"supply": supply}), columns, [cheap, dear])
    assert plan.cost_total == pytest.approx((3 * 16 + 10 + 2 * 16) * HOURS / 2)


def test_sites_regions_and_power():
    near = Site("near", power=2 * (1800 + 8 * 600.0), electricity={"all": 0.0}, regions={"eu": 0.01})
    far = Site("far", electricity={"all": 0.0}, regions={"us": 0.02})
    offers = [rent(10.0, sites=("far",)), rent(16.0, sites=("near",))]
    free = solve(problem(hardware={"sites": (near, far)}), [pool(pool_column())], offers, demand=20.0)
    assert {p.site for p in free.purchases} == {"far"}
    local = problem(Workload("chat", "toy", region="eu"), hardware={"sites": (near, far)})
    assert {p.site for p in solve(local, [pool(pool_column())], offers, demand=20.0).purchases} == {"near"}
    short = solve(local, [pool(pool_column())], offers, demand=25.0)
    assert short.termination.status == "infeasible"
    assert {s.key for s in short.infeasible if s.alone_would_do} == {"hardware.site.near.power", "workload.chat.demand"}
    power = next(s for s in short.infeasible if "power" in s.key)
    assert power.shortfall == pytest.approx(1800 + 8 * 600.0)


def test_operating_points_save_power_where_it_is_short():
    hungry, frugal = OperatingPoint({}, (10.0,), 5600.0), OperatingPoint({}, (8.0,), 3000.0)
    column = replace(pool_column(), points=(hungry, frugal))
    site = replace(FREE, power=2 * 1000 + 3000.0 * 2)
    plan = solve(problem(hardware={"sites": (site,)}), [pool(column)], [rent()], demand=16.0)
    assert plan.running[0].rates == {(0, 1): pytest.approx(16.0)}


def test_objectives():
    site = Site(pue=1.0, electricity={"all": 0.0}, carbon={"all": 0.5 / 3.6e6})
    cool = pool_column(rate=10.0, system="cool", watts=300.0)
    columns, offers = [pool(pool_column(), cool)], [rent(10.0), rent(20.0, system="cool")]
    watts = 1800 + 8 * 200.0
    for name, expected in (
        ("power", watts), ("energy", watts * YEAR), ("carbon", watts / 1000 * HOURS * 0.5), ("chips", 8.0)
    ):  # fmt: skip
        plan = solve(problem(objectives=(name, "cost"), hardware={"sites": (site,)}), columns, offers, demand=10.0)
        assert plan.termination.objective == pytest.approx(expected)
        assert plan.purchases[0].system == ("node" if name == "chips" else "cool")
    per = Objective("cost_per_token", "chat", "all")
    plan = solve(problem(objectives=(per,)), columns, offers, demand=10.0)
    assert plan.termination.objective == pytest.approx(10 * HOURS / (10 * YEAR * 300))
    with pytest.raises(SolverError, match="time means the end of a run"):
        solve(problem(objectives=("time",)), columns, offers)


def test_ties_take_fewer_chips_then_first_names():
    columns = [pool(pool_column(system="a"), pool_column(system="b"), pool_column(chips=16, rate=10.0, system="c"))]
    offers = [rent(system="b"), rent(system="a"), rent(8.0, system="c")]
    plan = solve(problem(), columns, offers)
    assert [(p.system, p.count) for p in plan.purchases] == [("a", 3)]


def test_what_one_more_saves():
    columns = [pool(pool_column(), pool_column(system="other"))]
    asked = problem(hardware={"supply": (Supply("node", at_most=1),)})
    plan = solve(asked, columns, [rent(10.0), rent(16.0, system="other")])
    (bound,) = [b for b in plan.binding if b.key == "hardware.supply.node"]
    assert (bound.step, bound.saves) == (1.0, pytest.approx(6 * HOURS))
    unasked = solve(asked, columns, [rent(10.0), rent(16.0, system="other")], value_of_next=False)
    assert [b.saves for b in unasked.binding if b.key == "hardware.supply.node"] == [None]


def test_what_is_missing_is_said_with_its_amount():
    asked = problem(limits={"budget": 2 * 16 * HOURS, "chips": 24})
    plan = solve(asked, [pool(pool_column())], [rent()])
    missing = {s.key: s for s in plan.infeasible}
    assert missing["limits.budget"].shortfall == pytest.approx(16 * HOURS)
    assert missing["limits.budget"].alone_would_do
    assert missing["workload.chat.demand"].shortfall == pytest.approx(5.0)
    assert "limits.chips" not in missing
    assert plan.cost_total is None


def test_nothing_offered_and_no_layouts():
    plan = solve(problem(), [pool(pool_column(system="absent"))], [rent()])
    assert [s.key for s in plan.infeasible] == ["hardware.markets"]
    plan = solve(problem(), [pool()], [rent()])
    assert plan.termination.status == "infeasible"
    assert plan.infeasible[0].key == "workload.chat"


def test_a_limit_of_time_is_told_apart():
    plan = solve(problem(), [pool(pool_column())], [rent()], time_limit=0.0)
    assert (plan.termination.status, plan.termination.limit) == ("unknown", "time")
    assert plan.cost_total is None


def test_costs_are_shared_by_chip_hours():
    asked = problem(Workload("chat", "toy"), Workload("train", "toy"), hardware={"ownership": Ownership(life=YEAR)})
    plan = solve(asked, [pool(pool_column()), run("train", (8, 365.0))], [buy(1000.0)], demand=25.0)
    assert plan.cost_by_workload == pytest.approx({"chat": 3000.0, "train": 1000.0})


def test_tokens_are_discounted_as_dollars_are():
    """Hand calculation: the same rent and the same tokens in each of two years give the same ratio at any rate; growth does not."""
    asked = problem(
        objectives=(Objective("cost_per_token", "chat", "output"),),
        horizon={"duration": 2 * YEAR, "periods": 2, "discount_rate": 0.25},
    )
    steady = solve(asked, [pool(pool_column())], [rent(10.0)], demand=25.0)
    each = 3 * 10.0 * 8760 / (25.0 * YEAR * 100.0)
    assert steady.termination.objective == pytest.approx(each)
    growing = solve(asked, [pool(pool_column())], [rent(10.0)], demand=[[10.0], [20.0]])
    paid = (1 * 10.0 + 2 * 10.0 / 1.25) * 8760
    assert growing.termination.objective == pytest.approx(paid / ((10.0 + 20.0 / 1.25) * YEAR * 100.0))
