"""`calibrate` and `validate`: thin callers of the fits of constants and of their checks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tokenmill import cli_output as out
from tokenmill.errors import Mistake, ProblemError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Files = Annotated[list[str] | None, typer.Option("--file", metavar="NAME", help="Only this file of measurements.")]


def validate(files: Files = None, json: Json = False) -> int:
    """Compare predictions with the shipped measurements, beside a constant utilisation a chip."""
    from tokenmill.validate import EVALUATORS, to_rows
    from tokenmill.validate import validate as scores

    unknown = [name for name in files or () if name not in EVALUATORS]
    if unknown:
        raise ProblemError([Mistake("--file", repr(name), ", ".join(EVALUATORS)) for name in unknown])
    rows = to_rows(scores(files))
    if json:
        out.write_json({"schema": 1, "rows": rows})
    else:
        _print(rows)
    return 0


HEADS = {
    "median_error": "median", "p90_error": "p90", "worst_error": "worst", "bias": "bias", "baseline_median_error": "baseline", "beats_baseline": "better",
    "coverage_80": "in 80%", "half_width": "+-80%", "false_fit": "f.fit", "false_no_fit": "f.no", "rank_correlation": "rank",
    "best_within_5pct": "best", "pairs_right": "pairs",
}  # fmt: skip
"""Column of a score, by field."""


def _print(rows: list[dict[str, Any]]) -> None:
    typer.echo(
        "Errors on groups left out of the fits; baseline: one constant utilisation an accelerator, always fits; "
        "pairs: of two that part by over a tenth, the better one was named\n"
    )
    typer.echo(
        f"{'metric':<12} {'rows':>5} " + " ".join(f"{head:>8}" for head in HEADS.values()) + "  file, accelerator"
    )
    for row in rows:
        cells = " ".join(f"{_cell(row, key):>8}" for key in HEADS)
        typer.echo(f"{row['metric']:<12} {row['count']:>5} {cells}  {row['file']}, {row['accelerator']}")
    for name, (total, left) in {row["file"]: (row["rows_in_file"], row["left_out"]) for row in rows}.items():
        typer.echo(f"\n{name}: {total - sum(left.values())} of {total} rows scored")
        for reason, count in sorted(left.items(), key=lambda item: -item[1]):
            typer.echo(f"  {count:4d} left out: {reason}")


def _cell(row: dict[str, Any], key: str) -> str:
    value = row[key]
    if value is None:
        return "-"
    if key == "rank_correlation":
        return f"{value:.2f}"
    return f"{100 * value:+.1f}%" if key == "bias" else f"{100 * value:.1f}%"


def calibrate(
    file: Annotated[
        Path | None, typer.Argument(help="Steps that you measured (CSV), fitted with the shipped ones: training alone.")
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="Where the constants go (absent: the catalogue).")
    ] = None,
    json: Json = False,
) -> int:
    """Fit the constants of chips on the shipped measurements, and on yours, and write them as data (needs scipy)."""
    from tokenmill.calibration import calibrate as fit

    report = fit(into, file)
    if json:
        out.write_json({"schema": 1, **report})
        return 0
    for name, lines in report["tables"].items():
        typer.echo(f"{name}: {lines} constants")
    return 0
