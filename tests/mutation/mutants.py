"""Small changes for the worse, made by rule in a file's syntax tree: each one changes what the code does in one place.

What is left out would tell nothing: texts for people (tests hold them by their own means), annotations, log lines, and
what a module or a class declares outside of its functions: numbers that tune it, and the defaults of fields.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

_SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_LOGS = ("log.", "warnings.")


class Mutant(NamedTuple):
    """One change: its name lasts as long as the code around it says the same."""

    file: str
    where: str  # class and function
    old: str
    new: str
    number: int  # of those of a function that read the same
    line: int
    span: tuple[int, int]  # first and last line of its statement, bodies not counted
    function: int  # the first line of the outermost function that it is in, decorators counted; 0: of none
    text: str  # the whole file
    body: str  # the function alone

    @property
    def name(self) -> str:
        which = f" ({self.number})" if self.number else ""
        return f"{self.file} {self.where}: {self.old} -> {self.new}{which}"

    @property
    def key(self) -> str:
        """Of this very change in this very function."""
        return hashlib.sha256(f"{self.name}\n{self.body}".encode()).hexdigest()[:24]


def mutants(file: str, source: str) -> list[Mutant]:
    """All of one file, in the order of its lines."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    raw = source.encode()
    found: list[Mutant] = []
    seen: Counter[tuple[str, str, str]] = Counter()
    for place, node, new in _changes(ast.parse(source)):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        old = raw[begin:end].decode()
        text = (raw[:begin] + new.encode() + raw[end:]).decode()
        short = ".".join(place.path), _line(old), _line(new)
        first, last = place.function
        body = "".join(lines[first - 1 : last]) if first else source
        found.append(Mutant(file, *short, seen[short], node.lineno, place.span, first, text, body))
        seen[short] += 1
    return sorted(found, key=lambda mutant: mutant.line)


def _line(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= 90 else f"{plain[:60]} ... {plain[-25:]}"


class _Place(NamedTuple):
    """Where a node stands: in which class and function, in which statement, and in which outermost function."""

    path: tuple[str, ...] = ()
    span: tuple[int, int] = (0, 0)
    function: tuple[int, int] = (0, 0)

    def inside(self, node: ast.AST) -> _Place:
        """The place of what stands in this node."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not self.function[0]:
            first = min((each.lineno for each in node.decorator_list), default=node.lineno)
            return self._replace(path=(*self.path, node.name), function=(first, node.end_lineno or 0))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return self._replace(path=(*self.path, node.name))
        return self


def _span(node: ast.AST) -> tuple[int, int]:
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) else node.end_lineno
    return node.lineno, max(node.lineno, last)


def _changes(tree: ast.Module) -> Iterator[tuple[_Place, ast.AST, str]]:
    """Where, what, and the text that takes its place."""
    for place, node, parent in _walk(tree, _Place(), tree):
        if place.function[0]:
            yield from ((place, *change) for change in _expression(node))
            yield from ((place, *change) for change in _statement(node, parent))


def _walk(node: ast.AST, place: _Place, parent: ast.AST) -> Iterator[tuple[_Place, ast.AST, ast.AST]]:
    """Every node that counts, with the function that it is in."""
    if isinstance(node, ast.JoinedStr) or _is_talk(node):
        return  # positions in texts with values in them are not told
    if isinstance(node, ast.stmt):
        place = place._replace(span=_span(node))
    yield place, node, parent
    place = place.inside(node)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        if field == "keywords" and isinstance(node, ast.ClassDef):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child, place, node)


def _is_talk(node: ast.AST) -> bool:
    """A docstring, a log line, or what only type checkers read."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if not isinstance(node, ast.Expr):
        return False
    return isinstance(node.value, ast.Constant) or ast.unparse(node.value).startswith(_LOGS)


def _expression(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.Compare(left=left, ops=[first, *others], comparators=[right, *_]) if type(first) in _SWAPPED:
            changed = copy.copy(node)
            changed.ops = [_SWAPPED[type(first)](), *others]
            yield node, f"({ast.unparse(changed)})"
            if others:
                changed = copy.copy(node)
                changed.ops = [first, _SWAPPED[type(others[0])](), *others[1:]]
                yield node, f"({ast.unparse(changed)})"
            elif isinstance(first, (ast.Lt, ast.Gt, ast.LtE, ast.GtE)):
                changed = copy.copy(node)
                changed.left, changed.comparators = right, [left]
                yield node, f"({ast.unparse(changed)})"
        case ast.BoolOp(values=values):
            for at in range(len(values)):
                rest = values[:at] + values[at + 1 :]
                changed = rest[0] if len(rest) == 1 else ast.BoolOp(op=node.op, values=rest)
                yield node, f"({ast.unparse(changed)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC and not _is_text(node):
            changed = copy.copy(node)
            changed.op = _ARITHMETIC[type(op)]()
            yield node, f"({ast.unparse(changed)})"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)):
            yield node, str(value + 1)
        case ast.IfExp(test=test) if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            changed = copy.copy(node)
            changed.test = ast.UnaryOp(op=ast.Not(), operand=test)
            yield node, f"({ast.unparse(changed)})"
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            if any(each.ifs for each in node.generators):
                changed = copy.deepcopy(node)
                for each in changed.generators:
                    each.ifs = []
                yield node, ast.unparse(changed)
        case ast.Call(keywords=[_, *_] as keywords) if isinstance(node.func, ast.Attribute):
            for at, keyword in enumerate(keywords):
                if keyword.arg in ("uid", "resource_version", "grace", "propagation", "timeout"):
                    changed = copy.copy(node)
                    changed.keywords = keywords[:at] + keywords[at + 1 :]
                    yield node, ast.unparse(changed)
        case ast.match_case(guard=ast.expr() as guard):
            yield guard, "True"


def _statement(node: ast.AST, parent: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.If(test=test) | ast.While(test=test):
            if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant)):
                yield test, f"not ({ast.unparse(test)})"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, "return None"
        case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            if getattr(parent, "name", "") != "__init__":
                yield node, "pass"
        case ast.Continue():
            yield node, "pass"
        case ast.Break():
            yield node, "continue"


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(each, (ast.JoinedStr, ast.List, ast.Tuple)) for each in sides) or any(
        isinstance(each, ast.Constant) and isinstance(each.value, (str, bytes)) for each in sides
    )
