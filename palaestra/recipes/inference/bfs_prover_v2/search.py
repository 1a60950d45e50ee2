"""Best-first search for a proof with a language model that says tactics."""

import asyncio
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np

import palaestra as pl

FENCE = re.compile(r"^\s*```\w*\s*$", re.MULTILINE)
KernelName = Literal["own", "coq", "lean"]


open_kernel = partial(pl.services.open_kernel, {"own": pl.services.NaturalDeduction})


def statement(task: pl.Task) -> str:
    """The theorem that a task is."""
    return task.prompt[-1].content.strip()


def question(state: pl.services.ProofState, rules: str = "") -> tuple[pl.Message, ...]:
    """What the model is asked: the first goal, and how tactics are written."""
    text = "\n\n".join(x for x in (state.goals[0], rules) if x)
    return (pl.Message(role="user", content=text),)


def tactic_length(tactic: str, text: str, decode: Callable[[int], str], n: int) -> int:
    """How many of a reply's `n` tokens it takes until its first line is the whole tactic, the end token
    included where nothing follows: what is written behind a tactic is no part of it.

    Args:
        text: of the reply.
        decode: of a number of its tokens the text of so many.
    """
    if text.rstrip("` \n").endswith(tactic):
        return n
    return max(1, bisect_left(range(n), True, key=lambda i: read_tactic(decode(i)) == tactic))


def read_tactic(text: str) -> str:
    """The first line of a reply that says something, without its thoughts, the fences of code and the
    marks of a list.
    """
    for line in FENCE.sub("", pl.verifiers.strip_thinking(text)).replace("`", "").splitlines():
        if tactic := re.sub(r"^\s*(?:[-*]|\d+[.)])\s+", "", line).strip():
            return tactic
    return ""


@pl.value_class
class TriedTactic:
    """A tactic that the model said in a state.

    Args:
        prompt: what the model was asked.
        logp: of the tactic in nats under the model, the end token included.
        tokens: of it.
        on_path: whether it stands in the proof that was found.
    """

    prompt: tuple[pl.Message, ...]
    tactic: str
    logp: float
    tokens: int
    on_path: bool = False

    @property
    def perplexity(self) -> float:
        """exp of the mean nats of its tokens; 1 = it was sure."""
        return float(np.exp(-self.logp / max(1, self.tokens)))


@pl.value_class
class Searched:
    """What a search gave: a script that closes the first goal of its state, None where there is none;
    all that was tried; and how many states were opened.
    """

    script: tuple[str, ...] | None
    tried: tuple[TriedTactic, ...] = ()
    openings: int = 0
    left: int = 0  # open goals after the script
    too_long: int = field(default=0)  # states that the model's context does not hold


