"""The data stage against hand calculations: bytes and work of every operator, sizes at a pace, what binds, and what must not help."""

from functools import cache

import pytest

from tokenmill import api
from tokenmill.catalog import load_catalog
from tokenmill.errors import ProblemError
from tokenmill.reading import load_problem
from tokenmill_models.checks import dimension_failures, route_failures
from tokenmill_models.compile import constants
from tokenmill_models.data_leaves import DEFAULT, operators_of
from tokenmill_models.data_pools import cpu_role, storage_role
from tokenmill_models.symbols import quantity

CATALOG = load_catalog()
CORES = 96  # of a socket of cpu-epyc-9654
PRICE = 2.0  # USD an hour of a socket
STORE = 0.05  # USD an hour of a terabyte


@cache
def solved(
    more="",
    pools="",
    operators='[ { do = "filter" }, { do = "tokenise" }, { do = "write" } ]',
    store="lustre-1000",
    head="",
):
    return api.solve(
        load_problem(f"""
{head}
[hardware]
systems = ["cpu-epyc-9654", "{store}"]
[[hardware.price]]
system = "cpu-epyc-9654"
market = "on-demand"
per_chip_hour = "${PRICE}/h"
[[hardware.price]]
system = "{store}"
market = "on-demand"
per_system_hour = "${STORE}/h"
[[workload]]
name = "text"
stage = "data"
input = "100 TB"
documents = 20e9
startup = "0 s"
core_use = 1.0
operators = {operators}
{more}
{pools}
""")
    )


def rate(id):
    return CATALOG.cpus[id].figure.value


HELD = "[workload.cpu]\nchips = {}\n[workload.storage]\nchips = {}"


def test_requests_by_hand():
    plan = solved(pools=HELD.format(100, 500), store="object-store")
    found = next(pool for pool in plan.workloads["text"].pools if pool.name == "storage").predicted["request_cost"]
    # objects of 1 GB; list prices of the class: $0.0004 a thousand reads, $0.005 a thousand writes
    tokens = 100e12 * 4.0 / 4.2
    reads, writes = (2 * 100e12 + tokens) / 1e9, (100e12 + 2 * tokens) / 1e9
    assert found == pytest.approx(reads * 0.0004 / 1000 + writes * 0.005 / 1000)


def test_bytes_work_and_time_by_hand():
    found = solved(pools=HELD.format(100, 500)).workloads["text"].totals
    # the filter keeps all, tokens of 4 bytes take 4/4.2 of their text, and the last step copies them
    tokens = 100e12 * 4.0 / 4.2
    assert found["bytes_read"] == pytest.approx(2 * 100e12 + tokens)
    assert found["bytes_written"] == pytest.approx(100e12 + 2 * tokens)
    assert found["bytes_kept"] == pytest.approx(2 * 100e12 + 2 * tokens)
    assert found["tokens_out"] == pytest.approx(100e12 / 4.2)
    work = 100e12 / rate("dolma-tagging") + 100e12 / rate("hf-fast-bpe-tokenizer")
    assert found["core_hours"] == pytest.approx(work / 3600)
    assert found["time"]["cpu"] == pytest.approx(work / (100 * CORES))
    store = CATALOG.store("lustre-1000")
    whole = min(store.total, 500 * store.unit_rate)
    nodes = found["bytes_read"] / store.read + found["bytes_written"] / store.write
    link = (found["bytes_read"] + found["bytes_written"]) / (100 * CATALOG.system("cpu-epyc-9654").scale_out)
    slowest = max((found["bytes_read"] + found["bytes_written"]) / whole, nodes / 50, link)
    assert found["time"]["storage"] == pytest.approx(slowest)
    assert found["wall_time"] == pytest.approx(max(work / (100 * CORES), slowest))


