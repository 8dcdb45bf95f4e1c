"""Bytes over links: transfers, rings, tori, and how wide a layer can be cut before its exchange binds."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.closed import DEFINITION, form, given
from tokenmill_models.roofline import FLOP_PER_MAC, F
from tokenmill_models.symbols import declare

THAKUR = "Thakur, Rabenseifner and Gropp 2005, Optimization of Collective Communication Operations in MPICH"
RING = "Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms, J. Parallel Distrib. Comput. 69(2)"
SCALING = "Austin et al. 2025, How to Scale Your Model, chapters on sharded matrices and training"

volume = given("exchange_bytes", "B", "bytes of the whole buffer", "V")
beta = given("link_bandwidth", "B/s", "bandwidth of a device into the ring or link, one direction", r"\beta")
alpha = given("link_latency", "s", "latency of a step or hop", r"\alpha", "nonnegative")
n = given("ring_devices", "1", "devices of the ring", "n")
ports = given("link_ports", "1", "links used at once")
hops = given("link_hops", "1", "hops from source to target", sign="nonnegative")
side = given("torus_side", "1", "devices along an axis of the torus", "k")
dimensions = given("torus_dimensions", "1", "axes of the torus", "j")
element = given("element_width", "B", "bytes of an element", "b")
width = given("layer_width", "1", "inner width of a layer's two products", "f")
axes = given("link_axes", "1", "axes of the torus that an exchange uses at once")
down = given("downlinks", "1", "links of a leaf switch to its devices")
up = given("uplinks", "1", "links of a leaf switch to the spine")
host_link = declare(
    "W_host", "B/s", "bandwidth from a device to host memory, one direction", origin="chip.host_link", sign="positive"
)

TRANSFER = form(
    "network.transfer_time", "Time to move bytes over parallel links and several hops", ("transfer_time", "s"),
    volume / (ports * beta) + hops * alpha, THAKUR,
    ("the bytes are cut evenly over the links", "every hop delays the first byte once; the rest follows in a stream"),
    ("no other traffic on the links", "messages are far longer than a packet"),
)  # fmt: skip
GATHER = form(
    "network.ring_gather", "Time of a ring all-gather or reduce-scatter", ("ring_gather", "s"),
    (n - 1) / n * volume / beta + (n - 1) * alpha, RING,
    ("each of n - 1 steps moves V/n to the neighbour", "in the limit of many devices it is V/beta"),
    ("all links of the ring work at once",), (n >= 2,),
)  # fmt: skip
REDUCE = form(
    "network.ring_all_reduce", "Time of a ring all-reduce", ("ring_all_reduce", "s"),
    2 * (n - 1) / n * volume / beta + 2 * (n - 1) * alpha, RING, ("a reduce-scatter is followed by an all-gather",),
    ("all links of the ring work at once", "adding takes no time"), (n >= 2,),
)  # fmt: skip
TREE = form(
    "network.tree_all_reduce", "Time of a pipelined tree all-reduce", ("tree_all_reduce", "s"),
    2 * volume / beta + 2 * sp.log(n) / sp.log(2) * alpha, THAKUR,
    ("sums pass up log2(n) levels and the result passes down", "long messages stream through the levels"),
    ("a double tree keeps both directions busy",), (n >= 2,),
)  # fmt: skip
TREE_LIMIT = form(
    "network.tree_limit", "Bytes below which a tree all-reduce beats a ring", ("tree_limit", "B"),
    n * alpha * beta * (n - 1 - sp.log(n) / sp.log(2)), THAKUR,
    ("the ring's bytes take 2·V/(n·beta) less than the tree's", "its steps take 2·(n - 1 - log2 n)·alpha more",
     "set both equal and solve for V"), ("one alpha and one beta for both",), (n >= 2,),
)  # fmt: skip
RING_EXCHANGE = form(
    "network.ring_all_to_all", "Time of an all-to-all on a one-way ring", ("ring_all_to_all", "s"),
    (n - 1) / (2 * n) * volume / beta, SCALING, ("a device sends V/n² to each device k = 1 .. n - 1 hops away",
     "the bytes over one link are the sum of k·V/n², (n - 1)/(2·n)·V", "half of an all-gather of the same buffer"),
    ("latency is left out", "V is the buffer over all devices"), (n >= 2,),
)  # fmt: skip
RING_EXCHANGE_BOTH = form(
    "network.ring_all_to_all_both_ways", "Time of an all-to-all on a ring used in both directions",
    ("ring_all_to_all_both", "s"), volume / (8 * beta), SCALING, ("bytes travel the shorter way, n/4 hops on average",
     "n devices send V/n each, so the links carry V·n/4 in all",
     "2·n directed links share them: V/8 each, a quarter of an all-gather used both ways"), ("many devices",
     "beta is that of one direction", "latency is left out"),
)  # fmt: skip
RING_LATENCY = form(
    "network.ring_latency", "Least time of a small message to reach all devices of a ring used both ways",
    ("ring_latency", "s"), sp.ceiling((n - 1) / 2) * alpha, SCALING, ("the farthest device is half of the ring away",
     ), ("bytes are too few to matter",), (n >= 2,),
)  # fmt: skip
LATENCY_BYTES = form(
    "network.latency_bound_bytes", "Bytes of a buffer below which a ring is bound by latency", ("latency_bound_bytes",
     "B"), n * alpha * beta, RING, ("a step moves V/n in V/(n·beta)",
     "it is shorter than alpha where V < n·alpha·beta"), ("one device a step",),
)  # fmt: skip
BISECTION = form(
    "network.torus_bisection", "Bandwidth across the middle of a torus, one direction", ("torus_bisection", "B/s"),
    2 * side ** (dimensions - 1) * beta,
    "Dally and Towles 2004, Principles and Practices of Interconnection Networks, section 5.2",
    ("a cut across one axis passes k^(j-1) lines", "each line is a ring and is cut twice"), ("wrap-around links",
     "an even side"), (side >= 3,),
)  # fmt: skip
DIAMETER = form(
    "network.torus_diameter", "Longest way through a torus in hops", ("torus_diameter", "1"),
    dimensions * sp.floor(side / 2),
    "Dally and Towles 2004, Principles and Practices of Interconnection Networks, section 5.2",
    ("along a ring the farthest device is half of its length away", "the axes add up"), ("wrap-around links",),
)  # fmt: skip
OVERSUBSCRIPTION = form(
    "network.oversubscription", "Share of its bandwidth that a device has beyond its leaf switch when all send",
    ("uplink_share", "1"), sp.Min(1, up / down, evaluate=False),
    "Leiserson 1985, Fat-trees, IEEE Trans. Computers 34(10)", ("all devices of a leaf share its uplinks",),
    ("equal links up and down", "traffic spreads evenly over the uplinks"),
)  # fmt: skip
INTENSITY = form(
    "network.intensity", "Work a byte received at which compute and a link take equal time", ("link_intensity",
     "FLOP/B"), F / (axes * beta), SCALING, ("compute takes C/F, the link V/(axes·beta)", "set both equal"),
    ("the axes carry equal parts",),
)  # fmt: skip
REDUCE_BEATS_GATHER = form(
    "network.reduce_beats_gather",
    "Inner size above which multiplying shards and adding the results beats gathering the operand first",
    ("reduce_inner", "1"), 2 * element * F / (FLOP_PER_MAC * beta), SCALING,
    ("gathering first: every device computes the whole product, 2·B·D·F of work",
     "multiplying shards: an all-reduce of the B by F result, twice its bytes",
     "compute time B·D·F·2/F_peak equals exchange time 2·b·B·F/beta at this D"),
    ("the gather hides behind the product", "the shards' products are short beside the all-reduce"),
)  # fmt: skip
TENSOR_LIMIT = form(
    "network.tensor_limit", "Widest cut of a layer over tensor ranks before exchange exceeds compute",
    ("tensor_limit", "1"), FLOP_PER_MAC * width * axes * beta / (element * F), SCALING,
    ("two products of B by h by f take 2·2·B·h·f/(t·F)",
     "gathering the input and scattering the output move 2·b·B·h over axes·beta",
     "set both equal and solve for t: the batch cancels"), ("exchange overlaps with compute", "latency is left out",
     "beta is that of the link the ranks share"),
)  # fmt: skip
STREAMED = form(
    "network.streamed_batch", "Smallest batch that keeps a device at work while weights stream from the host",
    ("streamed_batch", "1"), F * element / (FLOP_PER_MAC * host_link), SCALING,
    ("a weight of b bytes arrives in b/W_host", "B tokens keep the device busy 2·B/F with it", "set both equal"),
    ("activations stay on the device", "B is far below the sides of the matrices"),
)  # fmt: skip
HOSTS = form(
    "network.hosts", "Hosts of a number of devices", ("hosts", "1"), given("all_devices", "1",
     "devices of the cluster") / given("devices_a_host", "1", "devices that a host holds"), DEFINITION,
    ("every host is filled before the next",), ("all hosts are alike",), rounding="ceil",
)  # fmt: skip
UNITS = form(
    "network.units", "Compute units of a number of devices", ("compute_units", "1"),
    given("all_devices", "1", "devices of the cluster") * given("units_a_device", "1", "compute units of a device"),
    DEFINITION, ("every device has as many",), ("all devices are alike",),
)  # fmt: skip
PEAK = form(
    "network.peak", "Peak dense compute of a number of devices", ("cluster_peak", "FLOP/s"),
    given("all_devices", "1", "devices of the cluster") * F, DEFINITION, ("devices add up",), ("no exchange between them",),
)  # fmt: skip
