"""Images of requests in a replay: their tokens lengthen prompts, their encoding the steps that carry them."""

import numpy as np
import pytest

from tokenmill.api import solve
from tokenmill.imports.traces import Trace
from tokenmill.reading import load_problem
from tokenmill.simulate import simulate
from tokenmill.simulate_serving import _leaves

TEXT = """
objective = {{ minimise = "cost" }}
[hardware]
systems = ["hgx-h100"]
[[hardware.price]]
system = "hgx-h100"
market = "on-demand"
per_chip_hour = "$2/h"
[[workload]]
name = "chat"
stage = "serving"
model = "gemma-3-4b-it"
[workload.demand]
requests_per_second = 2
input_tokens = 600
output_tokens = 20
images_per_request = {images}
[workload.engine]
disaggregated = {split}
chunk = 2048
batch = 8
[workload.layout]
tp = 1
pp = 1
"""
IMAGE = 256
"""Prompt tokens that an image becomes for Gemma 3 (its configuration's mm_tokens_per_image)."""


def plan_of(images, split="false"):
    return solve(load_problem(TEXT.format(images=images, split=split)))


def alone(prompt, count=6):
    """Requests so far apart that each is served by itself."""
    return Trace("made", "plain", np.arange(count) * 60.0, np.full(count, float(prompt)), np.full(count, 20.0))


@pytest.fixture(scope="module")
def plans():
    return {images: plan_of(images) for images in (0, 0.5, 2)}


@pytest.mark.parametrize("split", ["false", pytest.param("true", marks=pytest.mark.slow)])
def test_a_prompt_with_two_images_is_a_longer_text_and_two_encodings(plans, split):
    text, seen = (plans[0], plans[2]) if split == "false" else (plan_of(0, split), plan_of(2, split))
    pool = next(pool for pool in seen.workloads["chat"].pools if pool.role != "decode")
    encoding = _leaves(seen, "chat", pool)["T_image"]
    assert encoding > 0
    with_images = simulate(seen, alone(600))
    of_text = simulate(text, alone(600 + 2 * IMAGE))
    assert with_images.ttft["mean"] == pytest.approx(of_text.ttft["mean"] + 2 * encoding, rel=1e-3)
    assert with_images.tpot["mean"] == pytest.approx(of_text.tpot["mean"], rel=1e-3)


def test_a_mean_below_one_image_is_spread_over_the_requests(plans):
    # every second request brings one
    found = simulate(plans[0.5], alone(600, count=8))
    first = found.requests["first"] - found.requests["arrival"]
    without, carrying = first[::2], first[1::2]
    assert carrying.min() > without.max()
    assert np.ptp(without) == pytest.approx(0, abs=1e-9)
    assert np.ptp(carrying) == pytest.approx(0, abs=1e-9)
