"""Expressions over parameters, for conditions and constraints: `optimizer == sgd`, `batch * width <= 4096`.

The language is Python's comparisons and arithmetic on numbers, text and names of parameters; nothing can be called, so
a study file from elsewhere does nothing but compare.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from weft.text import shorten, suggestion
from weft.tune.space.domains import SpaceError

LONGEST = 1000  # characters
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}


class SpaceExpression:
    """A checked expression; `names` are the parameters in it. `words` are texts that may stand without quotes."""

    def __init__(self, text: str, parameters: Collection[str], words: Collection[str] = ()) -> None:
        self.text, self._parameters, self._words = text, parameters, words
        self.names: set[str] = set()
        try:
            if len(text) > LONGEST:
                raise SyntaxError("too long")
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = getattr(error, "msg", None) or str(error)
            raise SpaceError(
                f"a condition must be an expression such as optimizer == sgd, got {shorten(text)} ({reason}); mend it"
            ) from None
        self._check(self._tree)

    def holds(self, params: Mapping[str, Any]) -> bool:
        """Return whether the expression is true for a point; one that lacks a parameter of it is not."""
        if any(name not in params for name in self.names):
            return False
        try:
            return bool(self._value(self._tree, params))
        except (TypeError, ZeroDivisionError, OverflowError):
            return False

    def _check(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name):
                if name in self._parameters:
                    self.names.add(name)
                elif name not in self._words:
                    known = [*self._parameters, *self._words]
                    raise SpaceError(
                        f"a name in {shorten(self.text)} must be a parameter or one of its choices, got {name}; "
                        f"{suggestion(name, known)}"
                    )
            case ast.Constant(value=str() | int() | float() | bool() | None):
                pass
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                for part in parts:
                    self._check(part)
            case ast.BoolOp(values=parts):
                for part in parts:
                    self._check(part)
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=inner):
                self._check(inner)
            case ast.BinOp(left=left, op=how, right=right) if type(how) in _BINARY:
                self._check(left)
                self._check(right)
            case ast.Compare(left=left, ops=ops, comparators=others) if all(type(o) in _COMPARE for o in ops):
                for part in (left, *others):
                    self._check(part)
            case _:
                raise SpaceError(
                    f"a condition must compare parameters, numbers and text, got {shorten(self.text)}; "
                    "write optimizer == sgd or batch * width <= 4096"
                )

    def _value(self, node: ast.expr, params: Mapping[str, Any]) -> Any:
        match node:
            case ast.Name(id=name):
                return params[name] if name in self.names else name
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return [self._value(part, params) for part in parts]
            case ast.BoolOp(op=how, values=parts):
                found = (bool(self._value(part, params)) for part in parts)
                return all(found) if isinstance(how, ast.And) else any(found)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return not self._value(inner, params)
            case ast.UnaryOp(operand=inner):
                return -self._value(inner, params)
            case ast.BinOp(left=left, op=arithmetic, right=right):
                return _BINARY[type(arithmetic)](self._value(left, params), self._value(right, params))
            case ast.Compare(left=left, ops=ops, comparators=others):
                before = self._value(left, params)
                for comparison, other in zip(ops, others, strict=True):
                    after = self._value(other, params)
                    if not _COMPARE[type(comparison)](before, after):
                        return False
                    before = after
                return True
        raise AssertionError("the expression was checked")
