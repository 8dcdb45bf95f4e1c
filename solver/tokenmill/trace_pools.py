"""Figures of a pool that its classes have apart, and its shares of time, as nodes of the trace."""

from __future__ import annotations

from collections.abc import Mapping

from tokenmill.plan_pools import predictions
from tokenmill.trace import ClassFigures, Evaluated, Node, row

CLOSE = 1e-9


def pool_nodes(
    pools: Mapping[str, Mapping[str, ClassFigures]],
    weights: Mapping[str, Mapping[int, float]],
    known: Mapping[str, Node],
) -> dict[str, Node]:
    """Return the nodes of figures that a pool mixes from its classes, and of ``time_shares``.

    `pools`: evaluated classes by ``workload.pool``; `weights`: share of busy time by class index; `known`: the nodes
    of the classes, under ``workload.pool.class`` where there are several.
    """
    nodes: dict[str, Node] = {}
    for prefix, classes in pools.items():
        busy = weights.get(prefix, {})
        if len(classes) == 1:
            seconds = {f"share.{name}": value for name, value in next(iter(classes.values())).shares.items()}
        else:
            nodes |= _mixtures(prefix, classes, busy, known)
            seconds = {f"share.{name}": value for name, value in _times(classes, busy).items()}
        nodes |= _shares(prefix, seconds, {**known, **nodes})
    return nodes


def _times(classes: Mapping[str, ClassFigures], busy: Mapping[int, float]) -> dict[str, float]:
    """Return the seconds of each share of time, mixed over classes as the pool mixes them."""
    names = dict.fromkeys(name for one in classes.values() for name in one.shares)
    return {name: _mixed(name, classes, busy, "shares") for name in names}


def _mixed(name: str, classes: Mapping[str, ClassFigures], busy: Mapping[int, float], table: str) -> float:
    """Return a figure as `predictions` mixes it."""
    alone = {
        label: ClassFigures(figures={name: getattr(one, table)[name]} if name in getattr(one, table) else {})
        for label, one in classes.items()
    }
    found = predictions(Evaluated("", "", "", alone), busy)["predicted"]
    for step in name.split("."):
        found = found.get(step, {})
    return float(found) if isinstance(found, int | float) else 0.0


def _mixtures(
    prefix: str, classes: Mapping[str, ClassFigures], busy: Mapping[int, float], known: Mapping[str, Node]
) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for table, head in (("figures", ""), ("shares", "share.")):
        for name in dict.fromkeys(name for one in classes.values() for name in getattr(one, table)):
            parts = {
                (at, label): f"{prefix}.{label}.{head}{name}"
                for at, (label, one) in enumerate(classes.items())
                if name in getattr(one, table) and f"{prefix}.{label}.{head}{name}" in known
            }
            if parts:
                value = _mixed(name, classes, busy, table)
                nodes |= _mixture(f"{prefix}.{head}{name}", name, parts, busy, known, value)
    return nodes


def _mixture(
    key: str,
    name: str,
    parts: Mapping[tuple[int, str], str],
    busy: Mapping[int, float],
    known: Mapping[str, Node],
    value: float,
) -> dict[str, Node]:
    """Return a node that is the greatest or the mean of its classes', and one a class that leads to the class's own."""
    used = {part: at for part, at in parts.items() if busy.get(part[0], 0.0) > 0} or dict(parts)
    first = known[next(iter(used.values()))]
    nodes: dict[str, Node] = {}
    inputs: list[str | Node] = []
    symbols = []
    for (at, label), target in used.items():
        symbol = f"class_{at}"
        symbols.append((symbol, at))
        inputs.append(f"{key}.of.{label}")
        nodes[f"{key}.of.{label}"] = {
            **known[target], "symbol": symbol, "title": f"{first['title']}: {label}",
            "formula": known[target]["symbol"], "inputs": [target], "source": "definition",
        }  # fmt: skip
    values = [nodes[str(item)]["value"] for item in inputs]
    if all(abs(value - one) <= CLOSE * max(abs(value), abs(one)) for one in values):
        formula, inputs = symbols[0][0], inputs[:1]
        nodes = {str(inputs[0]): nodes[str(inputs[0])]}
    elif abs(value - max(values)) <= CLOSE * abs(value):
        formula = f"max({', '.join(symbol for symbol, _ in symbols)})"
    else:
        total = sum(busy.get(at, 0.0) for _, at in symbols)
        shares = [busy.get(at, 0.0) / total if total else 1 / len(symbols) for _, at in symbols]
        formula = " + ".join(f"busy_{at}*{symbol}" for symbol, at in symbols)
        inputs += [
            row(f"busy_{at}", share, "1", "schedule", "the class's share of the pool's busy time")
            for (_, at), share in zip(symbols, shares, strict=True)
        ]
    nodes[key] = {
        "symbol": name.replace(".", "_"), "title": first["title"], "formula": formula, "value": value, "unit": first["unit"],
        "inputs": inputs, "source": "definition",
    }  # fmt: skip
    return nodes


def _shares(prefix: str, seconds: Mapping[str, float], known: Mapping[str, Node]) -> dict[str, Node]:
    """Return ``time_shares.<name>`` as its time over that of all."""
    total = sum(seconds.values())
    parts = {name: f"{prefix}.{name}" for name in seconds if f"{prefix}.{name}" in known}
    if total <= 0 or not parts:
        return {}
    symbols = {name: f"time_{name.partition('.')[2]}" for name in parts}
    whole = " + ".join(symbols.values())
    nodes: dict[str, Node] = {}
    for name, target in parts.items():
        nodes[f"{target}.seconds"] = {
            **known[target], "symbol": symbols[name], "title": f"time of {name.partition('.')[2]}",
            "formula": known[target]["symbol"], "inputs": [target], "source": "definition",
        }  # fmt: skip
    for name in parts:
        short = name.partition(".")[2]
        nodes[f"{prefix}.time_shares.{short}"] = {
            "symbol": short, "title": f"share of the time that goes to {short}", "formula": f"{symbols[name]}/({whole})",
            "value": seconds[name] / total, "unit": "1", "inputs": [f"{at}.seconds" for at in parts.values()],
            "source": "definition",
        }  # fmt: skip
    return nodes
