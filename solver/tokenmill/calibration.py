"""`calibrate`: every fitted constant of the catalogue, from the shipped measurements, written as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenmill import data
from tokenmill.calibration_devices import calibrate_devices
from tokenmill.calibration_experts import fit_experts
from tokenmill.calibration_fit import write_constants
from tokenmill.calibration_kernels import fit_kernels
from tokenmill.calibration_layers import calibrate_layers
from tokenmill.calibration_links import calibrate_links
from tokenmill.calibration_memory import calibrate_memory
from tokenmill.calibration_power import calibrate_power
from tokenmill.calibration_runs import calibrate_runs
from tokenmill.calibration_serving import RESIDUALS, calibrate_serving, write_residuals
from tokenmill.calibration_training import calibrate_training
from tokenmill.catalog import load_catalog
from tokenmill.measured_runs import read_runs


def calibrate(into: Path | None = None, own: Path | None = None) -> dict[str, Any]:
    """Fit all constants and write them below `into` (the catalogue's ``efficiency`` folder where None); return how many by table.

    `own`: a file of steps that a user measured (`measured_runs`); then the constants of training alone are fitted, on the
    shipped measurements and these together.

    Raises
    ------
    ProblemError
        For mistakes in the user's file.
    """
    folder = into or data.path("catalog") / "efficiency"
    folder.mkdir(parents=True, exist_ok=True)
    if own is not None:
        return {"tables": calibrate_training(folder, read_runs(own)), "folder": str(folder)}
    kernels = fit_kernels(data.path("measured") / "kernels", load_catalog())
    write_constants(kernels, folder / "kernels.csv")
    experts = fit_experts(data.path("measured") / "kernels", load_catalog())
    write_constants(experts, folder / "experts.csv")
    links = calibrate_links(folder)
    trained = calibrate_training(folder)
    memory = calibrate_memory(folder)
    devices = calibrate_devices(folder)
    engines = calibrate_layers(folder) | calibrate_serving(folder) | calibrate_power(folder)
    engines[RESIDUALS] = write_residuals(folder / RESIDUALS)
    several = calibrate_runs(folder)
    single = {"kernels.csv": len(kernels), "experts.csv": len(experts)}
    return {"tables": {**single, **links, **trained, **memory, **devices, **engines, **several}, "folder": str(folder)}
