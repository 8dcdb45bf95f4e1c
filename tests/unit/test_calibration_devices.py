"""The families of devices and what was fitted for them: known chips, within bounds, each half from rows of its own."""

import numpy as np
import pytest

from tokenmill.calibration_devices import families, fit_families
from tokenmill.catalog import load_catalog
from tokenmill.efficiency import chip_constant
from tokenmill.validate import fitted_half
from tokenmill.validate_devices import HALVES, SYMBOLS, half_constants, measured, read_rows


def test_every_chip_of_a_family_is_of_the_catalogue_and_of_one_family():
    chips = [chip for family in families()["families"].values() for chip in family["chips"]]
    assert len(chips) == len(set(chips))
    assert set(chips) <= set(load_catalog().chips)
    names = list(families()["families"])
    for name, family in families()["families"].items():
        assert family["relative"] in ("", *names[: names.index(name)])


@pytest.mark.parametrize("constant", SYMBOLS)
def test_fitted_constants_stay_within_their_bounds(constant):
    bound = families()["first_guess"][constant]
    for family in families()["families"].values():
        for chip in family["chips"]:
            figure = chip_constant(load_catalog(), chip, constant, "")
            assert bound["low"] <= figure.value <= bound["high"]


def test_chips_without_rows_are_marked_as_guesses_and_measured_ones_as_calibrated():
    catalog = load_catalog()
    assert chip_constant(catalog, "rtx-3090", "device_bandwidth_share", "").evidence == "calibrated"
    assert chip_constant(catalog, "snapdragon-8-elite", "device_bandwidth_share", "").evidence == "guess"
    assert chip_constant(catalog, "rtx-3090", "device_memory_share", "").evidence == "guess"


def test_halves_share_no_device_and_differ_in_what_they_give():
    first, second = (half_constants(name) for name in HALVES)
    assert first.keys() == second.keys()
    assert first["rtx-4090"] != second["rtx-4090"]
    sides = {row["device"]: fitted_half(row["device"]) for row in read_rows()}
    assert {True, False} == set(sides.values())


def test_a_family_without_rows_takes_its_relatives_constants():
    nothing = np.zeros(len(measured()[0]), bool)
    values, counts = fit_families(nothing)
    assert set(counts.values()) == {0}
    guess = {name: entry["value"] for name, entry in families()["first_guess"].items()}
    assert all(found == guess for found in values.values())
