"""Imagined rollouts: how a language model is asked for one, how it may be trained to write them, and a
check of their steps against what recorded steps teach.

N steps, T steps of a rollout, O numbers of an observation.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, create_model

import palaestra as pl
from palaestra.recipes.llm4rl.imaginebench.rollouts import TaskRollout, pay_success

ASKS = 2
LONGER = 2  # times the steps of the longest recorded rollout that an imagined one may have
LEAST = 4096  # tokens of a reply, where there is room
READ = 60_000  # characters of a reply, of which some more are searched for JSON
HINGES, RIDGE = 16, 0.1
KEPT_REAL = 0.99  # share of recorded steps, not fitted to, that are near enough in a number
NEAR = 0.1  # deviations
HELD_OUT = 5  # one rollout in so many is not fitted to
QUESTION = """{about}

{examples}

Imagine a rollout in which an agent carries out the next instruction, step by step until it is done. \
Observations have {width} numbers, {actions}. Give at most {most} steps, each with the action and the \
observation after it.

Instruction: {instruction}
Start: {start}
"""
SCHEMA = """
Answer with JSON only: {"steps": [{"action": ..., "observation": [...]}, ...]}"""


@pl.value_class
class ImaginationLimits:
    """How long questions and replies may be. A token is taken for a character, as digits and commas often are.

    Args:
        examples: recorded rollouts that a question shows.
        longest: steps of an imagined rollout; 0 = twice those of the longest recorded one.
        context: tokens of a question and its reply together.
    """

    examples: int = 2
    longest: int = 0
    context: int = 32_768

    def most(self, sim: pl.control.Simulator, real: Sequence[TaskRollout]) -> int:
        """Steps of an imagined rollout, within the simulator's horizon and what is read of a reply."""
        long = max(real, key=len)
        read = READ * len(long) // len(spell_steps(long))
        return max(1, min(sim.horizon, self.longest or LONGER * len(long), read))

    def room(
        self,
        ctx: pl.Context,
        sims: Mapping[str, pl.control.Simulator],
        real: Sequence[TaskRollout],
        questions: int,
    ) -> int:
        """Tokens that a reply may have, by the longest recorded rollout, and says so.

        Raises UserError where a question and its reply are longer than the context.
        """
        long = max(real, key=len)
        n_examples = min(self.examples, len(real) - 1)
        text, sim = max(sims.items(), key=lambda named: self.most(named[1], real))
        most, each = self.most(sim, real), len(spell_steps(long)) / len(long)
        form = len(json.dumps(reply_form(sim).model_json_schema())) + 100  # and words about it
        spell = lambda n: len(spell_question(sim, text, long.obs[0], [long] * n, most)) + form
        question, reply = spell(n_examples), round(most * each)
        says = (
            f"questions with {n_examples} recorded rollouts (the longest has {len(long)} steps) have up to "
            f"{question} tokens, and replies of up to {most} steps {reply}"
        )
        if question + reply > self.context:
            fits = int((self.context - spell(0)) / each)
            shorter = f", or examples=0 longest={fits}" if 0 < fits < most else ", or examples=0"
            raise pl.UserError(
                f"imaginebench: {says}, more than context={self.context}; nothing was asked. Take "
                f"context={question + reply} if the model takes so many{shorter}, or rows of the file "
                'with "imagined": true, which another program wrote'
            )
        ctx.say(f"{questions} rollouts are asked for: {says}")
        return max(reply, min(LEAST, self.context - question))


class ImaginedStep(BaseModel):
    """A step of a rollout that a model writes."""

    model_config = ConfigDict(extra="ignore")
    action: Any
    observation: list[float]


class ImaginedSteps(BaseModel):
    """A rollout that a model writes, its start apart."""

    steps: list[ImaginedStep]


Finite = Annotated[float, Field(allow_inf_nan=False)]


def reply_form(sim: pl.control.Simulator) -> type[ImaginedSteps]:
    """The model of rollouts that fit a simulator: their lengths, finite numbers, and its actions."""
    if isinstance(sim.actions, pl.control.Box):
        D = sim.actions.size
        action: Any = (list[Finite], Field(min_length=D, max_length=D))
    else:
        action = (int, Field(ge=0, lt=sim.actions))
    O = sim.observation
    step = create_model(
        "ImaginedStep",
        __base__=ImaginedStep,
        action=action,
        observation=(list[Finite], Field(min_length=O, max_length=O)),
    )
    steps: Any = (list[step], Field(min_length=1, max_length=sim.horizon))
    return create_model("ImaginedSteps", __base__=ImaginedSteps, steps=steps)


