"""Random small problems, and their optimum by trying every plan: nothing here is shared with the programme."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import ceil, inf, prod
from random import Random

import highspy
import numpy as np

from tokenmill.candidates.columns import Column, CouplingEnd, CouplingUse, OperatingPoint, WorkloadColumns
from tokenmill.offers import Offer
from tokenmill.problem import Hardware, Horizon, Objective, Ownership, Problem, Site, Supply, Workload

YEAR = 365 * 86400.0
DAY = 86400.0


@dataclass(frozen=True)
class Link:
    """A directed link with room for `capacity` B/s."""

    name: str
    source: str
    target: str
    capacity: float
    per_chip: float = 0.0
    site: str = ""
    system: str = ""
    latency: float = 0.0


@dataclass(frozen=True)
class Case:
    problem: Problem
    columns: tuple[WorkloadColumns, ...]
    offers: tuple[Offer, ...]
    links: tuple[Link, ...]
    demand: float

    @property
    def pool(self) -> WorkloadColumns:
        return next(w for w in self.columns if w.kind == "pool")

    @property
    def run(self) -> WorkloadColumns | None:
        return next((w for w in self.columns if w.kind == "run"), None)

    def table(self) -> dict[str, np.ndarray]:
        return {"chat": np.array([[self.demand]])}


def replica(rng: Random, system: str, role: str, number: int, chips: int, speed: float, classes: int) -> Column:
    rates = tuple(
        round(chips * speed * rng.choice([0.8, 1.0, 1.3]) / (1 + 2 * b * (role == "mixed")), 2) for b in range(classes)
    )
    watts = chips * (rng.choice([500.0, 900.0]) if system == "a" else rng.choice([250.0, 1000.0]))
    points = [OperatingPoint({"batch": 1}, rates, watts)]
    if rng.random() < 0.3:  # another operating point: slower, and less power
        points.append(OperatingPoint({"batch": 2}, tuple(round(0.7 * r, 2) for r in rates), 0.6 * watts))
    kind = rng.choice(["fp16"] * 15 + ["fp8"])
    end = CouplingEnd((kind,), rng.choice([0.2, 0.4, 0.4, 0.4, 0.5]), (10.0,) * classes if role == "prefill" else ())
    ends = {"kv": end} if role != "mixed" else {}
    key = f"{role}-{system}-{number}"
    return Column(key, "chat", role, "pool", system, chips, ((system, chips),), {}, tuple(points), chips * 100.0,
                  max(p.power_loaded for p in points), None, ends)  # fmt: skip


def random_case(seed: int) -> Case:
    """Return a small problem with several limits, each set near what the cheapest unlimited plan would use."""
    rng = Random(seed)
    systems = {"a": (4, 1), "b": rng.choice([(4, 1), (4, 1), (4, 2), (6, 1)])}  # chips a domain, domains a system
    classes = 1 if rng.random() < 0.05 else 2
    columns: dict[str, list[Column]] = {"mixed": [], "prefill": [], "decode": []}
    for system, (domain, _) in systems.items():
        sizes = [rng.choice([1, 2, 3, 4]), rng.choice([2, 3, 4, 6, domain + 2])]
        speed = {"a": 0.8, "b": 2.0}[system]
        columns["mixed"] += [
            replica(rng, system, "mixed", n, g, speed, classes) for n, g in enumerate(sizes[: rng.choice([1, 2])])
        ]
    split = rng.random() < 0.97
    if split:
        where = rng.choice([("a", "a")] * 8 + [("a", "b"), ("b", "a")])
        fast = rng.choice([6.0, 9.0])
        columns["prefill"].append(replica(rng, where[0], "prefill", 0, 1, fast, classes))
        columns["decode"].append(replica(rng, where[1], "decode", 0, rng.choice([1, 2, 2]), fast, classes))
    shares = (1.0,) if classes == 1 else rng.choice([(0.5, 0.5), (0.75, 0.25)])
    routes = (("mixed",), ("prefill", "decode")) if split else (("mixed",),)
    coupling = (CouplingUse("kv", "prefill", "decode", "kv", rng.choice([0.8, 1.0])),) if split else ()
    pool = WorkloadColumns(
        "chat", "toy", "pool", {k: tuple(v) for k, v in columns.items() if v}, routes, coupling,
        tuple(f"c{n}" for n in range(classes)), shares,
    )  # fmt: skip
    made = [pool]
    workloads = [Workload("chat", "toy")]
    if rng.random() < 0.75:
        made.append(_training(rng))
        quickest = min(c.duration or 0.0 for c in made[-1].columns["train"])
        workloads.append(Workload("train", "toy", deadline=rng.choice([1.05, 1.05, 1.3, 3.0]) * quickest))
    offers = _offers(rng, systems)
    room = rng.choice([(30.0, 45.0, 60.0), (30.0, 45.0), (300.0,)])
    links = tuple(
        Link(f"{a}>{b}", a, b, rng.choice(room))
        for system in systems
        for a, b in ((f"site/{system}", "site/fabric"), ("site/fabric", f"site/{system}"))
    )
    problem = Problem(
        tuple(workloads), objectives=(Objective("cost"),), gap=0.0, horizon=Horizon(duration=YEAR),
        hardware=Hardware(sites=(Site(electricity={"all": 0.0}),), ownership=Ownership(life=4 * YEAR, residual=0.1)),
    )  # fmt: skip
    return Case(problem, tuple(made), offers, links if split else (), round(rng.uniform(3.0, 9.0), 1))


def _training(rng: Random) -> WorkloadColumns:
    column = []
    for number, (system, chips, days) in enumerate(
        [("a", 4, 30.0), ("a", 8, 18.0), ("b", 8, 15.0)][: rng.choice([2, 3])]
    ):
        column.append(Column(f"run-{number}", "train", "train", "run", system, chips, ((system, chips),), {}, (), chips * 100.0,
                             chips * rng.choice([500.0, 700.0]), days * DAY))  # fmt: skip
    return WorkloadColumns("train", "toy", "run", {"train": tuple(column)}, (("train",),), (), (), ())


def _offers(rng: Random, systems: dict[str, tuple[int, int]]) -> tuple[Offer, ...]:
    offers = []
    for system, (domain, domains) in systems.items():
        chips = domain * domains
        rent = chips * rng.choice([1.5, 2.0, 2.5]) * (3.4 if system == "b" else 1.0)
        shape = {
            "chips": chips,
            "domain": domain,
            "domains": domains,
            "host_power": 400.0,
            "chip_idle": 50.0,
            "chip_tdp": 700.0,
        }
        offers.append(Offer(system, "on-demand", "rent", rent, **shape))
        if rng.random() < 0.7:  # cheaper over the year once the residual is taken off, dearer in cash
            offers.append(Offer(system, "buy", "buy", round(rent * 8760 * rng.choice([1.5, 2.0, 3.0]), 0), **shape))
    return tuple(offers)


LIMITS = ("chips", "power", "budget", "supply")


def tighten(case: Case, limit: str, used: dict[str, float], least: float, part: float) -> Case:
    """Return the case with a limit that is `part` of the way from the least any plan needs to what the cheapest uses."""
    problem = case.problem
    if limit == "supply":
        system = max(("a", "b"), key=lambda name: used[name])
        supply = (Supply(system, at_most=max(0, int(used[system]) - 1)),)
        return replace(case, problem=replace(problem, hardware=replace(problem.hardware, supply=supply)))
    most = least + part * (used[limit] - least)
    limits = replace(problem.limits, **{limit: int(most) if limit == "chips" else most * (1 + 1e-9)})
    return replace(case, problem=replace(problem, limits=limits))


def plans(case: Case) -> int:
    """Return how many plans there are to try."""
    ways = [1 for c in case.run.columns["train"] for o in case.offers if o.system == c.system] if case.run else [1]
    return len(ways) * prod(_enough(case, stand) + 1 for stand in _stands(case))


def without(case: Case, feature: str) -> Case | None:
    """Return the case with a feature taken out; None where it has none."""
    problem, limits = case.problem, case.problem.limits
    if feature in ("budget", "power", "chips"):
        bare = replace(problem, limits=replace(limits, **{feature: None}))
        return replace(case, problem=bare) if getattr(limits, feature) is not None else None
    if feature == "supply":
        bare = replace(problem, hardware=replace(problem.hardware, supply=()))
        return replace(case, problem=bare) if problem.hardware.supply else None
    if feature == "domains":
        return replace(case, offers=tuple(replace(o, by_chip=True) for o in case.offers))
    if feature == "links":
        return replace(case, links=tuple(replace(link, capacity=1e6) for link in case.links)) if case.links else None
    if feature == "deadline":
        workloads = tuple(replace(w, deadline=None) for w in problem.workloads)
        return replace(case, problem=replace(problem, workloads=workloads)) if case.run else None
    if feature == "split":
        pools = tuple(replace(w, routes=w.routes[:1]) if w.kind == "pool" else w for w in case.columns)
        return replace(case, columns=pools) if len(case.pool.routes) > 1 else None
    if feature == "classes":
        one = tuple(replace(w, shares=(1.0, 0.0)) if w.kind == "pool" else w for w in case.columns)
        return replace(case, columns=one) if len(case.pool.shares) > 1 else None
    raise ValueError(feature)


FEATURES = ("budget", "power", "chips", "supply", "domains", "links", "deadline", "split", "classes")


@cache
def fewest_domains(items: tuple[int, ...], domain: int) -> int:
    """Return the fewest domains that hold all items (largest first), by trying: larger ones take whole domains."""
    large = sum(ceil(g / domain) for g in items if g > domain)
    small = tuple(sorted((g for g in items if g <= domain), reverse=True))
    return large + _pack(small, (), domain)


@cache
def _pack(items: tuple[int, ...], rooms: tuple[int, ...], domain: int) -> int:
    if not items:
        return len(rooms)
    size, rest = items[0], items[1:]
    best = _pack(rest, tuple(sorted((*rooms, domain - size))), domain)
    for n, room in enumerate(rooms):
        if room >= size and (n == 0 or rooms[n - 1] != room):
            best = min(best, _pack(rest, tuple(sorted((*rooms[:n], room - size, *rooms[n + 1 :]))), domain))
    return best


@dataclass(frozen=True)
class Stand:
    """A pool's column on systems bought ("own") or rented ("rent")."""

    column: Column
    offer: Offer


