"""Why nothing was there to choose from: systems that cannot run a workload, or that cannot be had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenmill.errors import Mistake
from tokenmill.milp.solution import Shortfall

NO_LAYOUTS = "layouts"
"""What the programme calls it when a workload came to it without a candidate and without a rule that removed one."""


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
