"""Tasks that are done by a plan of the user's functions, chosen one after the other.

    user: undo the blur, then say what it shows    deblur    tool: Image    caption    tool: str    done

The types of OpenAGI (arXiv:2304.04370) are kept by the world: in each turn only those experts can be said
that take the type which is there and from whose result the type that is asked for can be reached.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.tasks.phrasing import question_text
from palaestra.types import (
    Act,
    Ask,
    Frame,
    Key,
    Message,
    Task,
    need_at_least,
    stage,
    value_class,
)
from palaestra.worlds.experts import (
    REMEMBERED,
    ExpertBox,
    close_experts,
    expert_box,
    metric_for,
    read_value,
)

DONE = "done"
UNFIT = -1.0  # what a plan is paid whose types do not fit
PLAN_IT = (
    "Choose functions that do this one after the other, and then {done}. Reply with one name a message. "
    "Their types have to fit.\n{experts}\nYou have: {takes}. Wanted: {gives}."
)


@value_class
class ExpertPlanState:
    """A plan under way. `at` is the type that is there, "" = the plan does not fit."""

    task: Task
    at: str
    gives: str
    plan: tuple[str, ...] = ()
    narrowed: tuple[float, ...] = ()  # by turn, the share of the names that the types rule out


@declare(
    facts=(
        "turns",
        "correct",
        ("plan", tuple, "the experts of a plan, in order"),
        ("plan_fits", bool, "whether the types of a plan fit"),
        ("narrowed", float, "the mean share of the names that the types ruled out"),
        ("expert_errors", int, "inputs for which an expert failed"),
        ("expert_error", str, "the first of these errors"),
    ),
    reads_columns=("inputs", "targets"),
)
@stage
class ExpertPlans:
    """Pays the mean metric of what the plan makes of the task's `inputs`, against its `targets`; -1 for a
    plan whose types do not fit, which only `legal=False` allows. An input for which an expert fails, or
    takes too long, scores 0.

    Args:
        experts: their names, FILE.py:NAME or FILE.py.
        turns: experts that a plan may have.
        legal: only what fits can be said; else any name, and a plan that does not fit ends.
        metric: see `palaestra.worlds.experts.METRICS`, or FILE.py:NAME; "" = that of the type.
        shots: solved tasks that are shown before the question.
        seconds: that an expert may take for an input.
        told: the experts and how to reply stand behind the question.
        paid: whether a finished plan is run; else it is paid 0.
        worked: whether the column `plan` is the oracle's.
        folder: to which paths in the data are relative.
        examples: solved tasks, (question, plan), of which the first are shown.
    """

    experts: tuple[str, ...]
    turns: int = 10
    legal: bool = True
    metric: str = ""
    shots: int = 0
    seconds: float = 10.0
    told: bool = False
    paid: bool = True
    worked: bool = False
    folder: str = "."
    examples: tuple[tuple[str, tuple[str, ...]], ...] = ()
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (UNFIT, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, turns=1, shots=0)
        if DONE in self.box.experts:
            raise UserError(f"no expert may be called {DONE!r}, which ends a plan; rename it")
        if self.metric:
            metric_for(self.metric, str)

    @property
    def box(self) -> ExpertBox:
        return expert_box(self.experts)

    @property
    def has_oracle(self) -> bool:
        return self.worked

    def close(self) -> None:
        close_experts(self.experts)

    def reset(self, task: Task, key: Key) -> Frame:
        inputs, targets = pairs_of(task)
        takes, gives = (
            self._named_type(task, column, values[0])
            for column, values in (("takes", inputs), ("gives", targets))
        )
        if not self.box.legal(takes, gives, self.turns):
            raise UserError(
                f"task {task.id!r}: no plan of {self.turns} experts leads from {takes} to {gives}; give an "
                "expert that does, or raise turns"
            )
        state = ExpertPlanState(task=task, at=takes, gives=gives)
        return self._ask(state, self._prompt(task, takes, gives))

    async def step(self, state: ExpertPlanState, acts: tuple[Act, ...], key: Key) -> Frame:
        name = acts[0].text.strip()
        if name == DONE:
            return await self._end(replace(state, at=state.at if state.plan else ""))
        expert = self.box.experts.get(name)
        fits = expert is not None and expert.takes == state.at
        state = replace(state, at=expert.gives if expert and fits else "", plan=(*state.plan, name))
        over = len(state.plan) >= self.turns
        if not fits or over:
            return await self._end(state)
        return self._ask(state, (Message(role="tool", content=state.at),))

    def oracle(self, state: ExpertPlanState) -> str:
        """The next expert of the column `plan`. Raises UserError without one, or for one that does not
        fit.
        """
        plan = plan_of(state.task)
        if plan is None:
            raise UserError(
                f"task {state.task.id!r} has no plan to show; write it in the column plan, as "
                '["deblur", "caption"]'
            )
        at = len(state.plan)
        name = plan[at] if at < len(plan) else DONE
        if name not in self._choices(state):
            raise UserError(
                f"task {state.task.id!r}: its plan has {name!r} behind {list(plan[:at])}, and there fit "
                f"{', '.join(self._choices(state))}"
            )
        return name

    async def score(self, task: Task, plan: tuple[str, ...]) -> tuple[float, str, int]:
        """The mean metric of a plan that fits, its first error and how many inputs it failed for."""
        inputs, targets = pairs_of(task)
        gives = self.box.experts[plan[-1]].gives
        key = (plan, self.metric, digest(inputs, targets))
        if key in self.box.scores:
            return self.box.scores[key], "", 0
        hints = self.box.types[self.box.experts[plan[0]].takes], self.box.types[gives]
        own = f"task {task.id!r}: an input", f"task {task.id!r}: a target"
        values = [read_value(x, hints[0], self.folder, own[0]) for x in inputs]
        golds = [read_value(x, hints[1], self.folder, own[1]) for x in targets]
        metric = metric_for(self.metric, hints[1])
        results = await self.box.run(plan, values, self.seconds)
        each = [
            0.0 if e else metric(out, gold) for (out, e), gold in zip(results, golds, strict=True)
        ]
        errors = [e for _, e in results if e]
        mean = sum(each) / len(each)
        if not errors and len(self.box.scores) < REMEMBERED:
            self.box.scores[key] = mean
        return mean, errors[0] if errors else "", len(errors)

    def _named_type(self, task: Task, column: str, first: Any) -> str:
        named = task.meta.get(column)
        if named is None:
            what = "input" if column == "takes" else "target"
            return self.box.type_of(first, f"task {task.id!r}: its first {what}")
        if named not in self.box.types:
            raise UserError(
                f"task {task.id!r}: {column} is {named!r}, which is no type of an expert; there are "
                f"{', '.join(self.box.types)}"
            )
        return str(named)

    def _prompt(self, task: Task, takes: str, gives: str) -> tuple[Message, ...]:
        *before, last = task.prompt
        question = question_text(task)
        others = [x for x in self.examples if x[0] != question][: self.shots]
        examples = "\n\n".join(f"{q}\n{', '.join((*p, DONE))}" for q, p in others)
        text = "\n\n".join(filter(None, (examples, last.content)))
        if self.told:
            about = "\n".join(
                f"- {e.name}: {e.takes} -> {e.gives}{f'. {e.about}' if e.about else ''}"
                for e in self.box.experts.values()
            )
            instruction = PLAN_IT.format(done=DONE, experts=about, takes=takes, gives=gives)
            text = f"{text}\n\n{instruction}"
        return (*before, replace(last, content=text))

    def _choices(self, state: ExpertPlanState) -> tuple[str, ...]:
        if not self.legal:
            return (*self.box.experts, DONE)
        ends = (DONE,) if state.plan and state.at == state.gives else ()
        left = self.turns - len(state.plan)
        return (*self.box.legal(state.at, state.gives, left), *ends)

    def _ask(self, state: ExpertPlanState, say: tuple[Message, ...]) -> Frame:
        choices = self._choices(state)
        ruled_out = 1 - len(choices) / (len(self.box.experts) + 1)
        state = replace(state, narrowed=(*state.narrowed, ruled_out))
        ask = Ask(seat="policy", say=say, choices=choices)
        return Frame(state=state, asks=(ask,), facts=facts(state), state_key=state.plan)

    async def _end(self, state: ExpertPlanState) -> Frame:
        fits = state.at == state.gives
        paid, error, failures = UNFIT, "", 0
        if fits:
            ran = self.score(state.task, state.plan) if self.paid else None
            paid, error, failures = await ran if ran else (0.0, "", 0)
        end_facts = {
            **facts(state),
            "plan_fits": fits,
            "correct": fits and paid >= self.solved,
            "expert_errors": failures,
            **({"expert_error": error} if error else {}),
        }
        return Frame(state=state, pay={("policy", ""): paid}, facts=end_facts, state_key=state.plan)


def facts(state: ExpertPlanState) -> Mapping[str, Any]:
    narrowed = state.narrowed
    return {
        "turns": len(state.plan),
        "plan": state.plan,
        "narrowed": sum(narrowed) / len(narrowed) if narrowed else 0.0,
        "correct": False,
    }


def plan_of(task: Task) -> tuple[str, ...] | None:
    """The column `plan`: a list of names, or a text with commas between them; None = it is not there."""
    plan = task.meta.get("plan")
    if isinstance(plan, str):
        plan = [x.strip() for x in plan.split(",")]
    if plan is None or not list(plan):
        return None
    names = tuple(map(str, plan))
    return names[:-1] if len(names) > 1 and names[-1] == DONE else names


def pairs_of(task: Task) -> tuple[list[Any], list[Any]]:
    """The inputs and targets of a task. Raises UserError where they are not as many, or none."""
    inputs, targets = (listed(task.meta.get(c)) for c in ("inputs", "targets"))
    if not task.prompt or not inputs or len(inputs) != len(targets):
        raise UserError(
            f"task {task.id!r}: a task of experts has a prompt, 'inputs' and as many 'targets', each a "
            f"list; it has {len(inputs)} and {len(targets)}"
        )
    return inputs, targets


def listed(values: Any) -> list[Any]:
    return [] if values is None else list(values) if isinstance(values, list | tuple) else [values]


def digest(*values: Any) -> str:
    """Of values of JSON and arrays."""
    text = json.dumps(values, sort_keys=True, default=lambda x: x.tolist())
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
