"""Strategies that search over the lines of an answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from palaestra.credit.steps import progress
from palaestra.errors import UserError
from palaestra.rollout.search import TreeSearch
from palaestra.rollout.tree import Ucb
from palaestra.search.lines import LineWriter, PartialAnswer, unlike
from palaestra.search.problem import SearchProblem, SearchResult, unweighed, whole_or_all
from palaestra.types import need_at_least, stage

Ranked = tuple[float, float, PartialAnswer]


@stage
class BeamSearch:
    """Beam search over lines: of `width * branch` lines the `width` best beginnings are gone on with
    (Snell et al., arXiv:2408.03314, section 5.2).

    A beginning is ranked by its score, then by the mean log-prob of its tokens; equal beginnings
    count once. With `progress` a > 0 those that are kept have the greatest Q + a (B(Q) - B(Q')), B(Q) =
    1 - (1 - Q)^k, where Q is the score as a chance of success and Q' that of the line before, 0 at the
    first (the effective reward of arXiv:2410.08146, with the best of k tries as the prover). One that
    ends leaves the beam and is a candidate. Where the beam is empty and tokens are left, another beam
    begins with other random streams. The candidate of the highest score is chosen; where none ended,
    the best beginning.

    Args:
        width: beginnings that are kept.
        branch: lines that are tried behind each; the first lines are width * branch.
        temperature: of the lines.
        progress: weight of a line's progress; 0 = beginnings are ranked by their scores.
        k: tries of the prover.
    """

    width: int = 4
    branch: int = 4
    temperature: float = 1.0
    progress: float = 0.0
    k: int = 4

    def __post_init__(self) -> None:
        need_at_least(self, width=1, branch=1, progress=0, k=1)
        if self.temperature <= 0:
            raise UserError("BeamSearch: temperature must be above 0, or all lines are one")

    async def __call__(self, problem: SearchProblem) -> SearchResult:
        writer = await problem.lines(self.temperature)
        ended, open_ones, beams = list[Ranked](), list[Ranked](), 0
        while problem.left:
            before = problem.left
            ends, beam = await self._beam(problem, writer, beams)
            ended, open_ones, beams = [*ended, *ends], [*open_ones, *beam], beams + 1
            if problem.left == before:
                break
        candidates = ended or open_ones
        if not candidates:
            return problem.result(None, ())
        score, _, best = max(candidates, key=lambda r: r[:2])  # the first of equals
        answers = [writer.episode(a) for _, _, a in candidates]
        return problem.result(writer.episode(best), answers, score)

    async def _beam(
        self, problem: SearchProblem, writer: LineWriter, number: int
    ) -> tuple[list[Ranked], list[Ranked]]:
        """What one beam ended, and what was cut or open when the tokens were spent."""
        ended, beam, cut, depth = list[Ranked](), list[Ranked](), list[Ranked](), 0
        chances = dict[tuple[int, ...], float]()  # of beginnings that are gone on with
        starts = [PartialAnswer()] * (self.width * self.branch)
        while starts and problem.left:
            key = (*problem.key, "beam", number, depth)
            lines = await asyncio.gather(
                *(writer.write(start, (*key, i)) for i, start in enumerate(starts))
            )
            grown = unlike(lines)
            scores = await problem.score([writer.episode(a) for a in grown])
            ranked = [(float(s), a.confidence, a) for s, a in zip(scores, grown, strict=True)]
            worth_N = scores
            if self.progress:
                chance_N = problem.weigh(scores)
                before = {a.ids: chances.get(s.ids, 0.0) for s, a in parents(starts, lines)}
                worth_N = [
                    effective_reward(float(q), before[a.ids], self.progress, self.k)
                    for q, a in zip(chance_N, grown, strict=True)
                ]
                chances = {a.ids: float(q) for q, a in zip(chance_N, grown, strict=True)}
            order = sorted(
                zip(worth_N, ranked, strict=True), key=lambda x: (x[0], x[1][1]), reverse=True
            )
            best = [r for _, r in order[: self.width]]
            ended += [r for r in ranked if r[2].finish in ("eos", "stop")]
            cut += [r for r in ranked if r[2].finish == "length"]
            if not grown:
                break
            beam = [r for r in best if not r[2].finish]
            starts = [a for _, _, a in beam for _ in range(self.branch)]
            depth += 1
        return ended, [*beam, *cut]


def parents(
    starts: Sequence[PartialAnswer], lines: Sequence[PartialAnswer | None]
) -> list[tuple[PartialAnswer, PartialAnswer]]:
    """Beginnings with what each became."""
    return [(s, a) for s, a in zip(starts, lines, strict=True) if a is not None]


def effective_reward(q: float, before: float, alpha: float, k: int) -> float:
    """Q + alpha A of a step, A the progress under the best of k tries (arXiv:2410.08146, eq. 5)."""
    return q + alpha * float(progress([before, q], k)[0])


@stage
class MonteCarloSearch:
    """Monte-Carlo tree search over lines, led by the scores of whole answers (UCT, Kocsis &
    Szepesvari 2006; `TreeSearch` with `Ucb`).

    Opening a node samples `n` whole answers from there on; their first new lines are its children.
    A node's value V is the mean score of the answers from it and below, n(child) its visits:

        V(child) + c sqrt(ln N(node) / n(child)),   unvisited children first

    Where no node is left to open, the rest of the budget goes to whole answers. The answer of the
    highest score is chosen, the first of equals.

    Args:
        n: answers an opening.
        children: of a node, at most.
        c: weight of what is not known; sqrt 2 for scores in [0, 1].
        temperature: of the answers.
    """

    n: int = 4
    children: int = 3
    c: float = math.sqrt(2)
    temperature: float = 1.0

    def __post_init__(self) -> None:
        need_at_least(self, n=1, children=1, c=0)
        if self.temperature <= 0:
            raise UserError("MonteCarloSearch: temperature must be above 0, or all answers are one")

    async def __call__(self, problem: SearchProblem) -> SearchResult:
        search = TreeSearch(
            n=self.n, children=self.children, select=Ucb(self.c), temperature=self.temperature
        )
        answers = await problem.tree(search)
        worth = {id(e): e.total for e in answers}
        rest = await problem.sample(temperature=self.temperature)
        scores = problem.weigh(await problem.score(rest))
        worth |= {id(e): float(s) for e, s in zip(rest, scores, strict=True)}
        candidates = whole_or_all([*answers, *rest])
        if not candidates:
            return problem.result(None, ())
        best = max(candidates, key=lambda e: worth[id(e)])
        chosen = unweighed(best) if any(best is e for e in answers) else best
        return problem.result(chosen, candidates, worth[id(best)])
