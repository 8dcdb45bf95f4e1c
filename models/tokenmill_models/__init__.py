"""The formulas of tokenmill: symbolic, importable without the solver."""
