"""Answers from a tree over the steps of plans."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import palaestra as pl

SOLUTION = "Solution:"


def ask(marker: str, solution: str) -> str:
    """What the model is told of the form of an answer; nothing where the solution has no mark."""
    if not solution:
        return ""
    end = "on a line of its own" if marker == "\n" else f"and end it with {marker}"
    return (
        f"First write a plan: each step in words {end}, without working it out. "
        f"Then write {solution} and solve it step by step, with the final answer last."
    )


@dataclass(frozen=True)
class PlanState:
    """Where the answers of a node begin: what was said, which is so many steps."""

    begun: pl.rollout.Prefix = field(default_factory=lambda: pl.rollout.Prefix(said=(), context=()))
    steps: int = 0

    @property
    def sampled(self) -> int:
        """Tokens of it that the policy sampled."""
        return sum(len(s.ids) for s in self.begun.said)


@pl.declare(
    facts=(
        "prefix_values",
        "step_ends",
        ("plan_complete", bool, "whether the last step of `step_ends` is the solution"),
        ("opened", int, "the number of the node of the tree that it went on from"),
        ("shared", int, "tokens that it shares with the node"),
    )
)
@pl.stage
class PlanTree:
    """Answers from a tree over the steps of plans, scored.

    Leaves in each answer's facts `step_ends` of the steps that are nodes of the tree and
    `prefix_values`, the shares of right answers among all below the root and each of these nodes:
    Q = 2 V - 1. An answer that fails by a fault counts nowhere.

    Args:
        openings: of nodes, exactly, unless every node was opened before.
        root, children: answers that opening the root, or another node, samples.
        select: which node is opened next.
        depth: steps of an answer at most; the last holds the rest.
        marker: ends a step.
        solution: begins the solution; "" = the last step is it.
        temperature: of the answers.
        right: the total from which on an answer is right; None = the reward says it.
    """

    openings: int = 8
    root: int = 5
    children: int = 3
    select: pl.rollout.Puct = pl.rollout.Puct(1.5)
    depth: int = 8
    marker: str = "\n"
    solution: str = SOLUTION
    temperature: float = 0.7
    right: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("openings", 1), ("root", 2), ("children", 2), ("depth", 1)):
            pl.check_bounds(f"PlanTree.{name}", getattr(self, name), least=least)
        pl.check_bounds("PlanTree.temperature", self.temperature, above=0)
        if not self.marker:
            raise pl.UserError(
                'PlanTree: marker is empty, so no step would end; write marker="\\n" for lines, or '
                "the text that ends a step of your model's plans"
            )

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        states: dict[Hashable, PlanState] = {(): PlanState()}
        answers = dict[Hashable, tuple[pl.Episode, ...]]()

        async def expand(state: Any, at: pl.Key) -> pl.rollout.Opening:
            tried = await self._answers(ctx, key, int(at[-1]), group.task, states[state])
            scored = await pl.Score()(ctx, at, pl.Group(task=group.task, episodes=tried))
            answers[state] = scored.episodes
            return self._opening(ctx, scored, states[state], states)

        tree = await pl.rollout.grow_tree((), expand, self.select, self.openings, key=key)
        value = {node.state: (node.value + 1) / 2 for node in tree.nodes}
        opened = [tree.nodes[at].state for at in tree.opened]
        episodes = (
            self._with_values(ctx, e, i, states[state], value)
            for i, state in enumerate(opened)
            for e in answers[state]
        )
        return replace(group, episodes=(*group.episodes, *episodes))

    async def _answers(
        self, ctx: pl.Context, key: pl.Key, node: int, task: pl.Task, start: PlanState
    ) -> tuple[pl.Episode, ...]:
        """Whole answers that begin as the node does."""
        sampling = pl.Sampling(temperature=self.temperature, max_tokens=ctx.bench.max_tokens)
        most = max(self.root, self.children)
        # keys side by side, so that all see one world
        keys = [(*key, node * most + i) for i in range(self.children if start.steps else self.root)]
        tried = (pl.rollout.continuation(ctx, k, task, start.begun, sampling) for k in keys)
        return tuple(await asyncio.gather(*tried))

    def steps(self, ctx: pl.Context, e: pl.Episode) -> list[Any]:
        """Of an answer; from the mark of the solution on all is one."""
        steps = pl.rollout.answer_steps(e, ctx.decode, self.depth, marker=self.marker)
        solved = (i for i, s in enumerate(steps) if self.solution and self.solution in s.text)
        most = next(solved, len(steps)) + 1
        return pl.rollout.answer_steps(e, ctx.decode, min(most, self.depth), marker=self.marker)

    def _opening(
        self, ctx: pl.Context, group: pl.Group, start: PlanState, states: dict[Hashable, PlanState]
    ) -> pl.rollout.Opening:
        """The first new steps of answers from a node, with what the verifier says of the answers.
        An answer that ends where the node does says something of the node alone.
        """
        children, seen = dict[Hashable, pl.rollout.Branch](), dict[Hashable, list[float]]()
        here = list[float]()
        for e in group.valid:
            steps, verdict = self.steps(ctx, e), 1.0 if e.is_right(self.right) else -1.0
            if len(steps) <= start.steps:
                here.append(verdict)
                continue
            step, end = steps[start.steps], len(steps) == start.steps + 1
            begun = pl.rollout.prefix(e, step.turn, step.kept)
            state = (begun.context, end)
            states.setdefault(state, PlanState(begun, start.steps + 1))
            seen.setdefault(state, []).append(verdict)
            before = steps[start.steps - 1] if start.steps else None
            logp = step_logp(e, step, before)
            children.setdefault(
                state,
                pl.rollout.Branch(
                    state=state,
                    action=step.text,
                    logp=float(logp.sum()),
                    prior=float(np.exp(logp.mean())),
                    end=end,
                ),
            )
        return pl.rollout.Opening(
            children=tuple(
                replace(c, value=float(np.mean(seen[s])), visits=len(seen[s]))
                for s, c in children.items()
            ),
            value=float(np.mean(here)) if here else None,
            visits=len(here),
        )

    def _with_values(
        self,
        ctx: pl.Context,
        e: pl.Episode,
        opened: int,
        start: PlanState,
        value: dict[Any, float],
    ) -> pl.Episode:
        """An answer with the values of its nodes: those that it began with, and its own step."""
        facts = {**e.facts, "opened": opened, "shared": start.sampled}
        steps = self.steps(ctx, e) if e.ok else []
        if len(steps) <= start.steps:
            return replace(e, facts=facts)
        nodes, end = steps[: start.steps + 1], len(steps) == start.steps + 1
        contexts = [pl.rollout.prefix(e, s.turn, s.kept).context for s in nodes]
        ends = [False] * start.steps + [end]
        known = (value[node] for node in zip(contexts, ends, strict=True))
        facts |= {
            "prefix_values": (value[()], *known),
            "step_ends": tuple((s.row, s.token) for s in nodes),
            "plan_complete": end,
        }
        return replace(e, facts=facts)


def step_logp(e: pl.Episode, step: Any, before: Any | None) -> np.ndarray:
    """Log-probs of the tokens that the policy said in a step, in nats."""
    view = e.rows[step.row].view()
    first = before.token + 1 if before is not None and before.row == step.row else 0
    of = slice(first, step.token + 1)
    return view.logp_T[of][view.trained_T[of]]
