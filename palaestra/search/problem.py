"""What a strategy of search is given, and what it gives back.

@dataclass(frozen=True)
class FirstOfAll:
    async def __call__(self, problem):
        answers = await problem.sample()
        return problem.result(answers[0] if answers else None, answers)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from palaestra.abilities import bounds_of
from palaestra.context import Context, RewardFn
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.rewards.verify import response_text
from palaestra.rewards.votes import vote_of
from palaestra.rollout.collect import Sample, Score, judge_group
from palaestra.rollout.search import TreeSearch
from palaestra.run.context import RunContext
from palaestra.search.lines import LineWriter, line_writer
from palaestra.search.tokens import TokenBudget
from palaestra.types import Episode, Group, Key, Message, Reward, Task, stage, value_class
from palaestra.worlds.question import Question

WAVE = 64  # whole answers to one problem at a time


@value_class
class SearchResult:
    """What a search found: the episode it chose (None = none could be made), how many it chose from,
    and the score or the votes that it chose by; NaN where it chose by none.
    """

    episode: Episode | None
    candidates: int
    score: float = math.nan


@runtime_checkable
class Strategy(Protocol):
    """A way to spend a budget on one problem: a frozen dataclass with this one method."""

    async def __call__(self, problem: SearchProblem) -> SearchResult: ...


@runtime_checkable
class ReadsGold(Protocol):
    """A strategy that says of itself that it looks at the gold answer. Without it, it does not."""

    @property
    def oracle(self) -> bool: ...


@dataclass
class SearchProblem:
    """A problem with its budget, as a strategy sees it: what it can sample, and what it may know.

    Args:
        ctx: of the run.
        key: all that is drawn for the problem has a key that begins so.
        whole: the task with its answer, which worlds and verifiers read.
        tokens: the budget.
        scorer: a reward that is asked without the gold answer; None = the verifier of the problem,
            which has it.
    """

    ctx: RunContext = field(repr=False)
    key: Key
    whole: Task = field(repr=False)
    tokens: TokenBudget
    scorer: RewardFn | None = None
    oracle: bool = field(default=False, init=False)  # it asked a verifier that has the gold answer
    drawn: Group = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.drawn = Group(task=self.whole)

    @property
    def task(self) -> Task:
        """The problem without its answer, and without what else the data say of it."""
        return blind(self.whole)

    @property
    def left(self) -> int:
        """Tokens that may still be generated."""
        return self.tokens.left

    # ---- what can be sampled

    async def sample(self, n: int = 0, temperature: float = 1.0) -> list[Episode]:
        """Whole answers, the earlier ones included, each with a random stream of its own.

        The last one is cut where the budget ends, so a budget is spent to the token. Answers that
        infrastructure failed for are left out.

        Args:
            n: how many more; 0 = until the budget is spent.
            temperature: of the sampling.
        """
        bench = self.ctx.bench
        one_turn = isinstance(bench.world, Question)
        longest = bench.max_tokens * (1 if one_turn else bench.max_turns)
        first = len(self.drawn.episodes)
        while self.left and (not n or len(self.drawn.episodes) < first + n):
            before = self.left
            wave = max(1, min(self.left // longest, WAVE))
            wave = min(wave, first + n - len(self.drawn.episodes)) if n else wave
            link = Sample(n=wave, temperature=temperature)
            self.drawn = await link(self.ctx, (*self.key, "sample"), self.drawn)
            if self.left == before:
                break
        return [e for e in self.drawn.valid if e.n_sampled]

    async def answer(
        self, prompt: tuple[Message, ...], name: str, temperature: float = 1.0
    ) -> Episode | None:
        """One whole answer to another prompt in place of the problem's own; None where nothing could
        be sampled.

        Args:
            prompt: the conversation that is shown.
            name: of the random stream: each name has its own.
        """
        asked = Group(task=replace(self.whole, prompt=prompt))
        link = Sample(n=1, temperature=temperature)
        (episode,) = (await link(self.ctx, (*self.key, name), asked)).episodes
        return replace(episode, prompt=prompt) if episode.ok and episode.n_sampled else None

    async def tree(self, search: TreeSearch) -> list[Episode]:
        """The answers of a tree of lines, whose scores, as of `weigh`, are their rewards."""
        led = replace(search, score=Weigh(self), openings=self.left, tokens=self.left)
        group = await led(self.ctx, (*self.key, "tree"), Group(task=self.whole))
        return [e for e in group.valid if e.n_sampled and e.reward is not None]

    async def lines(self, temperature: float = 1.0) -> LineWriter:
        """What writes an answer line by line. Raises UserError in a world of several turns."""
        return await line_writer(self.ctx, self.key, self.whole, temperature)

    # ---- what may be known

    async def score(self, episodes: Sequence[Episode]) -> np.ndarray:
        """[N] scores of answers, whole or not; -inf where nothing can be said.

        With a scorer of its own they are given without the gold answer. Else the verifier of the
        problem says them, and the search is an oracle.
        """
        if not episodes:
            return np.empty(0)
        if self.scorer is not None:
            bare = tuple(replace(e, reward=None) for e in episodes)
            rewards = await judge_group(self.ctx, self.scorer, Group(task=self.task, episodes=bare))
            totals = [r.total if isinstance(r, Reward) else -math.inf for r in rewards]
            if all(math.isinf(x) for x in totals):
                raise UserError(
                    f"the scorer says nothing of any answer to {self.whole.id!r}: {rewards[0]}"
                )
            return np.array(totals)
        need_verifier(self.ctx)
        self.oracle = True
        group = Group(task=self.whole, episodes=tuple(episodes))
        scored = await Score()(self.ctx, (*self.key, "score"), group)
        return np.array([e.total if e.ok and e.reward else -math.inf for e in scored.episodes])

    def weigh(self, scores_N: np.ndarray) -> np.ndarray:
        """[N] scores as weights that are not negative: as they are where they cannot be, else their
        sigmoid, which of a reward model that was trained on comparisons is the chance to be
        preferred to an answer that scores 0.
        """
        bounds = bounds_of(self.scorer)
        if self.scorer is None or (bounds is not None and bounds[0] >= 0):
            return np.maximum(scores_N, 0.0)
        return np.array([1 / (1 + math.exp(-x)) if x > -700 else 0.0 for x in scores_N])

    def result(
        self, episode: Episode | None, candidates: Sequence[Episode], score: float = math.nan
    ) -> SearchResult:
        """What is given back: the chosen one of some answers, with what it was chosen by."""
        return SearchResult(episode=episode, candidates=len(candidates), score=score)


@declare(
    facts=(("world_pay", Reward, "what the world paid, where a search has scored the answer"),)
)
@stage
class Weigh:
    """Gives every episode the weight of its score in a search as its reward; what failed is left out."""

    problem: SearchProblem

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        able = list(group.valid)
        scores_N = await self.problem.score(able)
        pairs = zip(able, scores_N, self.problem.weigh(scores_N), strict=True)
        return replace(group, episodes=tuple(self._paid(*each) for each in pairs))

    @staticmethod
    def _paid(e: Episode, score: float, weight: float) -> Episode:
        """A score that nobody could give is an error, never a 0."""
        if not math.isfinite(score):
            return replace(e, status="error:score", reward=None)
        facts = e.facts if e.reward is None else {**e.facts, "world_pay": e.reward}
        return replace(e, reward=Reward(total=float(weight)), facts=facts)


def unweighed(episode: Episode) -> Episode:
    """The episode with what the world paid in place of the search's weight."""
    return replace(episode, reward=episode.facts.get("world_pay"))


def blind(task: Task) -> Task:
    """A task without its gold answer, and without the other columns of its data."""
    return replace(task, answer=None, meta={})


def need_verifier(ctx: Context) -> None:
    """Raises UserError where nothing says what is right."""
    if ctx.bench.reward is None and isinstance(ctx.bench.world, Question):
        raise UserError(
            f"{ctx.bench.name} has no answers, so no verifier can choose; give --reward-model DIR, or "
            "search with --with majority"
        )


def whole_or_all(episodes: Sequence[Episode]) -> list[Episode]:
    """Those that came to their end; where all were cut, all of them."""
    return [e for e in episodes if not e.status.startswith("truncated")] or list(episodes)


def vote_of_episode(episode: Episode, task: Task) -> str:
    """`vote_of` what was said last to a task."""
    return vote_of(response_text(episode), "\n".join(m.content for m in task.prompt))
