"""A demand that the solver could take for none is refused, a rare one is planned for."""

import numpy as np
import pytest

from cross_check.toys import pool, pool_column
from tokenmill.faint import LEAST, faint


@pytest.mark.parametrize(("rate", "refused"), [(0.0, False), (1e-12, True), (0.99 * 40.0 * LEAST, True), (1e-6, False)])
def test_what_is_less_than_any_replica_notices_is_refused(rate, refused):
    """Two layouts, of 10 and 40 a second: the quicker one is where a demand first vanishes."""
    columns = pool(pool_column(rate=10.0), pool_column(chips=4, rate=40.0))
    found = faint(columns, np.array([[5.0, rate]]), "demand.requests_per_second")
    assert bool(found) == refused
    for mistake in found:
        assert mistake.key == "workload.chat.demand.requests_per_second"
        assert mistake.found == f"{rate:.2g} a second"
        assert "at least 4e-10 a second" in mistake.allowed  # 40 x 1e-11
