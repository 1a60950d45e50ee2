"""What a test takes from the candidate, read from the test's own text: a helper that the candidate
defines decides the test.
"""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace

from palaestra.errors import UserError
from palaestra.services.sandbox.records import record_classes
from palaestra.services.sandbox.values import Asserts, Calls, CheckScript

BUILTIN_NAMES = {*dir(builtins), "inf", "nan"}  # the two that `repr` writes as names


def script(test: Asserts | Calls) -> CheckScript:
    """A test as code for the tester's process. Raises UserError for one that is no Python or leaves
    open what is asked for.
    """
    if isinstance(test, Calls):
        call = f"{test.function}({', '.join(map(repr, test.args))})"
        wanted = (test.function.partition("(")[0].partition(".")[0],)
        if not wanted[0].isidentifier():
            raise UserError(
                f"test of the function {test.function[:60]!r}: that is no name; give one"
            )
        return resolve_names(
            f"import peer\nassert peer.same({call}, {test.expected!r})", call, wanted
        )
    names = resolve_names(
        f"{test.setup}\n{test.code}" if test.setup else test.code, test.code, test.names
    )
    given, records = record_classes(test.setup)
    return replace(names, given=given, records=records)


def resolve_names(code: str, test: str, declared: tuple[str, ...]) -> CheckScript:
    """The code with the names that it takes from the candidate: of `declared` those it reads, else
    the one that it needs.
    """
    where = f"test {test[:60]!r}"
    try:
        with warnings.catch_warnings():  # Python's remarks on the style of the test
            warnings.simplefilter("ignore")
            read, called = names_in(code), calls_in(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(
            f"{where} is no Python: {' '.join(str(error).split())}; give code that compiles"
        ) from None
    needed = read - BUILTIN_NAMES - set(declared)
    modules = {n for n in needed if n in sys.stdlib_module_names and n not in called}
    free = needed - modules
    if declared and free:
        raise UserError(
            f"{where} reads {join_names(free)}, which neither it nor the task defines; define it in "
            "`setup`"
        )
    if len(free) > 1:
        raise UserError(
            f"{where} would take {join_names(free)} from the reply; give helpers in `setup`, and "
            "what the reply defines as `entry_point`, one name or several"
        )
    return CheckScript(
        code=code,
        wanted=tuple(sorted(free or read & set(declared))),
        modules=tuple(sorted(modules)),
    )


def join_names(names: set[str]) -> str:
    return " and ".join(map(repr, sorted(names)))


def names_in(code: str) -> set[str]:
    """Global names that code reads and never binds. A star import would bind names that nobody
    sees: UserError.
    """
    module = symtable.symtable(code, "test", "exec")
    read, bound = set[str](), {"__file__", "__doc__", "__name__", "__builtins__", "__spec__"}
    for table in scopes(module):
        for symbol in table.get_symbols():
            if table is module or symbol.is_global():
                made = (
                    symbol.is_assigned()
                    or symbol.is_imported()
                    or (table is module and symbol.is_namespace())
                )
                (bound if made else read).add(symbol.get_name())
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            raise UserError(f"a test imports everything of {node.module!r}; name what it imports")
    return read - bound


def scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for inner in table.get_children():
        yield from scopes(inner)


def calls_in(code: str) -> set[str]:
    return {
        n.func.id
        for n in ast.walk(ast.parse(code))
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
