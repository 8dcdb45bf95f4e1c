"""Times of start-up and of solving, and layouts a second, each as a ratio to a peer measured in the same run; never a test.

Prints a table and writes benchmarks/latest.json: [{name, value, unit, size, peer, peer_value, ratio}].
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from search_rate import free_search, search_rate

ROOT = Path(__file__).resolve().parents[1]
REPEATS = 3
COMMAND = [sys.executable, "-c", "import sys; from tokenmill.cli import main; sys.exit(main())"]


def seconds(words: list[str], repeats: int = REPEATS) -> float:
    """Return the least wall time of a process over some repeats."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
        times.append(time.perf_counter() - start)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(words[3:])} ended with {done.returncode}: {done.stderr.strip()}")
    return min(times)


def row(name: str, value: float, size: str, peer: str, peer_value: float) -> dict:
    ratio = value / peer_value if peer_value else None
    return {
        "name": name,
        "value": value,
        "unit": "s",
        "size": size,
        "peer": peer,
        "peer_value": peer_value,
        "ratio": ratio,
    }


def slowest_formula() -> tuple[float, str]:
    """Return the greatest time over the first formula of every topic, and of how many."""
    from tokenmill.derive import listing

    first: dict[str, str] = {}
    for found in listing():
        first.setdefault(found["name"].partition(".")[0], found["name"])
    return max(seconds([*COMMAND, "derive", name], 2) for name in first.values()), f"{len(first)} topics"


def start_up() -> list[dict]:
    bare = seconds([sys.executable, "-c", "pass"])
    sympy = seconds([sys.executable, "-c", "import sympy"])
    return [
        row("tokenmill --help", seconds([*COMMAND, "--help"]), "process", "python -c pass", bare),
        row("tokenmill derive roofline.ridge", seconds([*COMMAND, "derive", "roofline.ridge"]), "process", "import sympy", sympy),
        row("tokenmill derive, the slowest", *slowest_formula(), "import sympy", sympy),
        row("tokenmill derive", seconds([*COMMAND, "derive"]), "all formulas", "import sympy", sympy),
        row("tokenmill catalog list", seconds([*COMMAND, "catalog", "list"]), "process", "python -c pass", bare),
    ]  # fmt: skip


def solves() -> list[dict]:
    peer = seconds([sys.executable, "-c", "import numpy, sympy, highspy"])
    return [
        row(
            f"tokenmill solve {path.name}",
            seconds([*COMMAND, "solve", str(path), "--json", "-"]),
            "process",
            "import numpy, sympy, highspy",
            peer,
        )
        for path in sorted((ROOT / "problems").glob("*.toml"))
    ]


def main() -> int:
    rows = [*start_up(), *solves(), search_rate(), *(free_search(chips) for chips in (3072, 4096))]
    width = max(len(item["name"]) for item in rows)
    print(f"{'what':<{width}}  {'value':>11} unit  {'ratio':>7}  peer")
    for item in rows:
        print(
            f"{item['name']:<{width}}  {item['value']:11.5g} {item['unit']:<4}  {item['ratio']:7.3g}  "
            f"{item['peer']} ({item['peer_value']:.4g} {item['unit']}); {item['size']}"
        )
    target = ROOT / "benchmarks" / "latest.json"
    aside = target.with_suffix(".part")
    aside.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    aside.replace(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
