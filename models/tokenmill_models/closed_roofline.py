"""Arithmetic intensity of products and of attention, and what follows for batches and precisions."""

from __future__ import annotations

from tokenmill_models.closed import DEFINITION, form, given
from tokenmill_models.formula import maximum
from tokenmill_models.roofline import FLOP_PER_MAC, F, W, eta_F, eta_W
from tokenmill_models.symbols import constant

WILLIAMS = "Williams, Waterman and Patterson 2009, Roofline, CACM 52(4)"
DAO = "Dao et al. 2022, FlashAttention, arXiv:2205.14135, section 3.2"

OPERATION = constant("flop_one", 1.0, "FLOP", "one floating-point operation")
rows = given("product_rows", "1", "rows of the left operand: tokens of a batch", "B")
inner = given("product_inner", "1", "length of the sums of a product", "D")
columns = given("product_columns", "1", "columns of the right operand", "F")
element = given("element_width", "B", "bytes of an element", "b")
weight = given("right_width", "B", "bytes of an element of the right operand", r"b_{right}")
length = given("vector_length", "1", "elements of each vector", "N")
queries = given("attention_tokens", "1", "tokens that attend to one another", "S")
head = given("attention_head", "1", "head size", "d_h")
saved = given("time_share", "1", "share of the time that is made faster")
speedup = given("part_speedup", "1", "how much faster that share becomes")
peak_low = given("F_low", "FLOP/s", "peak dense compute at the lower precision")
width_low = given("width_low", "B", "bytes of a weight at the lower precision")
width_high = given("width_high", "B", "bytes of a weight at the higher precision")
batch = given("batch_rows", "1", "tokens of a batch", "B")

DOT = form(
    "roofline.dot_product_intensity", "Arithmetic intensity of a dot product", ("dot_intensity", "FLOP/B"),
    OPERATION * (2 * length - 1) / (element * (2 * length + 1)), WILLIAMS,
    ("N products and N - 1 sums are computed", "two vectors of N are read and one number is written"),
    ("nothing stays in cache between calls",),
)  # fmt: skip
PRODUCT = form(
    "roofline.product_intensity", "Arithmetic intensity of a matrix product", ("product_intensity", "FLOP/B"),
    FLOP_PER_MAC * rows * inner * columns / (element * (rows * inner + rows * columns) + weight * inner * columns),
    WILLIAMS,
    ("B·D·F multiply-adds are computed", "B by D and D by F are read once and B by F is written once",
     "for B far below D and F it is 2B over the bytes of a weight"),
    ("each operand passes memory once",),
)  # fmt: skip
BATCHED = form(
    "roofline.batched_product_intensity", "Arithmetic intensity of a product with one matrix per batch element",
    ("batched_intensity", "FLOP/B"),
    FLOP_PER_MAC * inner * columns / (element * (inner + columns) + weight * inner * columns), WILLIAMS,
    ("every batch element reads a matrix of its own, so the batch cancels",
     "its limit for large D and F is 2 over the bytes of a weight"), ("each operand passes memory once",),
)  # fmt: skip
ATTENTION_WRITTEN = form(
    "roofline.attention_intensity_written", "Arithmetic intensity of attention that writes its scores to memory",
    ("attention_intensity_written", "FLOP/B"),
    (2 * FLOP_PER_MAC * queries**2 * head + 3 * OPERATION * queries**2) / (element * (4 * queries**2 + 4 * queries * head)),
    DAO, ("scores and weighted values take 2·S²·d multiply-adds, the softmax about 3 operations a score",
     "queries, keys, values and output of S by d pass memory once",
     "the S² scores are written, read, written and read again"), ("every query sees every key", "one head"),
)  # fmt: skip
ATTENTION_TILED = form(
    "roofline.attention_intensity_tiled", "Arithmetic intensity of attention that keeps its scores on chip",
    ("attention_intensity_tiled", "FLOP/B"), 2 * FLOP_PER_MAC * queries**2 * head / (4 * element * queries * head),
    DAO, ("the work is as with written scores",
     "of memory traffic queries, keys, values and output are left: 4·S·d elements"),
    ("tiles of keys and values are read once for all queries", "every query sees every key"),
)  # fmt: skip
PRODUCT_BATCH = form(
    "roofline.product_batch", "Batch at which a product of finite matrices reaches the ridge", ("product_batch", "1"),
    F * weight * inner * columns / (FLOP_PER_MAC * inner * columns * W - F * element * (inner + columns)), WILLIAMS,
    ("set the product's intensity equal to F/W", "solve for B", "for large D and F it is F·b/(2·W)"),
    ("each operand passes memory once", "peaks of the data sheet"),
    (FLOP_PER_MAC * inner * columns * W > F * element * (inner + columns),),
)  # fmt: skip
AMDAHL = form(
    "roofline.part_speedup", "Gain in speed where only a share of the time is made faster", ("whole_speedup", "1"),
    1 / (1 - saved + saved / speedup), "Amdahl 1967, AFIPS Spring Joint Computer Conference",
    ("the rest takes 1 - f of the time as before", "the share f takes f/k"), ("the parts do not overlap",),
    (saved <= 1,),
)  # fmt: skip
PRECISION_GAIN = form(
    "roofline.precision_gain", "Gain in speed of a layer by a lower precision at a batch", ("precision_gain", "1"),
    maximum(FLOP_PER_MAC * batch / F, width_high / W) / maximum(FLOP_PER_MAC * batch / peak_low, width_low / W),
    WILLIAMS, ("a weight costs the larger of 2·B/F of compute and b/W of memory time",
     "divide the cost at the higher by that at the lower precision",
     "small batches gain by the bytes, large ones by the peak"), ("activations are small beside the weights",
     "accuracy is judged elsewhere"),
)  # fmt: skip
PRECISION_PRICE = form(
    "roofline.weight_seconds", "Time that a weight costs a step: the larger of its products and its read",
    ("weight_seconds", "s"), maximum(FLOP_PER_MAC * batch / (F * eta_F), weight / (W * eta_W)), WILLIAMS,
    ("each of B tokens is multiplied with the weight", "the weight is read once",
     "times the price of the chip it is the cost of a precision: the cheapest is the one of least time"),
    ("compute and memory traffic overlap fully",),
)  # fmt: skip
WORK = form(
    "roofline.product_flops", "Work of a matrix product", ("product_flops", "FLOP"),
    FLOP_PER_MAC * rows * inner * columns, DEFINITION, ("each of B·F sums has D multiply-adds",), ("dense operands",
     ),
)  # fmt: skip