def test_a_pool_is_as_small_as_the_deadline_allows():
    """Dear cores, a free store: the fewest sockets that end in ten days, by the work divided."""
    plan = solved(more='deadline = "10 days"', head='objective = { minimise = "chips" }')
    work = 100e12 / rate("dolma-tagging") + 100e12 / rate("hf-fast-bpe-tokenizer")
    sockets = -(-work // (10 * 86400 * CORES))
    pools = {pool.role: pool for pool in plan.workloads["text"].pools}
    assert pools["cpu"].chips == sockets
    # the store holds the corpus and three copies in units of a terabyte of which 80% can be used
    assert pools["storage"].chips == -(-(200e12 + 200e12 * 4 / 4.2) // 0.8e12)


def test_more_cores_do_not_help_where_the_store_binds():
    """The store gives 100 GB/s at most: 491 TB take 1.4 hours, however many cores there are."""
    few, some, many = (solved(pools=HELD.format(n, 500), store="parallel-fs").workloads["text"] for n in (60, 400, 800))
    assert few.bottleneck.resource == "cpu"
    assert some.bottleneck.resource == many.bottleneck.resource == "storage_throughput"
    assert many.totals["wall_time"] == pytest.approx(some.totals["wall_time"]) == some.totals["time"]["storage"]
    assert few.totals["wall_time"] > some.totals["wall_time"]
    assert some.totals["time_if_doubled"]["cpu"] == pytest.approx(some.totals["wall_time"])
    assert few.totals["time_if_doubled"]["cpu"] < few.totals["wall_time"]


def test_a_faster_store_moves_the_bottleneck_to_the_cores():
    slow = solved(pools=HELD.format(400, 500), store="parallel-fs").workloads["text"].bottleneck
    fast = solved(pools=HELD.format(400, 2000), store="lustre-1000").workloads["text"].bottleneck
    assert (slow.resource, fast.resource) == ("storage_throughput", "cpu")


def test_small_objects_are_held_back_by_requests():
    """Pages of 5 kB one by one: 5,500 reads a second of a prefix are 27 MB/s."""
    small = solved(
        more='object_bytes = "5 kB"\nprefixes = 1000', pools=HELD.format(400, 500), store="object-store"
    ).workloads["text"]
    moved = small.totals["bytes_read"] + small.totals["bytes_written"]
    assert small.totals["wall_time"] == pytest.approx(moved / 5e3 / (5500 * 1000))
    assert small.bottleneck.resource == "storage_throughput"


def test_streaming_saves_copies():
    base, streamed = (
        solved(more=more, pools=HELD.format(100, 500)).workloads["text"].totals for more in ("", "streaming = true")
    )
    assert base["bytes_written"] - streamed["bytes_written"] == pytest.approx(
        100e12
    )  # the filter hands on to the tokeniser
    assert base["bytes_read"] - streamed["bytes_read"] == pytest.approx(100e12)


def test_duplicates_are_sorted_on_the_store_or_in_memory():
    operators = '[ { do = "deduplicate", bands = 14, rows = 8 }, { do = "write" } ]'
    buckets = 20e9 * (14 * 8 * 8 + 14 * 16)
    spilled, held = (
        solved(
            operators=operators,
            more=f'shuffle = "{where}"\ndeadline = "30 days"',
            head='objective = { minimise = "chips" }',
        )
        for where in ("store", "memory")
    )
    assert spilled.workloads["text"].totals["bytes_read"] == pytest.approx(200e12 + buckets)
    assert held.workloads["text"].totals["bytes_read"] == pytest.approx(200e12)
    cpu = next(pool for pool in held.workloads["text"].pools if pool.role == "cpu")
    assert cpu.chips == max(-(-buckets // (768 * 2**30)), -(-(100e12 / 0.868e6) // (30 * 86400 * CORES)))
    found = spilled.workloads["text"].totals["duplicates_found"]
    assert found == pytest.approx(1 - (1 - 0.75**8) ** 14)


def test_fewer_hashes_cost_no_more():
    costs = [
        solved(operators=f'[ {{ do = "deduplicate", bands = {bands}, rows = 8 }}, {{ do = "write" }} ]', more='deadline = "30 days"').cost.total
        for bands in (7, 14, 28)
    ]  # fmt: skip
    assert costs == sorted(costs)


def test_tokens_asked_for_must_come_out():
    plan = solved(more='tokens = 30e12\ndeadline = "30 days"')
    assert plan.status == "infeasible"
    assert any("keep" in str(reason.cure) for reason in plan.infeasible)


def test_epochs_of_domains():
    domains = (
        'domains = [ { name = "web", share = 0.9, weight = 0.5 }, { name = "code", share = 0.1, weight = 0.5 } ]\n'
    )
    found = solved(more=domains + "mixture_tokens = 5e12", pools=HELD.format(100, 500)).workloads["text"].totals
    left = 100e12 / 4.2
    assert found["epochs"]["code"] == pytest.approx(0.5 * 5e12 / (0.1 * left))
    assert found["tokens"]["web"] == pytest.approx(0.9 * left)
    # the same mixture of four times the tokens passes over the code eight times: more than four is refused
    plan = solved(more=domains + "mixture_tokens = 20e12\nmax_epochs = 4", pools=HELD.format(100, 500))
    assert plan.status == "infeasible"


def test_an_operator_that_needs_a_model_says_so():
    with pytest.raises(ProblemError, match=r"operators\[0\]\.model"):
        solved(operators='[ { do = "synthesise" }, { do = "write" } ]')


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("held", [0.0, 12.0])
def test_every_definition_has_its_dimension_and_two_routes_agree(in_memory, held):
    operators = operators_of({"operators": DEFAULT})
    for role in (cpu_role(operators, in_memory), storage_role(operators, in_memory)):
        _, leaves = role.graph.needs(role.graph.formulas)
        values = constants(leaves)
        for leaf in leaves:
            origin = quantity(leaf).origin or ""
            if leaf.name not in values:
                values[leaf.name] = {"input.layout.chips": held, "input.streaming": 1.0}.get(
                    origin, 0.7 if "keep" in origin else 40.0
                )
        assert dimension_failures(role.graph, values) == []
        assert route_failures(role.graph, values) == []
