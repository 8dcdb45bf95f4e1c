"""Generated source with some inputs fixed: zero terms, unit factors and dead branches fall away.

A stage's word choices (schedule, recompute, offload) enter its formulas as flags of 0 and 1. Over one array search they
are fixed, and most of what they multiply is nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from math import sqrt

_COMPUTED: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
}
_COMPARED: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
}
_CALLED: dict[str, Callable[[list[float]], float]] = {
    "minimum": min,
    "maximum": max,
    "sqrt": lambda numbers: sqrt(numbers[0]),
}


def specialise(source: str, fixed: Mapping[str, float]) -> ast.Module:
    """Return the syntax tree of a generated function with the inputs `fixed` put in; its parameters stay as they are.

    Only sums, products, quotients by 1 or of 0, roots, minima, maxima and comparisons of known numbers are worked out.
    """
    tree = ast.parse(source)
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef):
        raise ValueError("specialise: the source holds no function")
    folder = _Folder(dict(fixed))
    kept: list[ast.stmt] = []
    for line in function.body:
        folded = folder.visit(line)
        number = _number(folded.value) if isinstance(folded, ast.Assign) else None
        if number is not None:
            folder.known[_target(folded)] = number
        else:
            kept.append(folded)
    function.body = _used(kept)
    return ast.fix_missing_locations(tree)


def _target(line: ast.Assign) -> str:
    name = line.targets[0]
    if not isinstance(name, ast.Name):
        raise ValueError("specialise: an assignment names one variable")
    return name.id


def _used(lines: list[ast.stmt]) -> list[ast.stmt]:
    """Drop the lines that nothing after them reads."""
    wanted: set[str] = set()
    kept = []
    for line in reversed(lines):
        if isinstance(line, ast.Assign) and _target(line) not in wanted:
            continue
        wanted |= {node.id for node in ast.walk(line) if isinstance(node, ast.Name)}
        kept.append(line)
    return kept[::-1]


class _Folder(ast.NodeTransformer):
    """Replaces known names by numbers and works out what follows from zeros, ones and numbers."""

    def __init__(self, known: dict[str, float]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.known:
            return ast.Constant(self.known[node.id])
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        number = _number(operand)
        if isinstance(node.op, ast.USub) and number is not None:
            return ast.Constant(-number)
        return ast.UnaryOp(node.op, operand)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        kind = type(node.op)
        left: ast.expr = self.visit(node.left)
        right: ast.expr = self.visit(node.right)
        a, b = _number(left), _number(right)
        if a is not None and b is not None and kind in _COMPUTED:
            return ast.Constant(_COMPUTED[kind](a, b))
        if kind is ast.Mult and 0.0 in (a, b):
            return ast.Constant(0.0)
        if kind is ast.Div and a == 0.0:
            return ast.Constant(0.0)
        if (kind is ast.Mult and a == 1.0) or (kind is ast.Add and a == 0.0):
            return right
        if (kind in (ast.Mult, ast.Div) and b == 1.0) or (kind in (ast.Add, ast.Sub) and b == 0.0):
            return left
        return ast.BinOp(left, node.op, right)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        left, right, kind = self.visit(node.left), self.visit(node.comparators[0]), type(node.ops[0])
        a, b = _number(left), _number(right)
        if a is not None and b is not None and len(node.ops) == 1 and kind in _COMPARED:
            return ast.Constant(float(_COMPARED[kind](a, b)))
        return ast.Compare(left, node.ops, [right, *(self.visit(other) for other in node.comparators[1:])])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        arguments = [self.visit(argument) for argument in node.args]
        numbers = [number for argument in arguments if (number := _number(argument)) is not None]
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in _CALLED and len(numbers) == len(arguments):
            return ast.Constant(_CALLED[name](numbers))
        if name == "where" and (chosen := _number(arguments[0])) is not None:
            branch: ast.expr = arguments[1] if chosen else arguments[2]
            return branch
        return ast.Call(node.func, arguments, node.keywords)


def _number(node: ast.expr) -> float | None:
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None
