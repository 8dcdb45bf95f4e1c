"""A simulation as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tokenmill.units import format_quantity

if TYPE_CHECKING:
    from tokenmill.simulate import SimulationReport

TITLES = (
    ("ttft", "time to first token"),
    ("tpot", "time per output token, mean of a request"),
    ("gap", "time of a single output token"),
    ("e2e", "time of a request"),
)


def text(report: SimulationReport) -> str:
    """Return the report as lines of text."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: SimulationReport) -> Iterator[str]:
    refused = f", {report.refused} refused: longer than the KV room" if report.refused else ""
    yield f"{report.workload}: {report.count} requests of {report.trace} at {report.rate:.4g}/s in {report.seconds:,.0f} s{refused}"
    yield f"output {report.output_tokens_per_second:,.0f} tokens/s"
    for name, title in TITLES:
        if figures := getattr(report, name):
            yield f"  {title}: {_times(figures)}"
    for name, held in report.slo.items():
        word = "holds" if held.holds else "MISSED"
        limit, value = format_quantity(held.limit, "s"), format_quantity(held.value, "s")
        yield f"  limit {name} {limit}: {word} ({value}; {held.within:.1%} of requests within)"
    if report.slo:
        yield f"  requests within every limit: {report.attained:.1%}"
    for name, use in report.pools.items():
        yield (
            f"  {name}: {use.replicas:g} replicas, busy {use.busy:.0%}; queue {use.queue:.1f} (most {use.queue_most} at one"
            f" engine); running {use.running:.1f} a replica; KV {use.kv:.0%} (most {use.kv_most:.0%}); preemptions {use.preemptions}"
            + (f"; prompt tokens found in a cache {use.prefix_hit:.0%}" if use.prefix_hit else "")
        )
    if report.cost:
        yield (
            f"  cost: ${report.cost['per_hour']:,.2f} an hour, ${report.cost['per_million_output']:,.3g} per million output"
            f" tokens, ${report.cost['per_request']:.3g} a request"
        )
    for note in report.notes:
        yield f"  note: {note}"


def _times(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{word} {format_quantity(value, 's')}" for word, value in figures.items())
