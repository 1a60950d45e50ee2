"""Search over the steps of an answer: a tree whose nodes are what was said so far, cut at line ends,
and whose openings are answers that go on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from palaestra.context import Collect
from palaestra.errors import UserError
from palaestra.rollout.branch import Prefix, continuation, prefix
from palaestra.rollout.collect import Score
from palaestra.rollout.steps import Step, answer_steps
from palaestra.rollout.tree import Branch, Opening, Selection, Uct, grow_tree
from palaestra.types import Episode, Group, Key, Sampling, need_at_least, stage, value_class

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class TreeSearch:
    """Answers from a tree of steps (lines of what the policy says), as in VM-MCTS of ReST-RL
    (github.com/THUDM/ReST-RL, read at its defaults).

    Opening a node samples `n` whole answers that begin as the node does. Their first new steps are
    its children, equal ones once, at most `children` of them; the mean of their scores is its value.
    All answers are attempts of the group, with the facts `opened` = the number of the opening that
    gave them, from 0, and `shared` = tokens that they repeat. An answer that fails by a fault counts
    nowhere. Where all do, the node has no value.

    Args:
        openings: of nodes; answers are `openings * n`, exactly, unless every node was opened before.
        n: answers an opening.
        children: of a node, the first that were seen.
        select: which node is opened next.
        score: the link that scores an answer, e.g. `Score()`, or a learned value where no judge may
            be asked.
        width: nodes that are opened at a time.
        temperature: of the answers.
        model: whose answers.

    The prior of a child is the mean probability of its step: exp of the mean log-prob of its tokens.
    """

    openings: int = 15
    n: int = 5
    children: int = 3
    select: Selection = Uct()
    score: Collect = Score()
    width: int = 1
    temperature: float = 1.0
    model: str = "policy"

    def __post_init__(self) -> None:
        need_at_least(self, openings=1, n=1, children=1, width=1)
        if self.temperature <= 0:
            raise UserError("TreeSearch(temperature=0): all answers from a node would be one")

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        sampling = Sampling(temperature=self.temperature, max_tokens=ctx.bench.max_tokens)
        starts: dict[Hashable, Start] = {(): Start(prefix=Prefix(said=(), context=()), steps=0)}
        opened = dict[Key, Sequence[Episode]]()

        async def expand(state: Hashable, at: Key) -> Opening:
            start = starts[state]
            first = self.n * int(at[-1])  # keys side by side, so that all see one world
            tried = await asyncio.gather(
                *(
                    continuation(ctx, (*key, i), group.task, start.prefix, sampling, self.model)
                    for i in range(first, first + self.n)
                )
            )
            scored = await self.score(ctx, at, Group(task=group.task, episodes=tuple(tried)))
            opened[at] = scored.episodes
            return self._opening(ctx, scored.episodes, start, starts)

        tree = await grow_tree((), expand, self.select, self.openings, key=key, width=self.width)
        found = (
            replace(
                e, facts={**e.facts, "opened": i, "shared": starts[tree.nodes[at].state].sampled}
            )
            for i, at in enumerate(tree.opened)
            for e in opened[(*key, at)]
        )
        return replace(group, episodes=(*group.episodes, *found))

    def _opening(
        self,
        ctx: Context,
        episodes: Sequence[Episode],
        start: Start,
        starts: dict[Hashable, Start],
    ) -> Opening:
        """What answers from a node say of it, and where its children begin."""
        children = dict[Hashable, Branch]()
        for e in episodes:
            steps = answer_steps(e, ctx.decode) if e.ok else []
            if len(steps) <= start.steps or len(children) == self.children:
                continue
            step, end = steps[start.steps], len(steps) == start.steps + 1
            begun = prefix(e, step.turn, step.kept)
            logp = _logps(e, step, steps[start.steps - 1] if start.steps else None)
            state = (begun.context, end)
            starts.setdefault(state, Start(prefix=begun, steps=start.steps + 1))
            children.setdefault(
                state,
                Branch(
                    state=state,
                    action=step.text,
                    logp=float(logp.sum()),
                    prior=float(np.exp(logp.mean())),
                    end=end,
                ),
            )
        worth = [e.total for e in episodes if e.ok]
        return Opening(
            children=tuple(children.values()), value=float(np.mean(worth)) if worth else None
        )


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
