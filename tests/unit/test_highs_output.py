import os
from concurrent.futures import ThreadPoolExecutor

from tokenmill.milp.highs import _quiet_output


def test_threads_that_begin_solves_together_leave_standard_output_where_it_was():
    before = os.fstat(1)

    def turn(_):
        with _quiet_output():
            return os.fstat(1).st_rdev

    with ThreadPoolExecutor(8) as pool:
        away = set(pool.map(turn, range(4000)))
    assert away == {os.stat(os.devnull).st_rdev}
    after = os.fstat(1)
    assert (after.st_dev, after.st_ino) == (before.st_dev, before.st_ino)
