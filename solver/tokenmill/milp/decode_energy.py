"""What electricity of own systems is paid for: moment by moment, and run by run."""

from __future__ import annotations

from collections.abc import Iterator

from tokenmill.milp.decode import Reader
from tokenmill.milp.money import discount
from tokenmill.milp.quantities import count, going_on, pool_power
from tokenmill.milp.solution import Electricity
from tokenmill.milp.ways import mean_per_site, run_cost, run_duration, run_power, run_rent


def electricity(read: Reader) -> tuple[Electricity, ...]:
    """Return the rows that add up to the cost of energy; none for what draws or costs nothing."""
    found = [*_moments(read), *_runs(read)]
    return tuple(row for row in found if row.cost)


def _moments(read: Reader) -> Iterator[Electricity]:
    """Yield what own systems and the pools on them draw in the mean, by site, period and slice."""
    sets = read.build.sets
    for h, l in sets.moments:
        for i, site in enumerate(sets.sites):
            yield Electricity(
                f"{site.name}, period {h}, {sets.slices[l]}", site.name, tuple(_draws(read, i, h, l)), site.pue, sets.length(h, l),
                sets.per_site(site.electricity, l), discount(sets.problem.horizon, h),
            )  # fmt: skip


def _draws(read: Reader, i: int, h: int, l: int) -> Iterator[tuple[str, float]]:
    """Yield (what, W): own systems with idle chips, and what replicas add to these."""
    build, sets = read.build, read.build.sets
    for k, offer in enumerate(sets.offers):
        if offer.kind in ("buy", "owned"):
            units = count(build, k, i, h, l).value(read.values)
            if units > 0.0:
                yield f"{offer.system} ({offer.market}), idle", units * offer.unit_power
    for n, use in enumerate(sets.uses):
        if (
            use.site == i
            and sets.stocks[use.stock].tenure == "own"
            and read.at(build.variables.replicas[n, h, l]) > 0.5
        ):
            watts = pool_power(build, n, h, l, mean=True).value(read.values)
            column = sets.columns[use.column]
            yield f"work of {column.workload} ({column.role}) on {column.system}", watts


def _runs(read: Reader) -> Iterator[Electricity]:
    """Yield what runs on own systems draw beyond their idle chips, while they go on."""
    build, sets = read.build, read.build.sets
    for n, way, column in going_on(build, frozenset(build.variables.start)):
        if read.at(build.variables.taken[n]) >= 0.5 and run_cost(sets, way) != run_rent(sets, way):
            site = sets.sites[way.site]
            yield Electricity(
                f"run of {column.workload}", site.name, ((f"run of {column.workload}", run_power(sets, way)),), site.pue,
                run_duration(sets, way), mean_per_site(sets, way.site, "electricity"), 1.0,
            )  # fmt: skip