@pl.stage
class TacticSearch:
    """Closes the first goal of a state by a best-first search: the state with the largest

        sum of log p of the tactics that led there / (their number)^alpha

    is opened next: the model says `tactics` tactics there, the kernel runs them, and equal states are
    one. It ends with the first proof, or after `openings`.

    Where the kernel knows all tactics of a goal (`ProofKernel.tactics`) the model draws from these,
    each once; with `free`, or where it does not, the model writes what it likes, and what the kernel does
    not take is dropped.
    """

    kernel: pl.services.ProofKernel
    tactics: int = 4
    alpha: float = 0.5
    temperature: float = 1.0
    free: bool = False
    rules: bool = True  # whether the model is told how tactics are written
    model: str = "policy"

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, start: pl.services.ProofState, openings: int
    ) -> Searched:
        tried: dict[tuple[int, str], TriedTactic] = {}
        n_left, too_long = len(start.goals) - 1, 0
        best = pl.rollout.BestFirst(self.alpha)

        async def expand(state: pl.services.ProofState, at: pl.Key) -> pl.rollout.Opening:
            nonlocal too_long
            tactics = await self._say(ctx, at, state)
            if tactics is None:
                too_long += 1
                return pl.rollout.Opening()
            after = await asyncio.to_thread(self.kernel.step, state, [t.tactic for t in tactics])
            children = list[pl.rollout.Branch]()
            for t, made in zip(tactics, after, strict=True):
                tried[int(at[-1]), t.tactic] = t
                if isinstance(made, pl.services.ProofState):
                    children.append(
                        pl.rollout.Branch(
                            state=made,
                            action=t.tactic,
                            logp=t.logp,
                            end=len(made.goals) <= n_left,
                        )
                    )
            return pl.rollout.Opening(children=tuple(children))

        def select(tree: pl.rollout.SearchTree) -> int | None:
            return None if any(x.end for x in tree.nodes) else best(tree)

        tree = await pl.rollout.grow_tree(start, expand, select, openings, key=key, merge=True)
        end = next((i for i, x in enumerate(tree.nodes) if x.end), None)
        script = None
        if end is not None:
            path = tree.path(end)
            script = tuple(tree.nodes[i].action for i in path[1:])
            for above, i in pairwise(path):
                at = (above, tree.nodes[i].action)
                tried[at] = replace(tried[at], on_path=True)
        last = None if end is None else tree.nodes[end].state
        return Searched(
            script=script,
            tried=tuple(tried.values()),
            openings=len(tree.opened),
            left=len(last.goals) if isinstance(last, pl.services.ProofState) else n_left,
            too_long=too_long,
        )

    async def _say(
        self, ctx: pl.Context, key: pl.Key, state: pl.services.ProofState
    ) -> list[TriedTactic] | None:
        """Different tactics that the model says in a state; None where its context is too short."""
        engine = ctx.engine(self.model)
        prompt = question(state, self.kernel.rules if self.rules else "")
        heard = engine.dialect.extend(prompt, first=True, closed=False)
        ids = tuple(i for piece in heard for i in piece.ids)
        if len(ids) + ctx.bench.max_tokens > ctx.model(self.model).context:
            return None
        listed = () if self.free else self.kernel.tactics(state)
        proposals = await (
            self._choose(ctx, ids, listed, key) if listed else self._write(ctx, ids, key)
        )
        texts = dict[str, TriedTactic]()
        for tactic, logp, n in proposals:
            tried = TriedTactic(prompt=prompt, tactic=tactic, logp=logp, tokens=n)
            if tactic:
                texts.setdefault(tactic, tried)
        return list(texts.values())

    async def _write(
        self, ctx: pl.Context, ids: tuple[int, ...], key: pl.Key
    ) -> list[tuple[str, float, int]]:
        """Tactics that the model writes, with their log-prob and number of tokens."""
        sampling = pl.Sampling(temperature=self.temperature, max_tokens=ctx.bench.max_tokens)
        engine = ctx.engine(self.model)
        made = await asyncio.gather(
            *(engine.generate(ids, sampling, (*key, i)) for i in range(self.tactics))
        )
        proposals = list[tuple[str, float, int]]()
        for c in made:
            text = c.text[: c.cut]
            tactic = read_tactic(text)
            n = tactic_length(tactic, text, lambda i, c=c: ctx.decode(c.ids[:i]), len(c.ids))
            proposals.append((tactic, float(sum(c.logp[:n])), n))
        return proposals

    async def _choose(
        self, ctx: pl.Context, ids: tuple[int, ...], listed: Sequence[str], key: pl.Key
    ) -> list[tuple[str, float, int]]:
        """Tactics that the model draws without replacement from all that are legal. Their log-prob is
        that of the model without this restriction.
        """
        engine, proposals = ctx.engine(self.model), list[tuple[str, float, int]]()
        left: dict[tuple[int, ...], str] = {
            (*engine.dialect.encode_text(t), engine.dialect.end): t for t in listed
        }
        while left and len(proposals) < self.tactics:
            sampling = pl.Sampling(temperature=self.temperature, choices=tuple(left))
            c = await engine.generate(ids, sampling, (*key, len(proposals)))
            mass = c.choices.log_mass if c.choices is not None else 0.0
            proposals.append((left.pop(c.ids), float(sum(c.logp)) + mass, len(c.ids)))
        return proposals
