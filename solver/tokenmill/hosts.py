"""How fast the host of a system runs one thread, beside the host that the constants of engines stand for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from tokenmill import data
from tokenmill.catalog import Figure
from tokenmill.catalog_entry import read_csv

REFERENCE = "Xeon 8480C"
"""Host of the servers that most serving rows were measured on (HGX H100): time on it is 1."""


@cache
def thread_speeds() -> Mapping[str, tuple[float, str]]:
    """Return work of one thread a nanosecond [cycles of Skylake] and its source by processor."""
    rows = read_csv(data.path("catalog") / "cpus" / "hosts.csv")
    return {row["cpu"]: (float(row["boost_ghz"]) * float(row["work_a_cycle"]), row["source"]) for row in rows}


def host_pace(cpu: str) -> Figure:
    """Return the time of one thread's work on a processor over that on the reference [1]; `cpu` as systems write it (``2x EPYC 7742``).

    A host that is not known is taken for the reference.
    """
    speeds = thread_speeds()
    name = cpu.partition("x ")[2] or cpu
    if name not in speeds:
        return Figure(1.0, "1", f"no known host: taken for a {REFERENCE}", "guess")
    speed, source = speeds[name]
    return Figure(speeds[REFERENCE][0] / speed, "1", f"{name} against {REFERENCE}, one thread: {source}", "guess")
