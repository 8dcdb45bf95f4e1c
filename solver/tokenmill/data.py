"""Where the shipped data lies: inside the installed package, else in the checkout."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path


@cache
def path(folder: str) -> Path:
    """Return the directory of a data folder (``catalog``, ``measured`` or ``problems``).

    Raises
    ------
    FileNotFoundError
        Where neither the package nor the checkout holds the folder.
    """
    packaged = Path(str(files("tokenmill"))) / folder
    checkout = Path(__file__).resolve().parents[2] / folder
    for place in (packaged, checkout):
        if place.is_dir():
            return place
    raise FileNotFoundError(f"data folder {folder!r}: looked in {packaged} and {checkout}")
