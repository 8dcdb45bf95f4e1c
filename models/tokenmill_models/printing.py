"""Formulas as people and programs read them: plain text, LaTeX, a Python function that runs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import sympy as sp
from sympy.printing.latex import LatexPrinter
from sympy.printing.pycode import PythonCodePrinter
from sympy.printing.str import StrPrinter

from tokenmill_models.symbols import latex_names


class _TextPrinter(StrPrinter):
    """Prints `max`, `min`, `ceil` and `if` in words that need no knowledge of sympy."""

    def _print_Max(self, expr: sp.Max) -> str:
        return f"max({self.stringify(expr.args, ', ')})"

    def _print_Min(self, expr: sp.Min) -> str:
        return f"min({self.stringify(expr.args, ', ')})"

    def _print_Infinity(self, expr: sp.Expr) -> str:
        return "infinity"

    def _print_And(self, expr: sp.And) -> str:
        return " and ".join(self._print(part) for part in expr.args)

    def _print_ceiling(self, expr: sp.ceiling) -> str:
        return f"ceil({self._print(expr.args[0])})"

    def _print_Piecewise(self, expr: sp.Piecewise) -> str:
        *branches, last = expr.args
        text = str(self._print(last[0]))
        for value, condition in reversed(branches):
            text = f"({self._print(value)} if {self._print(condition)} else {text})"
        return text


class _PythonPrinter(PythonCodePrinter):
    """Prints plain Python over `math` and the built-in max and min."""

    def _print_Max(self, expr: sp.Max) -> str:
        return f"max({', '.join(self._print(argument) for argument in expr.args)})"

    def _print_Min(self, expr: sp.Min) -> str:
        return f"min({', '.join(self._print(argument) for argument in expr.args)})"


_TEXT = _TextPrinter({"order": None, "abbrev": False})
_PYTHON = _PythonPrinter({"fully_qualified_modules": True, "strict": True})


@lru_cache(maxsize=1 << 14)
def text(expr: sp.Basic) -> str:
    """Return an expression in one line: + - * / **, max, min, floor, ceil, exp, log, sqrt, `a if b else c`."""
    return str(_TEXT.doprint(expr))


def latex(expr: sp.Basic) -> str:
    """Return an expression in LaTeX with the spelling of its symbols."""
    return str(LatexPrinter({"symbol_names": latex_names()}).doprint(expr))


def python_function(
    name: str,
    parameters: Sequence[sp.Symbol],
    expr: sp.Expr,
    doc: Sequence[str],
    defaults: Mapping[str, float] | None = None,
) -> str:
    """Return the source of a function that runs alone; parameters with defaults come last."""
    known = defaults or {}
    ordered = sorted(parameters, key=lambda symbol: symbol.name in known)
    heads = [f"{s.name}={known[s.name]!r}" if s.name in known else s.name for s in ordered]
    body = "\n".join(f"    {line}".rstrip() for line in doc)
    code = _PYTHON.doprint(expr)
    start = "import math\n\n\n" if "math." in code else ""
    return f'{start}def {name}({", ".join(heads)}):\n    """{body.lstrip()}\n    """\n    return {code}\n'