def spell_row(x: Any) -> str:
    """Numbers as JSON, to four digits."""
    short = lambda y: int(y) if float(y).is_integer() else float(f"{y:.4g}")
    return json.dumps([short(y) for y in x] if np.ndim(x) else short(x))


def spell_steps(rollout: TaskRollout) -> str:
    """A rollout as a reply spells it."""
    steps = ", ".join(
        f'{{"action": {spell_row(a)}, "observation": {spell_row(o)}}}'
        for a, o in zip(rollout.act, rollout.next_obs, strict=True)
    )
    return f'{{"steps": [{steps}]}}'


def spell_question(
    sim: pl.control.Simulator,
    instruction: str,
    start: np.ndarray,
    examples: Sequence[TaskRollout],
    most: int,
) -> str:
    """What an imagined rollout of at most so many steps is asked for with: the simulator, recorded
    rollouts, the instruction and the first observation [O].
    """
    box = sim.actions if isinstance(sim.actions, pl.control.Box) else None
    actions = (
        f"actions are whole numbers from 0 to {int(sim.actions) - 1}"  # type: ignore[arg-type]
        if box is None
        else f"actions are {box.size} numbers from {list(box.low)} to {list(box.high)}"
    )
    example_texts = "\n\n".join(
        f"A recorded rollout of the instruction {json.dumps(r.instruction)} from {spell_row(r.obs[0])}:\n"
        f"{spell_steps(r)}"
        for r in examples
    )
    return QUESTION.format(
        about=str(getattr(sim, "about", "") or "An agent acts in a simulator."),
        examples=example_texts,
        width=sim.observation,
        actions=actions,
        most=most,
        instruction=instruction,
        start=spell_row(start),
    )


def draw_question(
    sim: pl.control.Simulator,
    instruction: str,
    real: Sequence[TaskRollout],
    key: pl.Key,
    limits: ImaginationLimits = ImaginationLimits(),
) -> tuple[np.ndarray, str]:
    """A first observation of a recorded rollout, and the question with it and other rollouts."""
    order = pl.rng_of(key).permutation(len(real))
    start = real[int(order[0])].obs[0]
    others = [real[int(i)] for i in order[1 : limits.examples + 1]]
    return start, spell_question(sim, instruction, start, others, limits.most(sim, real))


async def imagine_rollouts(
    ctx: pl.Context,
    source: pl.Source,
    sims: Mapping[str, pl.control.Simulator],
    real: Sequence[TaskRollout],
    each: int,
    key: pl.Key,
    limits: ImaginationLimits = ImaginationLimits(),
) -> tuple[list[TaskRollout], int]:
    """`each` rollouts for every instruction of `sims`, and the number of replies that did not fit.

    They say nothing of rewards, see `pay_success`. Raises UserError before a question is asked where they
    would be longer than the limits.
    """
    room = limits.room(ctx, sims, real, each * len(sims))

    async def one(i: int, number: int, text: str, sim: pl.control.Simulator) -> TaskRollout | None:
        start, question = draw_question(sim, text, real, (*key, i, number), limits)
        request = pl.ChatRequest(
            messages=pl.services.question_messages(question),
            temperature=1.0,
            seed=i * each + number,
            max_tokens=room,
        )
        try:
            reply = await ctx.ask_for(source, request, reply_form(sim), asks=ASKS)
        except pl.Fault as fault:
            if fault.cause != "chat-format":
                raise
            return None
        return pay_success(rollout_of(reply, text, start), real)

    asked = [
        one(i, number, text, sim)
        for i, (text, sim) in enumerate(sims.items())
        for number in range(each)
    ]
    rollouts = await asyncio.gather(*asked)
    return [r for r in rollouts if r is not None], sum(r is None for r in rollouts)


def rollout_of(reply: ImaginedSteps, text: str, start: np.ndarray) -> TaskRollout:
    """A reply as a rollout from its first observation [O], its rewards NaN."""
    after = np.array([step.observation for step in reply.steps], float)
    return TaskRollout(
        instruction=text,
        obs=np.concatenate([start[None], after[:-1]]),
        act=np.array([step.action for step in reply.steps]),
        next_obs=after,
        reward=np.full(len(after), np.nan),
        over=True,
        source="imagined",
    )


