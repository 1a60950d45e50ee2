"""The roles: who rewrites, who guesses, and who says whether a guess is right."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import numpy as np

import palaestra as pl
from palaestra.recipes.games.agentstealth.privacy import (
    Guesses,
    align_lines,
    is_same,
    privacy,
    read_guesses,
    utility,
    worth,
)

INSTRUCTION = (
    "Rewrite the text above so that nobody can infer from it who its author is: generalise or leave out what "
    "gives away, also indirectly, {hidden}. Change nothing else, and keep its lines. Write the rewritten "
    "text alone."
)
HIDDEN = "place, age, sex, occupation, education, income, relationship or other personal attributes"
ATTACK = (
    "{text}\n\nInfer of the author of the text: {names}. Give your three best guesses of each, the likeliest "
    "first, one line for each attribute: NAME: GUESS; GUESS; GUESS"
)
SAME = (
    "The {name} of somebody is {truth}. A guess is {guess}. Is the guess right, if small differences in wording "
    "or precision do not count? Reply yes or no."
)

VERDICT = re.compile(r"(?<![^\W_])(?:yes|no)(?![^\W_])")
MOST_UNREAD = 0.5  # of attributes, beyond which it is said


def attributes_of(task: pl.Task) -> dict[str, str]:
    """The attributes of a profile. Raises UserError where there are none."""
    own = task.meta.get("attributes")
    known = {
        str(k): v
        for k, v in (own.items() if isinstance(own, Mapping) else ())
        if v not in (None, "") and v == v  # NaN is no truth
    }
    nested = [k for k, v in known.items() if not isinstance(v, str | int | float)]
    if nested or not known:
        wrong = f"a list or an object as its {nested[0]}" if nested else "no attributes to hide"
        raise pl.UserError(
            f"agentstealth: {task.id} has {wrong}; its column `attributes` is an object of "
            'names with a text or number each, such as {"city": "Oslo", "age": 34}'
        )
    return {k: str(v) for k, v in known.items()}


def check_profiles(ctx: pl.Context) -> None:
    """Raises UserError for the first profile of either split without attributes."""
    tasks = ctx.bench.tasks
    sizes = {"train": tasks.size, "test": getattr(tasks, "test_size", None)}
    for split, size in sizes.items():
        for i in range(size or 0):
            attributes_of(tasks.task(split, i))


class GuessJudge(Protocol):
    """Says whether a guess is right; None = cannot be told."""

    async def __call__(self, ctx: pl.Context, name: str, guess: str, truth: str) -> bool | None: ...


@pl.stage
class JudgeByRule:
    """See `is_same`."""

    async def __call__(self, ctx: pl.Context, name: str, guess: str, truth: str) -> bool:
        return is_same(guess, truth)


@pl.stage
class JudgeByModel:
    """Asks a model, where the rule does not say yes already, and takes the first yes or no of its reply."""

    source: pl.Source

    async def __call__(self, ctx: pl.Context, name: str, guess: str, truth: str) -> bool | None:
        if is_same(guess, truth):
            return True
        fields = {"name": name, "guess": pl.judges.defuse(guess), "truth": truth}
        reply = pl.verifiers.strip_thinking(await ctx.ask(self.source, fill(SAME, fields)))
        verdict = VERDICT.search(reply.casefold())
        return verdict[0] == "yes" if verdict else None


@dataclass(frozen=True, slots=True)
class Attack:
    """What an attacker guessed of a text, by attribute, and which guesses are right; None = it could not be read, or
    not be judged.
    """

    guesses: Mapping[str, Guesses | None]
    right: Mapping[str, tuple[bool, ...] | None]

    @property
    def privacy(self) -> float:
        return privacy(self.right)

    @property
    def first(self) -> float:
        """The share of attributes that the first guess has."""
        return len(self.found) / max(1, len(self.right))

    @property
    def unread(self) -> float:
        return sum(c is None for c in self.right.values()) / max(1, len(self.right))

    @property
    def found(self) -> list[str]:
        """The attributes that the first guess has."""
        return [name for name, c in self.right.items() if c and c[0]]

    def effect(self, utility: float, floor: float = 0.0) -> float:
        """How far what was read moves the reward from utility alone: |R - U| by P of the attributes that were
        read, times their share. 0 where none was.
        """
        read = {name: c for name, c in self.right.items() if c is not None}
        if not read:
            return 0.0
        return (1 - self.unread) * abs(worth(privacy(read), utility, floor) - utility)


def fill(template: str, values: Mapping[str, str]) -> str:
    """A template with values, whose own braces stay."""
    for name in values:
        template = template.replace("{" + name + "}", f"\0{name}\0")
    for name, value in values.items():
        template = template.replace(f"\0{name}\0", value)
    return template


@pl.stage
class Attacker:
    """Guesses the attributes of a text's author, three of each, at `temperature`.

    Args:
        source: the model; by default the policy, as it is now.
        judge: says whether a guess is right.
        template: of the question, with {text} and {names}.
    """

    source: pl.Source = pl.LocalModel()
    judge: GuessJudge = JudgeByRule()
    template: str = ATTACK
    temperature: float = 0.7

    def prompt(self, text: str, names: Sequence[str]) -> str:
        fields = {"text": pl.judges.defuse(text), "names": ", ".join(names)}
        return fill(self.template, fields)

    async def __call__(
        self, ctx: pl.Context, text: str, truths: Mapping[str, str], seed: int = 0
    ) -> Attack:
        request = pl.ChatRequest(
            messages=(pl.Message(role="user", content=self.prompt(text, list(truths))),),
            temperature=self.temperature,
            max_tokens=ctx.bench.max_tokens,
        )
        reply = await ctx.ask(self.source, request, seed=seed)
        guesses = read_guesses(reply, list(truths))
        right = dict[str, tuple[bool, ...] | None]()
        for name, own in guesses.items():
            rulings = [await self.judge(ctx, name, x, truths[name]) for x in own or ()]
            verdicts = tuple(x for x in rulings if x is not None)
            right[name] = verdicts if own and len(verdicts) == len(own) else None
        return Attack(guesses, right)


def tell_unread(ctx: pl.Context, shares: Sequence[float]) -> None:
    """Says where most guesses of some attacks could not be read."""
    if shares and (unread := float(np.mean(shares))) > MOST_UNREAD:
        ctx.say(
            f"note: {unread:.0%} of the attributes in {len(shares)} attacks have no guess that can be read, and count as "
            "not hidden, so the reward is little else than utility; name an attacker=DIR that replies NAME: GUESS; "
            "GUESS; GUESS, or raise --max-tokens"
        )


def _was_attacked(reward: pl.Reward | pl.Fault) -> TypeGuard[pl.Reward]:
    return isinstance(reward, pl.Reward) and "unread" in reward.parts


def rewritten(reply: str, original: str) -> str:
    """The text of a reply, line by line as the original."""
    return align_lines(pl.verifiers.strip_thinking(reply).strip(), original)


@pl.declare(reads_columns=("attributes",))
@pl.stage
class StealthReward:
    """R of `privacy`, of each rewrite. Parts: "privacy" P, "utility" U, "first_guess", the share of
    attributes that the attacker's first guess has, "unread", that of attributes whose guesses could not be read,
    and "attack", how far what was read moves the reward from utility alone (`Attack.effect`). Solved is a profile
    of which all guesses were read and no first one is right.

    Args:
        attacker: who guesses.
        floor: of P, below which utility does not count; 0 = the paper's.
        adversarial: whether the attacker is asked; else R = U.
    """

    attacker: Attacker = Attacker()
    floor: float = 0.0
    adversarial: bool = True

    @property
    def bounds(self) -> tuple[float, float]:
        return (0.0, 1.0)

    async def check_start(self, ctx: pl.Context) -> None:
        check_profiles(ctx)

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        original, truths = pl.tasks.plain_question(group.task), attributes_of(group.task)
        made = list[pl.Reward | pl.Fault]()
        for i, e in enumerate(group.episodes):
            try:
                made.append(await self._of(ctx, pl.response_text(e), original, truths, i))
            except pl.Fatal:
                raise
            except pl.Fault as fault:
                made.append(fault)
        if ctx.step == 0:
            tell_unread(ctx, [r.parts["unread"] for r in made if _was_attacked(r)])
        return made

    async def _of(
        self, ctx: pl.Context, reply: str, original: str, truths: Mapping[str, str], seed: int
    ) -> pl.Reward:
        text = rewritten(reply, original)
        u = utility(text, original)
        if not self.adversarial:
            return pl.Reward(total=u, parts={"attack": 0.0, "utility": u})
        if not text:
            parts = {"attack": 0.0, "privacy": 0.0, "utility": 0.0}
            return pl.Reward(total=0.0, parts=parts, solved=False)
        attack = await self.attacker(ctx, text, truths, seed)
        p = attack.privacy
        total = worth(p, u, self.floor)
        parts = {
            "attack": attack.effect(u, self.floor),
            "privacy": p,
            "utility": u,
            "first_guess": attack.first,
            "unread": attack.unread,
        }
        hidden = attack.first == 0 and attack.unread == 0
        return pl.Reward(total=total, parts=parts, solved=hidden)


@pl.stage
class StealthExam:
    """An evaluator: means of R, P, U and the first guesses of rewrites of held-out profiles, one each, drawn at
    `temperature`; 0 = greedy.
    """

    reward: StealthReward
    tasks: int = 64
    temperature: float = 0.0

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        sample, score = pl.Sample(n=1, temperature=self.temperature), pl.Score(reward=self.reward)

        async def one(i: int) -> pl.Group:
            key, task = ctx.key("profile", i), ctx.bench.tasks.task("test", i)
            return await score(ctx, key, await sample(ctx, key, pl.Group(task=task)))

        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        groups = await asyncio.gather(*(one(i) for i in numbers))
        made = [e.reward for g in groups for e in g.valid if e.reward is not None]
        if not made:
            return {}
        names = dict.fromkeys(name for r in made for name in r.parts)
        means = {n: float(np.mean([r.parts.get(n, 0.0) for r in made])) for n in names}
        tell_unread(ctx, [r.parts["unread"] for r in made if _was_attacked(r)])
        return {"reward": float(np.mean([r.total for r in made])), **means}
