"""Labels, and what is done with them beside the reward: what people would say of an answer, where a
program says it.

links(Sample(n=8), Score(reward=Learned("reward")), Beside(Labels(), "label")) # parts label/right,
label/brief, ... links(Sample(n=8), Score(reward=judge), Also(Verdicts(judge, verdict))) # rows that
another learner trains on
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from palaestra.context import Collect, RewardFn
from palaestra.errors import Fault, UserError
from palaestra.rewards.verify import response_text
from palaestra.rollout.collect import judge_group
from palaestra.rollout.recorded import recorded_episode
from palaestra.tasks.procedural import ANSWER_PREFIX, answer_lines
from palaestra.types import Group, Key, Reward, Task, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Context

QUALITY_LABELS = ("right", "worked", "brief", "tidy")
# lines of a full working; characters from which on an answer is not brief
STEPS, BRIEF_LIMIT = 3, 40


def text_properties(text: str) -> dict[str, float]:
    """What can be seen without knowing the answer, each in [0, 1]: "worked" and "brief" pull
    against one another.

    worked: lines before the last, 3 count 1. brief: 1 for no text, 0 from 40 characters on. tidy:
    the last line is the only answer line, and no line stands twice. An empty answer is brief and
    nothing else.
    """
    lines = answer_lines(text)
    answers = [line.startswith(ANSWER_PREFIX) for line in lines]
    return {
        "worked": min(1.0, max(0, len(lines) - 1) / STEPS),
        "brief": max(0.0, 1 - len(text.strip()) / BRIEF_LIMIT),
        "tidy": float(
            bool(lines) and answers[-1] and sum(answers) == 1 and len(set(lines)) == len(lines)
        ),
    }


@stage
class Labels:
    """The bench's verdict as the part "right", beside `text_properties`; the total is the weighted
    mean of all four.

    Four questions that a person could be asked of an answer, for reward models of several labels,
    rules or principles.
    """

    weights: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        if ctx.bench.reward is None:
            raise UserError(
                f"Labels needs a bench that checks answers; the world {ctx.bench.name!r} pays by "
                "itself"
            )
        labelled: list[Reward | Fault] = []
        for episode, gold in zip(
            group.episodes, await judge_group(ctx, ctx.bench.reward, group), strict=True
        ):
            if isinstance(gold, Fault):
                labelled.append(gold)
                continue
            parts = {"right": gold.total, **text_properties(response_text(episode))}
            total = sum(
                w * parts[name] for w, name in zip(self.weights, QUALITY_LABELS, strict=True)
            )
            labelled.append(Reward(total=total, parts=parts))
        return labelled


@stage
class RecordedRatings:
    """Adds the task's column `reply` as an episode that `model` learns from; each number of its
    column `ratings`, such as {"polite": 0.8}, is a part label/NAME, and their mean is the reward.

    For reward models of answers that people, or a better model, have rated.

    Args:
        labels: the names that are read; a rating that a record has not is left out.
        model: the learner that is trained on them.

    Raises:
        UserError: a task has no reply, no rating of one of these names, or one outside [0, 1].
    """

    labels: tuple[str, ...]
    model: str = "reward"
    recorded: ClassVar[bool] = True

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        task, ratings = group.task, self.ratings(group.task)
        made = recorded_episode(
            ctx, self.model, task.prompt, str(task.meta["reply"]), 0.0,
            of=f"task {task.id!r}: its reply",
        )  # fmt: skip
        parts = {f"label/{name}": x for name, x in ratings.items()}
        reward = Reward(total=sum(ratings.values()) / len(ratings), parts=parts)
        return replace(group, episodes=(*group.episodes, replace(made, reward=reward)))

    def ratings(self, task: Task) -> dict[str, float]:
        """The ratings of a task that have one of the names."""
        given = task.meta.get("ratings")
        if "reply" not in task.meta or not isinstance(given, Mapping):
            raise UserError(
                f"task {task.id!r} has no rated answer; give it the columns `reply`, a text, and "
                f"`ratings`, such as {{{', '.join(f'{name!r}: 1.0' for name in self.labels[:2])}}}"
            )
        named = {name: given[name] for name in self.labels if given.get(name) is not None}
        if not named:
            raise UserError(
                f"task {task.id!r} is rated by {', '.join(map(str, given)) or 'nobody'}, and none of "
                f"{', '.join(self.labels)}, which this method learns"
            )
        for name, x in named.items():
            if isinstance(x, bool) or not isinstance(x, int | float) or not 0 <= x <= 1:
                raise UserError(
                    f"task {task.id!r}: its rating {name!r} is {x!r}; give a number from 0 to 1"
                )
        return {name: float(x) for name, x in named.items()}


@stage
class Noisy:
    """Every number x of a reward in [0, 1], total and parts apart, is said to be 1 - x with
    probability `share`.
    """

    reward: RewardFn | None = None  # None = the bench's
    share: float = 0.2

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        judge = self.reward or ctx.bench.reward
        if judge is None:
            raise UserError(f"Noisy needs a reward; the world {ctx.bench.name!r} pays by itself")
        rng = rng_of(("noise", ctx.seed, ctx.step, group.task.id))

        def said_of(x: float) -> float:
            return 1 - x if rng.random() < self.share else x

        rewards = await judge_group(ctx, judge, group)
        return [
            r
            if isinstance(r, Fault)
            else replace(
                r, total=said_of(r.total), parts={k: said_of(v) for k, v in r.parts.items()}
            )
            for r in rewards
        ]


@stage
class Beside:
    """A further reward of every scored episode, as the part `name` and its parts as `name/PART`; it
    trains no policy.

    A fault leaves the episode as it is, without the part.
    """

    reward: RewardFn
    name: str

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        at = [i for i, e in enumerate(group.episodes) if e.ok and e.reward is not None]
        episodes = list(group.episodes)
        asked = replace(group, episodes=tuple(episodes[i] for i in at))
        for i, reward in zip(at, await judge_group(ctx, self.reward, asked), strict=True):
            own = episodes[i].reward
            if own is not None and isinstance(reward, Reward):
                parts = {**own.parts, self.name: reward.total, **self._named(reward.parts)}
                episodes[i] = replace(episodes[i], reward=replace(own, parts=parts))
        return replace(group, episodes=tuple(episodes))

    def _named(self, parts: Mapping[str, float]) -> dict[str, float]:
        return {f"{self.name}/{k}": v for k, v in parts.items()}


@stage
class Also:
    """What `link` makes of the scored episodes, as one more row of each: another learner trains on
    it, the policy does not.
    """

    link: Collect

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        at = [i for i, e in enumerate(group.episodes) if e.ok and e.reward is not None]
        episodes = list(group.episodes)
        made = await self.link(ctx, key, replace(group, episodes=tuple(episodes[i] for i in at)))
        for i, other in zip(at, made.episodes, strict=True):
            episodes[i] = replace(episodes[i], rows=(*episodes[i].rows, other.rows[-1]))
        return replace(group, episodes=tuple(episodes))