def training_rows(
    sims: Mapping[str, pl.control.Simulator],
    real: Sequence[TaskRollout],
    key: pl.Key,
    limits: ImaginationLimits = ImaginationLimits(),
) -> list[dict[str, str]]:
    """Rows for supervised fine-tuning of a model that is to imagine: of every recorded rollout the
    prediction of a step, its instruction from its steps, and the rollout from its instruction.
    """
    rows: list[dict[str, str]] = []
    for i, r in enumerate(real):
        rng = pl.rng_of((*key, i))
        t = int(rng.integers(len(r)))
        sim = sims[r.instruction]
        about = str(getattr(sim, "about", "") or "An agent acts in a simulator.")
        others = [real[int(j)] for j in rng.permutation(len(real)) if j != i][: limits.examples]
        question = spell_question(sim, r.instruction, r.obs[0], others, limits.most(sim, real))
        step = f"Observation: {spell_row(r.obs[t])}\nAction: {spell_row(r.act[t])}"
        from_start = f"From {spell_row(r.obs[0])}: {spell_steps(r)}"
        rows += [
            {
                "prompt": f"{about}\n\n{step}\nWhich observation follows?",
                "demonstration": spell_row(r.next_obs[t]),
            },
            {
                "prompt": f"{about}\n\n{from_start}\nWhich instruction was carried out?",
                "demonstration": r.instruction,
            },
            {"prompt": question + SCHEMA, "demonstration": spell_steps(r)},
        ]
    return rows


# ---- the check of imagined steps


class DynamicsCheck:
    """Predicts the change of an observation from it and the action: a ridge regression on the numbers of an
    observation and 16 random hinges of them, with weights of its own for each action that can be counted, and
    on the numbers of a continuous action too.

    It is fitted to recorded steps; one rollout in five is left out. A step passes if no number of it is
    further from the prediction than 99% of the steps left out are, in that number, and a tenth of its deviation
    is near enough. Fewer than five rollouts are all fitted to, and then the limits are too low.

    Args:
        actions: of the simulator.
    """

    def __init__(self, real: Sequence[TaskRollout], actions: int | pl.control.Box, key: pl.Key):
        self.actions = actions
        held = [r for i, r in enumerate(real) if i % HELD_OUT == HELD_OUT - 1]
        fitted = [r for i, r in enumerate(real) if i % HELD_OUT != HELD_OUT - 1]
        seen = np.concatenate([x for r in real for x in (r.obs, r.next_obs)])
        self.mean, self.scale = seen.mean(0), np.maximum(seen.std(0), 1e-3)
        inputs = len(self.mean) + (actions.size if isinstance(actions, pl.control.Box) else 0)
        self.hinge_IH = pl.rng_of((*key, "check")).normal(size=(inputs + 1, HINGES)) / inputs**0.5
        obs, act, after = steps_of(fitted)
        x_NF = self._features(obs, act)
        square = x_NF.T @ x_NF + RIDGE * np.eye(x_NF.shape[1])
        self.slope_FO = np.linalg.solve(square, x_NF.T @ ((after - obs) / self.scale))
        errors = self.errors(*steps_of(held or fitted))
        self.held = float(errors.mean())
        self.limit_O = np.maximum(np.quantile(errors, KEPT_REAL, axis=0), NEAR)

    def _features(self, obs: np.ndarray, act: np.ndarray) -> np.ndarray:
        """[N, F]"""
        box = isinstance(self.actions, pl.control.Box)
        parts = [(obs - self.mean) / self.scale, np.ones((len(obs), 1))]
        x = np.concatenate([act, *parts] if box else parts, -1)
        x = np.concatenate([x, np.maximum(x @ self.hinge_IH, 0)], -1)
        if isinstance(self.actions, pl.control.Box):
            return x
        return (np.eye(self.actions)[act][:, :, None] * x[:, None]).reshape(len(x), -1)

    def errors(self, obs: np.ndarray, act: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        """[N, O] how far each step is from the predicted one, in deviations of the recorded numbers."""
        change = self._features(obs, act) @ self.slope_FO
        return np.abs((next_obs - obs) / self.scale - change)

    def keeps(self, rollout: TaskRollout) -> np.ndarray:
        """[T] the steps that pass."""
        return np.asarray((self.errors(*steps_of([rollout])) <= self.limit_O).all(-1))


def steps_of(rollouts: Sequence[TaskRollout]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations, actions and next observations of all steps, one behind another."""
    columns = ("obs", "act", "next_obs")
    obs, act, after = (np.concatenate([getattr(r, c) for r in rollouts]) for c in columns)
    return obs, act, after
