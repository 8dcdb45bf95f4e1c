"""Threads of hosts against one another, and the launches of a layer that an eager engine's host makes."""

from __future__ import annotations

import csv

import pytest

from tokenmill import data
from tokenmill.catalog import load_catalog
from tokenmill.hosts import REFERENCE, host_pace
from tokenmill.imports.architecture import load_architecture
from tokenmill_models.compile import compile_graph
from tokenmill_models.serving_split import decode_role

HOST_BOUND = {"gpu": ("a100-80gb", "h100-80gb"), "model": "llama2-70b", "tensor_parallel": "8", "batch": "1"}


def test_the_reference_is_one_and_an_unknown_host_is_taken_for_it():
    assert host_pace(f"2x {REFERENCE}").value == 1.0
    found = host_pace("")
    assert (found.value, found.evidence) == (1.0, "guess")


def test_a_step_that_waits_for_its_host_takes_as_much_longer_on_the_older_one():
    """Tokens of Llama 2 70B alone on eight cards take one time on A100 and another on H100, far above what memory needs: the hosts."""
    with (data.path("measured") / "serving" / "splitwise_profiles.csv").open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if all(r[k] == v for k, v in HOST_BOUND.items() if k != "gpu")]
    old, new = (
        sorted(float(r["token_time_ms"]) for r in rows if r["gpu"] == gpu and r["prompt_tokens"] == "512")
        for gpu in HOST_BOUND["gpu"]
    )
    measured = old[len(old) // 2] / new[len(new) // 2]
    system = load_catalog().system("hgx-a100-80gb")
    assert host_pace(system.host_cpu).value == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(("model", "layers"), [("llama-2-70b", 80.0), ("bloom", 70 * 16 / 12)])
def test_biases_on_joined_products_are_launched_apart(model, layers):
    """Llama: 12 launches a layer, no bias. BLOOM: biases on the output and the down product: four more."""
    arch = load_architecture(model)
    graph = decode_role(arch).graph
    symbol = next(s for s in graph.formulas if s.name == "eager_layers")
    compiled = compile_graph(graph, [symbol])
    values = {s.name: 80.0 if model.startswith("llama") else 70.0 for s in compiled.inputs}
    assert compiled(values)["eager_layers"] == pytest.approx(layers)
