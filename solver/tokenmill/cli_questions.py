"""`fits` and `size`: questions in one line; each writes the problem file that it solves."""

from __future__ import annotations

import json as texts
from pathlib import Path
from typing import Annotated, Any

import typer

from tokenmill import cli_output as out

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Write = Annotated[Path | None, typer.Option("--write", metavar="FILE", help="Where the problem file goes.")]

FITS = """\
title = {title}
objective = [{{ minimise = "chips" }}, {{ minimise = "cost" }}]

[hardware]
systems = [{system}]
[[hardware.owned]]
system = {system}
count = 1

[[workload]]
name = "fits"
stage = "serving"
model = {model}
[workload.demand]
requests_per_second = 0.001     # so few that only memory decides
input_tokens = {input_tokens}
output_tokens = {output_tokens}
[workload.engine]
disaggregated = false
context_limit = {context}
[workload.layout]
chips = {chips}
"""

SIZE = """\
title = {title}
objective = {{ minimise = "cost" }}

[[workload]]
name = "size"
stage = "serving"
model = {model}
[workload.demand]
requests_per_second = {rps!r}
input_tokens = {input_tokens}
output_tokens = {output_tokens}
[workload.slo]
ttft = {{ p95 = {ttft} }}
tpot = {{ p95 = {tpot} }}
"""


def fits(
    model: Annotated[str, typer.Argument(help="A model of the catalogue, or a path to a config.json.")],
    system: Annotated[str, typer.Argument(help="A system, or a chip.")],
    context: Annotated[int, typer.Option(min=2, help="Longest sequence [tokens].")] = 8192,
    write: Write = None,
    json: Json = False,
) -> int:
    """Say whether a model fits on one system at a context, how it is laid out and how it would run."""
    from tokenmill.catalog import load_catalog

    most = load_catalog().system(system).chips
    sizes = sorted({most, *(2**n for n in range(most.bit_length()))})
    path = write or Path(f"fits-{_file_name(model)}-{_file_name(system)}.toml")

    def on(chips: list[int]) -> Any:
        text = FITS.format(
            chips=chips,
            title=_quoted(f"Does {model} fit on {system}?"),
            model=_quoted(model),
            system=_quoted(system),
            context=context,
            input_tokens=context - context // 8,
            output_tokens=context // 8,
        )
        return _solved(text, path)

    # the fewest chips that hold it; where none do, one problem with all numbers says why
    tried = (on([chips]) for chips in sizes)
    plan = next((plan for plan in tried if plan.status != "infeasible"), None) or on(sizes)
    return _print(plan, path, json, _verdict(plan, model, system))


def size(
    model: Annotated[str, typer.Option(help="A model of the catalogue, or a path to a config.json.")],
    rps: Annotated[float, typer.Option(min=0.0, help="Requests a second.")],
    ttft: Annotated[str, typer.Option(help='Time to first token, 95th percentile: "1 s".')],
    tpot: Annotated[str, typer.Option(help='Time per output token, 95th percentile: "50 ms".')],
    input_tokens: Annotated[int, typer.Option(min=1, help="Prompt tokens of a request.")] = 1000,
    output_tokens: Annotated[int, typer.Option(min=1, help="Answer tokens of a request.")] = 250,
    write: Write = None,
    json: Json = False,
) -> int:
    """Find the cheapest hardware that serves a model at a rate within limits."""
    text = SIZE.format(
        title=_quoted(f"{model} at {rps:g} requests a second"),
        model=_quoted(model),
        rps=rps,
        ttft=_quoted(ttft),
        tpot=_quoted(tpot),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )
    path = write or Path(f"size-{_file_name(model)}.toml")
    return _print(_solved(text, path), path, json)


def simulate(
    plan: Annotated[Path, typer.Argument(help="A plan written by solve --json.")],
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Requests to replay (absent: drawn from the plan's demand).")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second in place of the trace's own.")] = None,
    router: Annotated[str, typer.Option(help="least-loaded, round-robin or one-queue.")] = "least-loaded",
    prefix: Annotated[bool, typer.Option("--prefix", help="Replay the prefix blocks of the trace.")] = False,
    slots: Annotated[int | None, typer.Option(min=1, help="Most running sequences of a replica.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=0, help="Requests kept in flight in place of arrival times; 0 for none.")
    ] = None,
    workload: Annotated[str | None, typer.Option(help="The workload, where the plan has several.")] = None,
    requests: Annotated[int, typer.Option(min=1, help="Requests to draw where there is no trace.")] = 20000,
    json: Json = False,
) -> int:
    """Replay requests against a plan: latency percentiles, limits, queue, KV use and cost."""
    from tokenmill.imports.traces import read_trace
    from tokenmill.plan import load_plan
    from tokenmill.simulate import Options, workload_named
    from tokenmill.simulate import simulate as replay
    from tokenmill.simulate_load import asked_concurrency, generated

    loaded = load_plan(plan)
    name = workload_named(loaded, workload)
    if concurrency is None:
        concurrency = asked_concurrency(loaded, name) if trace is None else 0
    options = Options(rate, router, prefix, slots, 0.0, concurrency, name)
    load = read_trace(trace) if trace is not None else generated(loaded, name, requests, rate=rate)
    report = replay(loaded, load, options=options)
    if json:
        out.write_json(report.to_dict())
    else:
        from tokenmill.simulate_text import text

        typer.echo(text(report), nl=False)
    return 0


def _verdict(plan: Any, model: str, system: str) -> str:
    """Return whether a model fits, and on what, in one line."""
    from tokenmill.report.text_words import quantity

    pools = next(iter(plan.workloads.values())).pools if plan.workloads else ()
    if plan.status == "infeasible":
        return f"{model} does not fit on {system}."
    if not pools:
        return f"Whether {model} fits on {system} was not found out."
    room = quantity(pools[0].predicted["memory"]["capacity"], "B")
    chips = "one chip" if pools[0].chips == 1 else f"{pools[0].chips:g} of its chips"
    return f"{model} fits on {system}: the least is {chips} of {room}."


def _solved(text: str, path: Path) -> Any:
    """Write a problem file and solve it."""
    from tokenmill import api
    from tokenmill.plan_json import write_text
    from tokenmill.reading import load_problem

    write_text(text, path)
    return api.solve(load_problem(path))


def _print(plan: Any, path: Path, json: bool, verdict: str = "") -> int:
    """Print a plan; a verdict stands in place of what to get and what it costs."""
    if json:
        out.write_json(plan.to_dict())
    else:
        from tokenmill.report.text import print_plan

        if verdict:
            typer.echo(verdict)
        print_plan(plan, bought=not verdict)
        typer.echo(f"\nThe problem is in {path}; change it and run: tokenmill solve {path}")
    return out.exit_code(plan.status)


def _quoted(text: str) -> str:
    """Return a TOML basic string; JSON writes the same."""
    return texts.dumps(text, ensure_ascii=False)


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in ".-_" else "-" for letter in Path(name).name)
