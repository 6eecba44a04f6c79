"""Faults by operators: one change of one expression or statement of a file.

Constants are changed, comparisons turned or moved by one, operations, names and sides
exchanged, arguments and branches swapped, terms, conditions and statements dropped.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """One fault: where it is, and what stands there before and after."""

    file: str
    line: int
    function: str
    operator: str
    before: str
    after: str
    ordinal: int  # among equal ones of its function
    span: tuple[int, int] = (0, 0)  # bytes of the file that are replaced

    @property
    def key(self) -> str:
        """Name that stays when other lines of the file change."""
        parts = (self.file, self.function, self.operator, self.before, self.after)
        return "\n".join((*parts, str(self.ordinal)))

    def rank(self, seed: int) -> bytes:
        """Place in the order of ``seed``: an edit elsewhere moves no mutant."""
        return hashlib.sha256(f"{seed}\n{self.key}".encode()).digest()


_COMPARE = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
_PAIRS = "min max,minimum maximum,amin amax,floor ceil,any all,fmin fmax,log log1p,"
_PAIRS += "exp expm1,cumsum cumprod,argmin argmax,clamp_min clamp_max,sum max"
_NAMES = {a: b for pair in _PAIRS.split(",") for a, b in (pair.split(),)}
_NAMES = {b: a for a, b in reversed(_NAMES.items())} | _NAMES
_SYMMETRIC = {"min", "max", "isinstance", "minimum", "maximum", "zip", "getattr"}


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Make all faults of one node; with each the name of its operator."""
    match node:
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", ast.Constant(value / 2 if value else 1.0)
        case ast.Compare(left, operators, right):
            for i, operator in enumerate(operators):
                for other in _COMPARE[type(operator)]:
                    new = [*operators[:i], other(), *operators[i + 1 :]]
                    yield "comparison", ast.Compare(left, new, right)
        case ast.Attribute(value, "lower" | "upper" as side):
            other = "upper" if side == "lower" else "lower"
            yield "name", ast.Attribute(value, other)
        case ast.BoolOp(operator, values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and or", ast.BoolOp(other, values)
            for i in range(len(values)):
                rest = values[:i] + values[i + 1 :]
                less = rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest)
                yield "dropped", less
        case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC:
            yield "arithmetic", ast.BinOp(left, _ARITHMETIC[type(operator)](), right)
            yield "dropped", left
            if not isinstance(operator, ast.Sub | ast.Div | ast.Pow):
                yield "dropped", right
        case ast.AugAssign(target, operator, value):
            if type(operator) in _ARITHMETIC:
                other = _ARITHMETIC[type(operator)]()
                yield "arithmetic", ast.AugAssign(target, other, value)
            yield "dropped", ast.Pass()
        case ast.Expr(ast.Call()):
            yield "dropped", ast.Pass()
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            yield "dropped", operand
        case ast.IfExp(test, body, orelse):
            yield "swapped", ast.IfExp(test, orelse, body)
        case ast.Call(function, args, keywords):
            name = getattr(function, "attr", getattr(function, "id", ""))
            if name in _NAMES:
                other = ast.parse(ast.unparse(function), mode="eval").body
                field = "attr" if isinstance(other, ast.Attribute) else "id"
                setattr(other, field, _NAMES[name])
                yield "name", ast.Call(other, args, keywords)
            plain = not any(isinstance(one, ast.Starred) for one in args)
            if name in ("min", "max", "minimum", "maximum") and len(args) > 1 and plain:
                for one in args:
                    yield "dropped", one
            elif plain and len(args) > 1 and name not in _SYMMETRIC:
                swapped = [args[1], args[0], *args[2:]]
                yield "swapped", ast.Call(function, swapped, keywords)


def nodes_of(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Walk what does something, with the function that it is in.

    Annotations, decorators, messages and strings are left out.
    """
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert | ast.Import):
        return
    if isinstance(node, ast.keyword) and node.arg in ("strict", "stacklevel"):
        return
    skipped = {"annotation", "returns", "decorator_list", "bases"}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".strip(".")
    yield function, node
    for name, value in ast.iter_fields(node):
        if name not in skipped:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from nodes_of(child, function)


def mutants_of(file: str, text: bytes) -> Iterator[Mutant]:
    """Make all mutants of a file.

    >>> [one.after for one in mutants_of("a.py", b"y = max(x, 1)")]
    ['min(x, 1)', 'x', '1', '2']
    """
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: dict[str, int] = {}
    for function, node in nodes_of(ast.parse(text)):
        for operator, new in _changes(node):
            before, after = ast.unparse(node), ast.unparse(new)
            span = (
                starts[node.lineno - 1] + node.col_offset,
                starts[node.end_lineno - 1] + node.end_col_offset,
            )
            one = Mutant(file, node.lineno, function, operator, before, after, 0, span)
            seen[one.key] = seen.get(one.key, -1) + 1
            if before != after:
                yield replace(one, ordinal=seen[one.key])


def planted(one: Mutant, text: bytes) -> bytes | None:
    """Put the mutant into the text of its file; None where that is no Python."""
    is_value = isinstance(ast.parse(one.after).body[0], ast.Expr)
    put = f"({one.after})" if is_value else one.after
    whole = text[: one.span[0]] + put.encode() + text[one.span[1] :]
    try:
        ast.parse(whole)
    except SyntaxError:
        return None
    return whole


def sample(root: Path, files: list[str], seed: int, count: int) -> list[Mutant]:
    """Draw the first ``count`` mutants in the order of ``seed``."""
    texts = {file: (root / file).read_bytes() for file in files}
    every = [one for file in files for one in mutants_of(file, texts[file])]
    every.sort(key=lambda one: one.rank(seed))
    drawn = (one for one in every if planted(one, texts[one.file]))
    return list(itertools.islice(drawn, count))
