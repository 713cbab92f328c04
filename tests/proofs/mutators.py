"""Small faults, one at a time: what the tests of a file must notice.

Changed are comparisons (at their boundary), integers (±1), arithmetic, and/or, not, True/False, plain conditions,
min/max, floor/ceil, any/all; removed are raise, return, break, continue and calls made for their effect. Left
alone are texts, docstrings, logging, decorators, what states an invariant (assert, zip's strict), and annotations
but for the calls in them (`Field(ge=1)`).
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
}
PAIRS = {"min": "max", "floor": "ceil", "any": "all"}
NAMES = PAIRS | {new: old for old, new in PAIRS.items()}
LOGGING = {"debug", "info", "warning", "error", "exception", "critical"}
PLAIN = (ast.Name, ast.Attribute, ast.Call, ast.NamedExpr)
SHOWN = 90  # characters of an expression in a mutant's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault. `where` and `change` name it, whatever line it stands on and however it is laid out."""

    file: str
    where: str
    change: str
    lines: range
    source: str


def mutants(file: str, source: str) -> list[Mutant]:
    """Every fault that a file can be given, in the order of its lines."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    made: list[Mutant] = []
    names = Counter[tuple[str, str]]()
    for where, change, node, text in sorted(finder.found, key=lambda found: found[2].lineno):
        names[where, change] += 1
        again = names[where, change]
        made.append(
            Mutant(
                file=file,
                where=where,
                change=change if again == 1 else f"{change} (no. {again})",
                lines=range(node.lineno, (node.end_lineno or node.lineno) + 1),
                source=finder.with_text(node, text),
            )
        )
    return made


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.raw = source.encode()
        self.starts = [0]
        for line in self.raw.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.scope: list[str] = []
        self.parents: list[ast.AST] = []
        self.found: list[tuple[str, str, ast.expr | ast.stmt, str]] = []

    def with_text(self, node: ast.expr | ast.stmt, text: str) -> str:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.starts[node.lineno - 1] + node.col_offset  # offsets are bytes
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        return (self.raw[:start] + text.encode() + self.raw[end:]).decode()

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr | ast.Assert) or (isinstance(node, ast.keyword) and node.arg == "strict"):
            return
        if isinstance(node, ast.expr):
            for new in _expressions(node, self.parents[-1]):
                self._note(node, f"({ast.unparse(new)})", f"{_short(node)} → {_short(new)}")
        elif isinstance(node, ast.stmt):
            for text in _statements(node):
                self._note(node, text, f"{_short(node)} → {text}")
        names = _names(node)
        self.scope += names
        self.parents.append(node)
        for name, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            for child in children:
                if name in {"annotation", "returns"}:
                    self._annotation(child)
                elif isinstance(child, ast.AST) and name != "decorator_list":
                    self.visit(child)
        self.parents.pop()
        del self.scope[len(self.scope) - len(names) :]

    def _annotation(self, node: object) -> None:
        if isinstance(node, ast.Call):
            self.visit(node)
        elif isinstance(node, ast.AST):
            for child in ast.iter_child_nodes(node):
                self._annotation(child)

    def _note(self, node: ast.expr | ast.stmt, text: str, change: str) -> None:
        if isinstance(node, ast.Constant):
            change += f" in {_short(self.parents[-1])}"
        self.found.append((".".join(self.scope), change, node, text))


def _names(node: ast.AST) -> list[str]:
    """What a node adds to the names of what is inside it."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [ast.unparse(target) for target in targets]


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _expressions(node: ast.expr, parent: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            ops = [*node.ops[:place], COMPARISONS[type(operator)](), *node.ops[place + 1 :]]
            yield ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))
    elif isinstance(node, ast.Name) and node.id in NAMES and isinstance(parent, ast.Call) and parent.func is node:
        yield ast.Name(NAMES[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield ast.Attribute(node.value, NAMES[node.attr])
    if isinstance(node, PLAIN) and _is_condition(node, parent):
        yield ast.UnaryOp(ast.Not(), node)


def _is_condition(node: ast.expr, parent: ast.AST) -> bool:
    if isinstance(parent, ast.comprehension):
        return node in parent.ifs
    return isinstance(parent, ast.If | ast.IfExp | ast.While) and parent.test is node


def _statements(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Raise | ast.Break | ast.Continue):
        yield "pass"
    elif isinstance(node, ast.Return) and not (
        node.value is None or (isinstance(node.value, ast.Constant) and node.value.value in (None, True, False))
    ):
        yield "return None"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        if not (isinstance(called, ast.Attribute) and called.attr in LOGGING):
            yield "pass"
    elif isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield ast.unparse(ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value))
