"""Programs of a language model: checked as text, run in the sandbox, their primitives carried out outside."""

import ast
import asyncio
import builtins
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.dahlia.tabletop import ManipulationWorld

ACTS = 40  # primitives of an attempt, and questions to co-planners
# (which co-planner, the arguments, the poses) to its answer; ValueError = it has none
Answers: TypeAlias = Callable[[str, Sequence[Any], Mapping[str, Any]], Awaitable[Any]]
RUN = """import contextlib, io, json, sys
given = json.load(sys.stdin)
wants, done = [], [0]

class Pause(BaseException):
    pass

def primitive(name, parameters):
    def call(*values, **named):
        if wants:
            raise Pause
        row = list(values)
        for p, default in list(parameters.items())[len(values):]:
            row += [named.pop(p)] if p in named else default
        if named or len(row) != len(parameters):
            raise TypeError(f"{name} takes {', '.join(parameters)}")
        row = json.loads(json.dumps(row))
        if done[0] == len(given["results"]):
            wants.append([name, row])
            raise Pause
        past = given["results"][done[0]]
        if past["call"] != [name, row]:
            raise RuntimeError("the program does not do the same again: it must not draw random numbers")
        done[0] += 1
        if past["error"]:
            raise ValueError(past["error"])
        return json.loads(json.dumps(past["value"]))
    return call

names = {n: primitive(n, p) for n, p in given["primitives"].items()}
names["poses"] = lambda: json.loads(json.dumps(given["poses"][done[0]]))
names["instruction"] = given["instruction"]
error = ""
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    try:
        for helper in given["helpers"]:
            exec(helper, names)
        exec(given["code"], names)
    except Pause:
        pass
    except BaseException as e:
        line = e.__traceback__.tb_next.tb_lineno if e.__traceback__.tb_next else 0
        error = f"{type(e).__name__} in line {line}: {e}"
judge = names.get("judge")
try:
    value = json.loads(json.dumps(names.get("answer"))) if given.get("answer") else None
except (TypeError, ValueError):
    value, error = None, error or "answer is no plain data"
answer = {
    "wants": wants, "error": "" if wants else error[:400], "value": value,
    "judge": judge if isinstance(judge, bool) else None,
}
print()
print(given["mark"] + json.dumps(answer))
"""


@pl.value_class
class ProgramRun:
    """How a program of an attempt went: where things are, the calls that it made, and its error, "" = none."""

    state: Any
    calls: tuple[str, ...] = ()
    error: str = ""


def parameters_of(signature: str) -> dict[str, tuple[Any, ...]]:
    """The parameters of "name(a, b: int, to=(0, 0)): what it does", each with its default, () = it has none.

    Raises ValueError for text that does not begin with a signature, for *a, **a, a bare * or / in one, and
    for a default that JSON does not hold.
    """
    for end in (match.start() for match in re.finditer(r"\)", signature)):
        try:
            head: Any = ast.parse(f"def {signature[: end + 1].strip()}: ...").body[0]
        except (SyntaxError, ValueError):
            continue
        given = head.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs:
            raise ValueError("parameters are names, with or without a default")
        defaults = [(json.loads(json.dumps(ast.literal_eval(value))),) for value in given.defaults]
        bare = [()] * (len(given.args) - len(defaults))
        return dict(zip([a.arg for a in given.args], [*bare, *defaults], strict=True))
    raise ValueError("there is no signature")


def plain_code(code: str) -> str:
    """A program without its fence, its words and lines as they were. Raises ValueError for one that is no
    Python, imports something, or names something with two underscores.
    """
    fence = re.search(r"```(?:python)?\n(.*?)```", code, re.DOTALL)
    text = (fence[1] if fence else code).strip("\n").rstrip()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"it is no Python: {error}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            raise ValueError(f"no imports: {ast.unparse(node)} may not be used")
        word = getattr(node, "id", None) or getattr(node, "attr", None)
        if isinstance(word, str) and word.startswith("__"):
            raise ValueError(f"{word} may not be used")
    return text


def undefined_calls(code: str, known: Sequence[str]) -> list[str]:
    """Names that a program calls, and neither it nor anything else defines, in their order."""
    tree = ast.parse(code)
    stores = {
        getattr(n, "id", "")
        for n in ast.walk(tree)
        if isinstance(getattr(n, "ctx", None), ast.Store)
    }
    stores |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    stores |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    calls = [
        n.func.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    ]
    defined = {*stores, *known, *dir(builtins)}
    return [name for name in dict.fromkeys(calls) if name not in defined]