def best_cost(case: Case) -> float:
    """Return the least cost over every number of replicas and every way of the run; inf where no plan works."""
    stands = _stands(case)
    most = [_enough(case, stand) for stand in stands]
    runs: list[tuple[Column, Offer] | None] = [None]
    if case.run:
        limit = next(w.deadline for w in case.problem.workloads if w.name == "train") or inf
        runs = [
            (c, o)
            for c in case.run.columns["train"]
            for o in case.offers
            if o.system == c.system and (c.duration or 0) <= limit
        ]
    found = []
    for counts in product(*(range(m + 1) for m in most)):
        for run in runs:
            cost = _cost(case, stands, counts, run)
            if cost < inf:
                found.append((cost, counts, run))
    found.sort(key=lambda entry: entry[0])
    refuted: list[tuple[tuple[int, ...], object]] = []
    for cost, counts, run in found:
        key = run if case.problem.limits.power else None
        if any(
            k == key and all(a <= b for a, b in zip(counts, worse, strict=True))
            for worse, k in refuted
            if case.problem.limits.power is None
        ):
            continue
        if carries(case, stands, counts, run):
            return cost
        refuted.append((counts, key))
    return inf


def _stands(case: Case) -> list[Stand]:
    roles = {role for route in case.pool.routes for role in route}
    columns = [c for cs in case.pool.columns.values() for c in cs if c.role in roles]
    return [Stand(column, offer) for column in columns for offer in case.offers if offer.system == column.system]


