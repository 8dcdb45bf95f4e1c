"""Bytes on devices: what fits, on how many, at which precision, and where it streams from."""

from __future__ import annotations

import sympy as sp

from tokenmill_models.closed import DEFINITION, form, given
from tokenmill_models.formula import maximum
from tokenmill_models.roofline import M, W, eta_W
from tokenmill_models.symbols import constant, declare

LAYOUT = "Xu et al. 2021, GSPMD, arXiv:2105.04663, section 3"
MICROSCALING = "Rouhani et al. 2023, Microscaling Data Formats for Deep Learning, arXiv:2310.10537, section 3"
AWARE = "Sheng et al. 2023, FlexGen, arXiv:2303.06865, section 4"

BYTE_OF_BIT = constant("byte_of_bit", 0.125, "B", "bytes of a bit")
needed = given("bytes_needed", "B", "bytes that must be held")
devices = given("holding_devices", "1", "devices that hold them", "n")
share = given("usable_share", "1", "share of memory that may be taken", "u")
parameters = given("parameters_held", "1", "parameters that are held", "N")
weight = given("weight_width", "B", "bytes a weight", "b_w")
array = given("array_bytes", "B", "bytes of one copy of an array")
shards = given("array_shards", "1", "parts that the array is cut into")
value_bits = given("value_bits", "1", "bits of a value")
scale_bits = given("scale_bits", "1", "bits of a scale", sign="nonnegative")
zero_bits = given("zero_bits", "1", "bits of a zero point", sign="nonnegative")
group = given("scale_group", "1", "values that share a scale and a zero point", "g")
outer_bits = given("outer_scale_bits", "1", "bits of a scale of scales", sign="nonnegative")
outer = given("outer_group", "1", "scales that share a scale of scales")
resident = given("resident_share", "1", "share of the weights that stays in device memory", "r", "nonnegative")
read = given("weight_bytes", "B", "bytes of the weights read for a token", "B_w")
other = given("bytes_other", "B", "bytes held besides weights: cache, activations, reserve", sign="nonnegative")
host_link = declare(
    "W_host", "B/s", "bandwidth from a device to host memory, one direction", origin="chip.host_link", sign="positive"
)

TOTAL = form(
    "memory.total", "Memory of a number of devices", ("memory_total", "B"), devices * M, DEFINITION,
    ("devices add up",), ("all devices are alike",),
)  # fmt: skip
ROOM = form(
    "memory.room", "Memory left beside the weights", ("room_left", "B"), devices * share * M - parameters * weight,
    DEFINITION, ("usable memory of all devices, less the weights cut over them",), ("weights are cut evenly",),
    (devices * share * M > parameters * weight,), sign="real",
)  # fmt: skip
WEIGHTS = form(
    "memory.weights", "Bytes of a model's weights", ("memory_weights_form", "B"), parameters * weight, DEFINITION,
    ("every parameter takes the same bytes",), ("scales are counted in the bytes of a weight",),
)  # fmt: skip
MIN_DEVICES = form(
    "memory.min_devices", "Fewest devices whose memory holds some bytes", ("min_devices", "1"), needed / (share * M),
    DEFINITION, ("divide the bytes by what one device may take", "round up"), ("bytes can be cut at any place",),
    rounding="ceil",
)  # fmt: skip
MIN_POWER = form(
    "memory.min_devices_power_of_two", "Fewest devices, a power of two, whose memory holds some bytes",
    ("min_devices_power", "1"), 2 ** sp.ceiling(sp.log(needed / (share * M)) / sp.log(2)), DEFINITION,
    ("the fewest devices are bytes over memory", "the next power of two is 2 to the log2 of it rounded up"),
    ("slices come in powers of two",), (needed >= share * M,),
)  # fmt: skip
LARGEST_MODEL = form(
    "memory.largest_model", "Most parameters that fit on a number of devices", ("largest_model", "1"),
    (devices * share * M - other) / weight, DEFINITION, ("what other bytes leave, over the bytes of a weight",),
    ("weights are cut evenly",), (devices * share * M > other,), rounding="floor",
)  # fmt: skip
SHARDED = form(
    "memory.sharded_total", "Bytes that an array takes over all devices when it is cut and replicated",
    ("sharded_total", "B"), array * devices / shards, LAYOUT, ("a device holds one part, the array over its shards",
     "parts that more than one device holds count for each"), ("parts are equal",), (shards <= devices,),
)  # fmt: skip
PER_DEVICE = form(
    "memory.per_device", "Bytes of each device when some bytes are cut evenly", ("bytes_per_device", "B"),
    needed / devices, LAYOUT, ("equal parts",), ("nothing is replicated",),
)  # fmt: skip
QUANTISED = form(
    "memory.quantised_width", "Bytes a weight with its scales and zero points", ("quantised_width", "B"),
    (value_bits + (scale_bits + zero_bits) / group) * BYTE_OF_BIT, MICROSCALING,
    ("each group of g values keeps one scale and one zero point", "spread them over the group"),
    ("all groups are full",),
)  # fmt: skip
DOUBLE_QUANTISED = form(
    "memory.double_quantised_width", "Bytes a weight whose scales are quantised too", ("double_quantised_width", "B"),
    (value_bits + scale_bits / group + outer_bits / (group * outer)) * BYTE_OF_BIT,
    "Dettmers et al. 2023, QLoRA, arXiv:2305.14314, section 3", ("each group of g values keeps a scale of few bits",
     "each group of those keeps one of more bits", "64 values, 8 bits, 256 scales, 32 bits: 0.127 bits more"),
    ("all groups are full",),
)  # fmt: skip
STREAMED_STEP = form(
    "memory.streamed_step", "Time to read the weights of a step where some stream from the host", ("streamed_step",
     "s"), maximum(resident * read / (W * eta_W), (1 - resident) * read / host_link), AWARE,
    ("the resident share is read from device memory", "the rest crosses the host link at the same time",
     "the slower of the two counts"), ("layers are prefetched", "host memory is faster than the link"),
    (resident <= 1,),
)  # fmt: skip
RESIDENT_SHARE = form(
    "memory.resident_share", "Share of the weights that must stay in device memory for streaming to cost no time",
    ("resident_least", "1"), W * eta_W / (W * eta_W + host_link), AWARE,
    ("set the time of the resident share equal to that of the streamed share", "r/W = (1 - r)/W_host", "solve for r"),
    ("layers are prefetched",),
)  # fmt: skip
