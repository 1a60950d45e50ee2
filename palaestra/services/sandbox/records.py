"""Classes of a task's setup that hold fields and nothing else, as `TreeNode` and `ListNode` do.

A reply has them too, without their helpers, and their instances cross between it and its test. What
a setup defines besides is the test's own: it may hold what is expected.
"""

from __future__ import annotations

import ast
import copy

EMPTY = ("list", "dict", "set", "tuple", "deque", "defaultdict")
KEPT = ("__init__", "__repr__", "__str__", "__eq__", "__lt__", "__hash__")
IMPORTED = ("typing", "dataclasses")


def record_classes(setup: str) -> tuple[str, tuple[str, ...]]:
    """The definitions of a setup's record classes as code for the reply, and their names."""
    try:
        tree = ast.parse(setup)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", ()
    classes = [bare for node in tree.body if (bare := bare_record(node)) is not None]
    if not classes:
        return "", ()
    imports = [
        n
        for n in tree.body
        if (isinstance(n, ast.ImportFrom) and n.module in IMPORTED)
        or (isinstance(n, ast.Import) and all(a.name in IMPORTED for a in n.names))
    ]
    future = ast.parse("from __future__ import annotations").body
    module = ast.Module(body=[*future, *imports, *classes], type_ignores=[])
    return ast.unparse(ast.fix_missing_locations(module)), tuple(n.name for n in classes)


def bare_record(node: ast.stmt) -> ast.ClassDef | None:
    """A record class without its helpers; None for any other statement."""
    if (
        not isinstance(node, ast.ClassDef)
        or node.keywords
        or not all(map(is_dataclass, node.decorator_list))
    ):
        return None
    if any(not isinstance(b, ast.Name) or b.id != "object" for b in node.bases):
        return None
    methods = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
    others = [n for n in node.body if not isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    if not all(map(is_declaration, others)):
        return None
    fields = bool(node.decorator_list) and any(isinstance(n, ast.AnnAssign) for n in others)
    if not fields and not ("__init__" in methods and stores_arguments(methods["__init__"])):
        return None
    if node.decorator_list and "__init__" in methods:
        return None
    bare = copy.copy(node)
    kept = [methods[n] for n in KEPT if n in methods and is_plain_method(methods[n])]
    bare.body = [*others, *kept]
    return bare


def is_dataclass(node: ast.expr) -> bool:
    return ast.unparse(node).partition("(")[0] in ("dataclass", "dataclasses.dataclass")


def is_declaration(node: ast.stmt) -> bool:
    """A docstring, `pass`, an annotation, or an attribute that is empty or one plain value."""
    match node:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.AnnAssign(value=value):
            return value is None or is_empty(value)
        case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
            return all(
                isinstance(n, ast.Constant | ast.Tuple | ast.List | ast.Load)
                for n in ast.walk(value)
            )
        case ast.Assign(value=value):
            return is_empty(value)
        case _:
            return False


def stores_arguments(init: ast.FunctionDef) -> bool:
    """Whether it has arguments and does nothing but keep them, or what is empty, in `self`."""
    names = {a.arg for a in (*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs)}
    defaults = [d for d in (*init.args.defaults, *init.args.kw_defaults) if d is not None]
    return (
        len(names) > 1
        and not init.decorator_list
        and all(map(is_empty, defaults))
        and all(is_declaration(n) if not is_store(n) else keeps(n, names) for n in init.body)
    )


def is_store(node: ast.stmt) -> bool:
    """Whether it sets attributes and nothing else."""
    match node:
        case ast.Assign(targets=targets):
            pass
        case ast.AnnAssign(target=target):
            targets = [target]
        case _:
            return False
    return all(
        isinstance(p, ast.Attribute) and isinstance(p.value, ast.Name)
        for target in targets
        for p in parts(target)
    )


def keeps(node: ast.stmt, names: set[str]) -> bool:
    """Whether what a statement stores is an argument, empty, or a choice between such."""
    value = getattr(node, "value", None)
    return value is not None and all(is_kept(v, names) for v in parts(value))


def parts(value: ast.expr) -> list[ast.expr]:
    return value.elts if isinstance(value, ast.Tuple) else [value]


def is_kept(value: ast.expr, names: set[str]) -> bool:
    match value:
        case ast.Name(id=name):
            return name in names
        case ast.BoolOp(values=values):
            return all(is_kept(v, names) for v in values)
        case ast.IfExp(body=body, orelse=orelse):
            return is_kept(body, names) and is_kept(orelse, names)
        case _:
            return is_empty(value)


def is_empty(value: ast.expr) -> bool:
    """One plain value, an empty container, or a dataclass's `field` of such."""
    match value:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=ast.Constant()):
            return True
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Call(func=ast.Name(id=name), args=[], keywords=[]):
            return name in EMPTY
        case ast.Call(func=ast.Name(id="field") | ast.Attribute(attr="field"), args=[]):
            return all(
                isinstance(k.value, ast.Constant)
                or (isinstance(k.value, ast.Name) and k.value.id in EMPTY)
                for k in value.keywords
            )
        case _:
            return False


def is_plain_method(node: ast.FunctionDef) -> bool:
    """Whether it reads nothing beyond its arguments and Python's own."""
    import builtins

    names = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
    bound = {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
    }
    read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    known = names | bound | {*dir(builtins), "deque", "defaultdict"}
    annotations = {
        n.id
        for a in ast.walk(node)
        if isinstance(a, ast.arg) and a.annotation
        for n in ast.walk(a.annotation)
        if isinstance(n, ast.Name)
    }
    return not node.decorator_list and not (read - known - annotations)
