"""Fits the constants of cards whose kernels nobody timed one by one, on times of whole layers, through the formulas that plans use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill.calibration_fit import SPREAD, Array, Fitted, median_and_p90, write_constants
from tokenmill.catalog import load_catalog
from tokenmill.efficiency import LAYERS, chip_constant
from tokenmill.imports.architecture import load_architecture
from tokenmill.validate import fitted_half
from tokenmill.validate_cases import Predictor
from tokenmill.validate_serving import CARD_LEAVES, LAYER_HALVES, METRICS
from tokenmill.validate_serving_rows import Row, measured

FILE = "helix_layer_profiles"
CHIPS = ("l4", "t4", "v100-sxm2-16gb")
"""Cards of the file that have neither kernel times nor a twin that has."""
PRIOR = 0.05
"""Weight of what a relative lends beside a row: it holds what the rows leave open."""
MOST = {"compute_share": 1.0, "bandwidth_share": 1.0, "cache_share": 1.0, "ring_share": 1.0, "half_rows": 512.0}
"""Constants that are fitted, and the most that each may be [1]."""
FORMATS = {"compute_share": "bf16", "half_rows": "bf16"}
ALIKE = {"ring_share": ("ring_share", "own_share", "own_pair_share")}
"""Constants that are one: cards without a path to one another have no kernel of the engine's own for sums over ranks."""


@dataclass(frozen=True)
class Card:
    """A card with its rows by metric."""

    chip: str

    @cached_property
    def rows(self) -> Sequence[Row]:
        """Rows of the card."""
        catalog = load_catalog()
        return [row for row in measured(FILE)[0] if catalog.system(row.case.system).chip == self.chip]

    @cached_property
    def start(self) -> Mapping[str, float]:
        """What relatives lend the card."""
        return {name: chip_constant(load_catalog(), self.chip, name, "fp16", own=False).value for name in MOST}

    @cached_property
    def tells_of_cache(self) -> bool:
        """Whether answers of a model are there whose heads share no keys: early engines took those that do one head after another."""
        written = {str(row.case.model) for row in self.rows if "layer_decode" in row.values}
        mixers = [kind.mixer for model in written for kind in load_architecture(model).layers]
        return any(mixer.kv_granules == mixer.heads for mixer in mixers)

    @cached_property
    def predictors(self) -> Mapping[str, tuple[NDArray[np.int64], Predictor]]:
        """Numbers of the rows of each metric, and what predicts them."""
        found = {}
        for metric in sorted({metric for row in self.rows for metric in row.values}):
            at = [i for i, row in enumerate(self.rows) if metric in row.values]
            found[metric] = np.array(at), Predictor([self.rows[i].case for i in at], (METRICS[metric].figure,))
        return found

    def misses(self, values: Mapping[str, float]) -> Array:
        """Return log(predicted/measured) of every row."""
        leaves = {CARD_LEAVES[one]: value for name, value in values.items() for one in ALIKE.get(name, (name,))}
        found = np.full(len(self.rows), np.nan)
        for metric, (at, predictor) in self.predictors.items():
            for batch in predictor.batches:
                found[at[batch.cases]] = batch.figures(leaves)[METRICS[metric].figure]
        value = np.array([next(iter(row.values.values())) for row in self.rows])
        return np.asarray(np.log(found / value))


def calibrate_layers(folder: Path) -> dict[str, int]:
    """Fit and write the constants of the cards, on all rows and on each half of the groups; return rows by table.

    A card without rows in a half keeps there what its relatives lend.
    """
    tables: dict[str, list[Fitted]] = {name: [] for name in (LAYERS, *LAYER_HALVES)}
    for card in map(Card, CHIPS):
        half = np.array([fitted_half(row.case.group) for row in card.rows])
        unseen = np.full(half.size, np.nan)
        for name, part in zip(LAYER_HALVES, (half, ~half), strict=True):
            values = _fit(card, part)
            unseen[~part] = np.abs(np.expm1(card.misses(values)))[~part]
            tables[name] += _records(card.chip, values, int(part.sum()), np.empty(0))
        tables[LAYERS] += _records(card.chip, _fit(card, np.ones(half.size, bool)), half.size, unseen)
    for name, constants in tables.items():
        write_constants(constants, folder / name)
    return {name: len(constants) for name, constants in tables.items()}


def _fit(card: Card, part: NDArray[np.bool_]) -> dict[str, float]:
    """Return the constants by name, fitted on the rows of `part`."""
    from scipy.optimize import least_squares

    if not part.any():
        return dict(card.start)
    names = [name for name in card.start if name != "cache_share" or card.tells_of_cache]
    start = np.log([card.start[name] for name in names])
    most = np.log([MOST[name] for name in names])

    def values(logs: Array) -> dict[str, float]:
        return dict(card.start) | dict(zip(names, np.exp(logs).tolist(), strict=True))

    def misses(logs: Array) -> Array:
        return np.concatenate([card.misses(values(logs))[part], PRIOR * (logs - start)])

    found: Any = least_squares(
        misses, np.minimum(start, most - 1e-3), bounds=(np.full(len(names), -6.0), most), loss="soft_l1", f_scale=SPREAD, diff_step=1e-2,
    )  # fmt: skip
    return values(found.x)


def _records(chip: str, values: Mapping[str, float], count: int, errors: Array) -> Iterator[Fitted]:
    known = errors[np.isfinite(errors)]
    median, worse = median_and_p90(known)
    source = f"fitted on measured/serving/{FILE}.csv"
    for name, value in sorted(values.items()):
        for one in ALIKE.get(name, (name,)):
            yield Fitted(chip, one, FORMATS.get(name, ""), value, "1", count, median, worse, source)