def _enough(case: Case, stand: Stand) -> int:
    """Return replicas of a column beyond which no more are of use: it alone carries each class in turn."""
    rates = stand.column.points[0].rate
    return ceil(sum(case.demand * share / rate for share, rate in zip(case.pool.shares, rates, strict=True)) - 1e-9)


def _systems(
    case: Case, stands: list[Stand], counts: tuple[int, ...], run: tuple[Column, Offer] | None
) -> dict[Offer, int]:
    """Return systems (chips where had by the chip) of each offer that shared replicas and a run on bought ones need."""
    need: dict[Offer, int] = {}
    for offer in case.offers:
        items = [s.column.chips for s, n in zip(stands, counts, strict=True) if s.offer is offer for _ in range(n)]
        if run and run[1] is offer and offer.kind == "buy":
            items.append(run[0].chips)
        if items:
            need[offer] = (
                sum(items)
                if offer.by_chip
                else ceil(fewest_domains(tuple(sorted(items)), offer.domain) / offer.domains)
            )
    return need


def _cost(case: Case, stands: list[Stand], counts: tuple[int, ...], run: tuple[Column, Offer] | None) -> float:
    """Return the plan's cost, inf where it breaks a limit that does not depend on routing."""
    need = _systems(case, stands, counts, run)
    cost = cash = 0.0
    chips = dict.fromkeys(("a", "b"), 0)
    for offer, number in need.items():
        part = 1.0 / offer.chips if offer.by_chip else 1.0
        price = offer.price * part * number
        chips[offer.system] += number * (1 if offer.by_chip else offer.chips)
        if offer.kind == "rent":
            cost, cash = cost + price * 8760, cash + price * 8760
        else:  # a quarter of a life of four years is gone at the end of the year
            cost, cash = cost + price * 0.9 / 4, cash + price
    if run and run[1].kind == "rent":
        column, offer = run
        number = column.chips if offer.by_chip else ceil(ceil(column.chips / offer.domain) / offer.domains)
        price = offer.price * (1.0 / offer.chips if offer.by_chip else 1.0) * number * (column.duration or 0.0) / 3600
        chips[offer.system] += number * (1 if offer.by_chip else offer.chips)
        cost, cash = cost + price, cash + price
    limits = case.problem.limits
    if limits.budget is not None and cash > limits.budget * (1 + 1e-12):
        return inf
    if limits.chips is not None and sum(chips.values()) > limits.chips:
        return inf
    for supply in case.problem.hardware.supply:
        size = next(o.chips for o in case.offers if o.system == supply.system)
        if chips[supply.system] / size > (supply.at_most or 0):
            return inf
    return cost


