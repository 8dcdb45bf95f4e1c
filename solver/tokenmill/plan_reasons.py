"""Why nothing was there to choose from, and what was taken because nothing was said: systems that cannot be had, formats of weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tokenmill.errors import Mistake
from tokenmill.milp.solution import Shortfall
from tokenmill.plan import WorkloadPlan
from tokenmill.problem import Workload
from tokenmill.reading_stage import PRECISION

NO_LAYOUTS = "layouts"
"""What the programme calls it when a workload came to it without a candidate and without a rule that removed one."""

WIDEST = "fp32"
STORED = "weights"


def formats_assumed(workloads: Sequence[Workload], planned: Mapping[str, WorkloadPlan]) -> Iterator[str]:
    """Yield a note for each workload whose weights are planned in 32 bits because they are published so and the file names no format."""
    key = PRECISION + STORED
    for workload in workloads:
        asked = key in workload.held or any(key in held for held in workload.role_held.values())
        pools = planned[workload.name].pools if workload.name in planned else ()
        if not asked and any(pool.precision.get(STORED) == WIDEST for pool in pools):
            yield (
                f"{workload.name}.{key}: {WIDEST}, as the model is published; engines that load it in 16 bits "
                f'(vLLM and SGLang do by themselves) need far less: state {STORED} = "fp16" to plan them'
            )


def reasoned(
    shortfalls: Sequence[Shortfall], left_out: Mapping[str, Mapping[str, str]], notes: Sequence[Mistake]
) -> tuple[Shortfall, ...]:
    """Return the shortfalls with the reason in place of each bare lack of layouts.

    `left_out`: by workload, systems that could not be evaluated and why; `notes`: systems that are not offered.
    """
    found: list[Shortfall] = []
    for item in shortfalls:
        reasons = left_out.get(item.key.partition(".")[2], {})
        if item.limit != NO_LAYOUTS or not (reasons or notes):
            found.append(item)
        elif reasons:
            alone = len(reasons) == 1
            found += [
                Shortfall(item.key, f"{system}: {reason}", None, "layout", alone, item.cure)
                for system, reason in sorted(reasons.items())
            ]
        else:
            found += [Shortfall(n.key, n.found, None, "system", len(notes) == 1, f"give {n.allowed}") for n in notes]
    return tuple(dict.fromkeys(found))
