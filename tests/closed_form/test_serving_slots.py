"""Waits for a slot, against the exact chain of births and deaths: steps last longer by every sequence that runs."""

import pytest

from sample_leaves import dense
from serving_samples import evaluate
from tokenmill_models.serving import roles

SMALL = dense(2048, 16, 4, 128, 8192, 24, 32000)
DECODE = {role.name: role for role in roles(SMALL)}["decode"]
LONG = {"request__input_tokens": 20000.0, "request__output_tokens": 301.0, "input__demand__arrivals__concurrency": 0.0}


def chain(rate, free, slope, slots, steps):
    """Share of arrivals that wait and mean wait [s] where n of them leave at n/(steps (free + slope n))."""
    shares = [1.0]
    for number in range(1, 5000):
        served = min(number, slots)
        shares.append(shares[-1] * rate * steps * (free + slope * served) / served)
    whole = sum(shares)
    waiting = sum((number - slots) * share for number, share in enumerate(shares) if number > slots)
    return sum(shares[slots:]) / whole, waiting / whole / rate


def found(batch):
    values = evaluate(DECODE, SMALL, axis__batch=float(batch), **LONG)
    slope, steps = values["slot_slope"], values["decode_steps"]
    free = values["step_time"] - batch * slope
    rate = batch / (steps * values["step_time"])
    return values, chain(rate, free, slope, int(values["max_batch"]), steps)


def test_a_sequence_more_reads_its_own_cache():
    """24 layers of 4 heads of keys and values, 128 wide in 16 bits: 49152 bytes a token; the mean of an answer is half written."""
    values, _ = found(16)
    context = 20000 + 301 / 2
    assert values["context"] == pytest.approx(context)
    more = evaluate(DECODE, SMALL, axis__batch=17.0, **LONG)["step_time"] - values["step_time"]
    assert values["slot_slope"] == pytest.approx(more, rel=0.1)  # the step's products and its launch grow beside


@pytest.mark.parametrize("held", [0.4, 0.6, 0.75, 0.85])
def test_crowded_slots_wait_as_the_exact_chain_does(held):
    slots = int(found(16)[0]["max_batch"])
    values, (waiting, wait) = found(round(held * slots))
    assert waiting > 0.02
    assert values["P_slot"] == pytest.approx(waiting, rel=0.2)
    assert values["W_slot_mean"] == pytest.approx(wait / 2, rel=0.2)  # answers of one length: (1 + 0)/2 of the chain's
    same_pace = values["rho_slot"] ** ((2 * slots + 2) ** 0.5 - 1)
    assert abs(same_pace - waiting) > 4 * abs(values["P_slot"] - waiting)  # slots that never slow one another