def _fixed_power(case: Case, stands: list[Stand], counts: tuple[int, ...], run: tuple[Column, Offer] | None) -> float:
    """Return watts of hosts, idle chips and the run; what replicas draw on top depends on their operating points."""
    watts = 0.0
    for offer, number in _systems(case, stands, counts, run).items():
        whole = number / offer.chips if offer.by_chip else number
        watts += whole * (offer.host_power + offer.chips * offer.chip_idle)
    if run:
        column, offer = run
        watts += column.power_loaded - column.chips * offer.chip_idle
        if offer.kind == "rent":
            whole = (
                column.chips / offer.chips if offer.by_chip else ceil(ceil(column.chips / offer.domain) / offer.domains)
            )
            watts += whole * (offer.host_power + offer.chips * offer.chip_idle)
    return watts


def carries(case: Case, stands: list[Stand], counts: tuple[int, ...], run: tuple[Column, Offer] | None) -> bool:
    """Tell whether the replicas can carry all demand within links and power: a small LP over paths, solved by itself."""
    paths = _paths(case, stands, counts)
    points = [(n, p) for n, s in enumerate(stands) if counts[n] for p in range(len(s.column.points))]
    width = len(paths) + len(points)
    rows: list[tuple[np.ndarray, float, float]] = []
    for b, share in enumerate(case.pool.shares):
        if share > 0.0:
            rows.append(
                (
                    np.array([float(path[0] == b) for path in paths] + [0.0] * len(points)),
                    case.demand * share,
                    case.demand * share,
                )
            )
    for k, (n, p) in enumerate(points):
        row = np.zeros(width)
        for j, (b, places) in enumerate(paths):
            row[j] = sum(1.0 / stands[n].column.points[p].rate[b] for place in places if place == (n, p))
        row[len(paths) + k] = -1.0
        rows.append((row, -inf, 0.0))
    for n, number in enumerate(counts):
        if number:
            rows.append((np.array([0.0] * len(paths) + [float(m == n) for m, _ in points]), number, number))
    if case.problem.limits.power is not None:
        extra = [
            stands[n].column.points[p].power_loaded - stands[n].column.chips * stands[n].offer.chip_idle
            for n, p in points
        ]
        rows.append(
            (
                np.array([0.0] * len(paths) + extra),
                -inf,
                case.problem.limits.power - _fixed_power(case, stands, counts, run),
            )
        )
    for link in case.links:
        row = np.array([_bytes_over(link, stands, path) for path in paths] + [0.0] * len(points))
        rows.append((row, -inf, link.capacity))
    return _feasible(rows, width)


Path = tuple[int, tuple[tuple[int, int], ...]]


def _paths(case: Case, stands: list[Stand], counts: tuple[int, ...]) -> list[Path]:
    """Return (class, places) of every way that a request can take through replicas that are there."""
    there = [(n, p) for n, s in enumerate(stands) if counts[n] for p in range(len(s.column.points))]
    paths: list[Path] = []
    for b, share in enumerate(case.pool.shares):
        if share <= 0.0:
            continue
        for route in case.pool.routes:
            options = [[(n, p) for n, p in there if stands[n].column.role == role] for role in route]
            for places in product(*options):
                if len(places) == 1 or _match(case, *(stands[n].column for n, _ in places)):
                    paths.append((b, places))
    return paths


def _match(case: Case, source: Column, target: Column) -> bool:
    one, other = source.ends["kv"], target.ends["kv"]
    return one.match == other.match and one.budget + other.budget <= (case.pool.couplings[0].budget or inf) + 1e-9


def _bytes_over(link: Link, stands: list[Stand], path: Path) -> float:
    """Return bytes a request of a path puts on a link: out of the source's system, into the target's."""
    b, places = path
    if len(places) == 1:
        return 0.0
    source, target = (stands[n].column for n, _ in places)
    size = source.ends["kv"].per_unit[b]
    return size * ((link.source == f"site/{source.system}") + (link.target == f"site/{target.system}"))


def _feasible(rows: list[tuple[np.ndarray, float, float]], width: int) -> bool:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    if width:
        solver.addVars(width, np.zeros(width), np.full(width, inf))
    elif any(low > 0.0 for _, low, _ in rows):
        return False
    for row, low, high in rows:
        at = np.flatnonzero(row).astype(np.int32)
        if not len(at):
            if low > 0.0 or high < 0.0:
                return False
            continue
        solver.addRow(low, high, len(at), at, row[at])
    solver.run()
    return solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