def plain_data(value: Any) -> Any:
    """A copy of a value that a program may read. Raises UserError for one that JSON does not hold."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise pl.UserError(
            f"dahlia: poses and what primitives return are numbers, texts, lists and dictionaries: {error}"
        ) from None


async def _ask_sandbox(code: str, **given: Any) -> dict[str, Any]:
    """What a program wants next, or how it ended. Raises Fault where this machine has no sandbox."""
    mark = f"@@{secrets.token_hex(8)}"
    stdin = json.dumps({"code": code, "mark": mark, **given})
    ran = await asyncio.to_thread(pl.services.run_program, RUN, stdin)
    if ran.status == "refused":
        raise pl.Fault("sandbox", f"programs of a planner run in the sandbox alone: {ran.stderr}")
    try:
        return (
            json.loads(ran.stdout.rpartition(mark)[2])
            if ran.status == "ok"
            else _broken(ran.status)
        )
    except ValueError:
        return _broken("no answer")


def _broken(why: str) -> dict[str, Any]:
    return {"wants": [], "error": f"the program ended by {why}", "judge": None, "value": None}


async def run_plan(
    world: ManipulationWorld,
    state: Any,
    instruction: str,
    code: str,
    rng: np.random.Generator,
    helpers: Sequence[str] = (),
    co_planners: Mapping[str, str] | None = None,
    answers: Answers | None = None,
) -> ProgramRun:
    """Runs a program of primitives. It pauses at each one, which is carried out here, and is then run
    again with what came of all before it, so it sees the poses after each. Whatever a primitive raises is an
    error of the program, but what this package raises on purpose.

    Args:
        helpers: functions that are defined before, each a text of its own.
        co_planners: co-planners that a program may ask, by name with their signatures; `answers` has what they say.
    """
    co_planners = {} if answers is None else co_planners or {}
    primitives = {n: parameters_of(s) for n, s in {**co_planners, **world.primitives}.items()}
    given = {"primitives": primitives, "helpers": list(helpers), "instruction": instruction}
    results, poses, calls = list[dict[str, Any]](), [plain_data(world.poses(state))], list[str]()
    while True:
        answer = await _ask_sandbox(code, results=results, poses=poses, **given)
        if not answer["wants"]:
            return ProgramRun(state=state, calls=tuple(calls), error=answer["error"])
        if len(calls) == ACTS:
            return ProgramRun(state=state, calls=tuple(calls), error=f"more than {ACTS} primitives")
        name, arguments = answer["wants"][0]
        error, value, answered = "", None, answers if name in co_planners else None
        try:
            if answered is not None:
                value = await answered(name, arguments, poses[-1])
            else:
                state, value = world.act(state, name, arguments, rng)
        except (pl.UserError, pl.Fault):
            raise
        except ValueError as wrong:
            error = str(wrong) or "ValueError"
        except Exception as wrong:  # a model's argument that its world did not expect
            error = f"{type(wrong).__name__}: {wrong}"
        results.append({"call": [name, arguments], "value": plain_data(value), "error": error})
        poses.append(plain_data(world.poses(state)))
        spelled = ", ".join(json.dumps(a) for a in arguments)
        outcome = f" = {json.dumps(value)}" if answered is not None and not error else ""
        calls.append(f"{name}({spelled})" + (f": {error}" if error else outcome))


async def run_answer(
    poses: Mapping[str, Any], instruction: str, code: str, arguments: Mapping[str, Any]
) -> Any:
    """What a co-planner's program sets `answer` to, of poses and the `arguments` that it was asked with, which
    it sees by their names. Raises ValueError for one that ends in an error or sets nothing.
    """
    given = "".join(f"{name} = {value!r}\n" for name, value in arguments.items())
    ran = await _ask_sandbox(
        code,
        primitives={},
        helpers=[given],
        results=[],
        poses=[plain_data(poses)],
        instruction=instruction,
        answer=True,
    )
    if ran["error"] or ran["value"] is None:
        raise ValueError(ran["error"] or "no answer was set")
    return ran["value"]


async def run_judge(poses: Mapping[str, Any], instruction: str, code: str) -> bool | str:
    """What a program sets `judge` to, of poses alone; else why it set nothing."""
    answer = await _ask_sandbox(
        code,
        primitives={},
        helpers=[],
        results=[],
        poses=[plain_data(poses)],
        instruction=instruction,
    )
    if answer["judge"] is None:
        return answer["error"] or "it did not set judge to True or False"
    return answer["judge"]
