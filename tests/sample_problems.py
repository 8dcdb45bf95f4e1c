"""Problem files that several tests solve, small enough for a second or two."""

TRAIN = """
objective = { minimise = "cost_per_run" }
[hardware]
systems = ["hgx-h100"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2.00/h"
[[workload]]
name = "train"
stage = "pretraining"
model = "llama-3.1-8b"
tokens = 1e12
sequence_length = 8192
global_batch = 512
optimizer = "adam"
[workload.layout]
chips = 64
tp = 2
pp = 2
micro_batch = 1
zero = 1
"""
"""An 8B model trained on 64 chips at $2 a chip-hour, part of its layout held."""
