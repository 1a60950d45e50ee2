"""Search over the steps of an answer: a tree whose nodes are what was said so far, cut at line ends,
and whose openings are answers that go on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from palaestra.context import Collect, RewardFn
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.rollout.branch import Prefix, continuation, prefix
from palaestra.rollout.collect import Score, judge_group
from palaestra.rollout.steps import Step, answer_steps
from palaestra.rollout.tree import Branch, Opening, SearchTree, Selection, Uct, grow_tree
from palaestra.types import (
    Episode,
    Group,
    Key,
    Reward,
    Row,
    Sampling,
    Segment,
    Task,
    need_at_least,
    stage,
    value_class,
)

if TYPE_CHECKING:
    from palaestra.context import Context


@declare(
    facts=(
        ("opened", int, "the number of the node of the tree that it went on from"),
        ("shared", int, "tokens that it shares with the node"),
    )
)
@stage
class TreeSearch:
    """Answers from a tree of steps (lines of what the policy says), as in VM-MCTS of ReST-RL
    (github.com/THUDM/ReST-RL, read at its defaults).

    Opening a node samples `n` whole answers that begin as the node does. Their first new steps are
    its children, equal ones once. Without `value` the node has as many visits as answers, worth
    their scores, and its children are the first `children` that were seen. With `value` it is asked
    of every child; the best of them are kept, and each counts as a visit for every answer that
    began so, while the answers' own scores lead nowhere.

    All answers are attempts of the group, with the facts `opened` = the number of the opening that
    gave them, from 0, and `shared` = tokens that they repeat. An answer that fails by a fault counts
    nowhere. Where all do, the node has no value; a child that cannot be valued has none.

    Args:
        openings: of nodes at most; answers are `openings * n`, exactly, unless every node was
            opened before or the tokens are spent.
        n: answers an opening.
        children: of a node.
        select: which node is opened next.
        score: the link that scores an answer, e.g. `Score()`, or a learned value where no judge may
            be asked.
        value: a reward of what has been said so far, as episodes that break off there; None = the
            scores of whole answers lead the search.
        tokens: nothing is opened once so many were sampled; 0 = no limit.
        width: nodes that are opened at a time.
        temperature: of the answers.
        model: whose answers.

    The prior of a child is the mean probability of its step: exp of the mean log-prob of its tokens.
    In the released code an end of an answer may be chosen again, which opens nothing and counts its
    value once more; here it is never chosen.
    """

    openings: int = 15
    n: int = 5
    children: int = 3
    select: Selection = Uct()
    score: Collect = Score()
    value: RewardFn | None = None
    tokens: int = 0
    width: int = 1
    temperature: float = 1.0
    model: str = "policy"

    def __post_init__(self) -> None:
        need_at_least(self, openings=1, n=1, children=1, tokens=0, width=1)
        if self.temperature <= 0:
            raise UserError("TreeSearch(temperature=0): all answers from a node would be one")

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        sampling = Sampling(temperature=self.temperature, max_tokens=ctx.bench.max_tokens)
        starts: dict[Hashable, Start] = {(): Start(prefix=Prefix(said=(), context=()), steps=0)}
        opened, spent = dict[Key, Sequence[Episode]](), 0

        async def expand(state: Hashable, at: Key) -> Opening:
            nonlocal spent
            start = starts[state]
            first = self.n * int(at[-1])  # keys side by side, so that all see one world
            tried = await asyncio.gather(
                *(
                    continuation(ctx, (*key, i), group.task, start.prefix, sampling, self.model)
                    for i in range(first, first + self.n)
                )
            )
            spent += sum(e.n_sampled - start.sampled for e in tried if e.ok)
            scored = await self.score(ctx, at, Group(task=group.task, episodes=tuple(tried)))
            opened[at] = scored.episodes
            return await self._opening(ctx, scored, start, starts)

        def select(tree: SearchTree) -> int | None:
            return None if self.tokens and spent >= self.tokens else self.select(tree)

        tree = await grow_tree((), expand, select, self.openings, key=key, width=self.width)
        episodes = (
            replace(
                e, facts={**e.facts, "opened": i, "shared": starts[tree.nodes[at].state].sampled}
            )
            for i, at in enumerate(tree.opened)
            for e in opened[(*key, at)]
        )
        return replace(group, episodes=(*group.episodes, *episodes))

    async def _opening(
        self, ctx: Context, group: Group, start: Start, starts: dict[Hashable, Start]
    ) -> Opening:
        """What answers from a node say of it, and where its children begin."""
        children, cuts = dict[Hashable, Branch](), list[Episode]()
        for e in group.valid:
            steps = answer_steps(e, ctx.decode)
            if len(steps) <= start.steps:
                continue
            step, end = steps[start.steps], len(steps) == start.steps + 1
            begun = prefix(e, step.turn, step.kept)
            state = (begun.context, end)
            if seen := children.get(state):
                children[state] = replace(seen, visits=seen.visits + 1)
                continue
            logp = _logps(e, step, steps[start.steps - 1] if start.steps else None)
            starts.setdefault(state, Start(prefix=begun, steps=start.steps + 1))
            children[state] = Branch(
                state=state,
                action=step.text,
                logp=float(logp.sum()),
                prior=float(np.exp(logp.mean())),
                end=end,
            )
            cuts.append(cut_episode(e, starts[state].sampled))
        if self.value is not None:
            return Opening(children=await self._best(ctx, group.task, children.values(), cuts))
        worth = [e.total for e in group.valid]
        return Opening(
            children=tuple(children.values())[: self.children],
            value=float(np.mean(worth)) if worth else None,
            visits=len(worth),
        )

    async def _best(
        self, ctx: Context, task: Task, children: Iterable[Branch], cuts: Sequence[Episode]
    ) -> tuple[Branch, ...]:
        """The children of the highest value, with it."""
        assert self.value is not None
        values = await judge_group(ctx, self.value, Group(task=task, episodes=tuple(cuts)))
        known = [
            replace(c, value=r.total if isinstance(r, Reward) else None)
            for c, r in zip(children, values, strict=True)
        ]
        worth = lambda c: -np.inf if c.value is None else c.value
        return tuple(sorted(known, key=worth, reverse=True)[: self.children])


def cut_episode(e: Episode, sampled: int) -> Episode:
    """What an episode was after so many sampled tokens, unjudged; 0 = its first prompt alone.

    Its rows are those up to the one where it breaks off, so that who reads the last row reads this
    state.
    """
    left, rows = sampled, list[Row]()
    for row in e.rows:
        kept = list[Segment]()
        for s in row.segments:
            own = s.logp is not None
            if own and len(s.ids) >= left:
                broken = len(s.ids) > left
                part = replace(
                    s,
                    ids=s.ids[:left],
                    logp=s.logp[:left] if s.logp else s.logp,
                    moved=tuple((i, v) for i, v in s.moved if i < left),
                    text="" if broken else s.text,
                    finish="" if broken else s.finish,
                )
                kept += [part] if left else []
                rows.append(replace(row, segments=tuple(kept)))
                return replace(e, rows=tuple(rows), reward=None)
            left -= len(s.ids) if own else 0
            kept.append(s)
        rows.append(replace(row, segments=tuple(kept)))
    return replace(e, rows=tuple(rows), reward=None)


@value_class
class Start:
    """Where the answers of a node begin: what was said, which is so many steps."""

    prefix: Prefix
    steps: int

    @property
    def sampled(self) -> int:
        """Tokens of it that the policy sampled."""
        return sum(len(s.ids) for s in self.prefix.said)


def _logps(e: Episode, step: Step, before: Step | None) -> np.ndarray:
    """Of the tokens that the policy said in a step."""
    view = e.rows[step.row].view()
    first = before.token + 1 if before is not None and before.row == step.row else 0
    of = slice(first, step.token + 1)
    return view.logp_T[of][view.trained_T[of]]
