"""Rewards from a model's own probabilities, and from what its answers have in common. No verifier,
no judge.

    Score(reward=AnswerProbability(baseline="ref"))         # RLPR
    Score(reward=Endogenous("ref"))                         # a frozen model's log-likelihood as a reward of every token
    Score(reward=InformationGain("policy"))                 # progress of each step towards the answer
    Score(reward=Majority())                                # agreement with the commonest answer

Log-probabilities in nats; n = tokens of a reply, k = its steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from torch import Tensor

from palaestra.abilities import Demonstrates, source_of
from palaestra.errors import Fault, UserError
from palaestra.models.score import logit_and_value, score_pairs
from palaestra.rewards.together import judge_together
from palaestra.rewards.verify import response_text
from palaestra.tasks.procedural import ANSWER_PREFIX, final_answer
from palaestra.types import Episode, Event, Group, Reward, Row, Tasks, stage
from palaestra.verifiers.answers.place import answer_place
from palaestra.verifiers.answers.short import stated_answer

if TYPE_CHECKING:
    from palaestra.context import Context, Models

# ---- pure functions


def endogenous_rewards(logit_n: np.ndarray, value_n: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    """[n] r_t = f(s_t, a_t) - V(s_{t+1}), V = alpha * logsumexp(f / alpha), 0 behind the last token
    (arXiv:2506.23235).

    `logit_n` are f(s_t, a_t) and `value_n` are V(s_t). The sum is alpha * log pi(y | x) + V(s_1).
    """
    if alpha <= 0:
        raise UserError(f"alpha is a temperature above 0, not {alpha:g}")
    return logit_n - np.append(value_n[1:], 0.0)


Reducer = Literal["mean", "product", "geometric"]


def answer_score(logp_n: np.ndarray, how: Reducer = "mean") -> float:
    """One number from the reference's token log-probs: mean of the probabilities (RLPR), their
    product or geometric mean.

    No token gives 0.
    """
    if not len(logp_n):
        return 0.0
    if how == "mean":
        return float(np.exp(logp_n).mean())
    return float(np.exp(logp_n.sum() if how == "product" else logp_n.mean()))


def debias(with_reasoning: float, without: float) -> float:
    """max(0, r - r_base), within [0, 1] (RLPR, arXiv:2506.18254)."""
    return min(1.0, max(0.0, with_reasoning - without))


def gains(j_k: Sequence[float]) -> np.ndarray:
    """[k] J(after step) - J(before it) from J at the start and after every step. They sum to J(end)
    - J(start).
    """
    return np.diff(np.asarray(j_k, float))


def surprise_shares(logp_n: np.ndarray) -> np.ndarray:
    """[n] -log p as shares of their sum; equal shares where nothing surprises (L2T,
    arXiv:2505.10425).
    """
    total = -logp_n.sum()
    return -logp_n / total if total > 0 else np.full(len(logp_n), 1 / max(len(logp_n), 1))


def sequence_confidence(logp_n: np.ndarray) -> float:
    """exp(mean log p), in (0, 1], of the n log-probs of a text, in nats."""
    return float(np.exp(logp_n.mean())) if len(logp_n) else 1.0


def majority_answer(answers: Sequence[str | None]) -> tuple[str | None, float]:
    """The commonest answer and its share of all; None where none could be read or the first place
    is shared.

    A share counts those without an answer too: 5 F, 1 I and 2 without one give 5 / 8.
    """
    ranked = Counter(a for a in answers if a is not None).most_common(2)
    if not ranked:
        return None, 0.0
    share = ranked[0][1] / len(answers)
    tied = len(ranked) > 1 and ranked[0][1] == ranked[1][1]
    return (None if tied else ranked[0][0]), share


def repeats(text: str, window: int = 10, times: int = 10) -> bool:
    """Some run of `window` words stands there at least `times` times."""
    words = text.split()
    runs = Counter(tuple(words[i : i + window]) for i in range(len(words) - window + 1))
    return max(runs.values(), default=0) >= times


# ---- stages


def row_tokens(row: Row) -> tuple[list[int], np.ndarray]:
    """The visible ids of a row, and the positions of what was sampled or is trained."""
    ids: list[int] = []
    own: list[int] = []
    for s in row.segments:
        if s.hidden:
            continue
        if s.trained or s.logp is not None:
            own += range(len(ids), len(ids) + len(s.ids))
        ids += s.ids
    return ids, np.array(own, np.int64)


def last_policy_row(episode: Episode) -> int:
    """The row in which the policy spoke last."""
    spoken = [r for r, row in enumerate(episode.rows) if len(row_tokens(row)[1])]
    if not spoken:
        raise Fault("intrinsic", "an episode without a sampled token has no likelihood")
    return spoken[-1]


def reasoning_prefix(text: str) -> str | None:
    """Up to where the reply begins its answer, the form that opens it included: \\boxed{, <answer>,
    "the answer is" or an answer line `= `. None where the reply states no answer.
    """
    place = answer_place(text)
    return None if place is None else text[: place[1]]


def answer_opening(tasks: Tasks, group: Group) -> str:
    """What opens an answer in a group: what most of its replies write before theirs; where none of
    them states an answer, the form that the prompt asks for, else "The answer is ".
    """
    texts = [response_text(e) for e in group.episodes]
    places = [(text, place) for text in texts if (place := answer_place(text))]
    if places:
        return Counter(text[a:b] for text, (a, b) in places).most_common(1)[0][0]
    if isinstance(source_of(tasks, group.task), Demonstrates):  # an embedded problem
        return ANSWER_PREFIX
    asked = "\n".join(m.content for m in group.task.prompt if isinstance(m.content, str))
    return next((form for form in ("\\boxed{", "<answer>") if form in asked), "The answer is ")


def read_answer(text: str) -> str | None:
    """What a reply states as its answer: on an answer line `= `, in a box, in <answer>, or behind
    "the answer is". None where it states none.
    """
    answer = final_answer(text)
    return stated_answer(text) if answer is None else answer


def lines(text: str) -> list[str]:
    """The lines of a reply, with their ends: a step each."""
    return text.splitlines(keepends=True)


@stage
class Endogenous:
    """The soft-Bellman reward of a frozen model (see `endogenous_rewards`), each token's at that
    token; the total is their sum.

    Inside a group it ranks as log pi(y | x) does: V(s_1) is one constant. `per_token` divides by
    the number of tokens: sums of log-probs favour short answers. Keep the model frozen: its own
    optimal policy has the same reward again.
    """

    model: str = "ref"
    alpha: float = 1.0
    per_token: bool = False

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        async def rewards(groups: list[Group]) -> list[Reward | Fault]:
            episodes = [e for g in groups for e in g.episodes]
            places = [
                (i, r)
                for i, e in enumerate(episodes)
                for r, row in enumerate(e.rows)
                if len(row_tokens(row)[1])
            ]
            rows = [row_tokens(episodes[i].rows[r]) for i, r in places]
            pairs = [(ids[: own[0]], ids[own[0] :]) for ids, own in rows]
            with ctx.phase("forward"):
                scored = score_pairs(ctx.model(self.model), pairs, self._read)
            events: dict[int, list[Event]] = {}
            for (i, r), (_, own), x in zip(places, rows, scored, strict=True):
                earned = endogenous_rewards(x[:, 0], x[:, 1], self.alpha)[own - own[0]]
                shares = earned / len(own) if self.per_token else earned
                events.setdefault(i, []).extend(
                    Event(row=r, token=int(t), value=float(v), part="endogenous")
                    for t, v in zip(own, shares, strict=True)
                )
            return [self._reward(events.get(i, [])) for i in range(len(episodes))]

        return await judge_together(ctx, self, group, rewards)

    def _read(self, logits_NV: Tensor, token_N: Tensor) -> Tensor:
        return self.alpha * logit_and_value(logits_NV / self.alpha, token_N)

    @staticmethod
    def _reward(events: list[Event]) -> Reward | Fault:
        if not events:
            return Fault("intrinsic", "an episode without a sampled token has no likelihood")
        return Reward(
            total=sum(e.value for e in events),
            parts={"tokens": float(len(events))},
            events=tuple(events),
        )


@stage
class AnswerProbability:
    """How likely the reference answer is behind the policy's own reasoning (RLPR,
    arXiv:2506.18254).

    `before(text)` is the reasoning with the start of the answer, None where there is none (then the
    score is 0); the reference follows it, and `how` makes one number of its token probabilities.
    With `baseline`, a frozen model's score of the reference without reasoning, behind `opening`
    (empty = what opens the answers of the group), is taken off. Reward = (1 - w) * score + w *
    format(text), less 1 where the reply repeats itself.
    """

    model: str = "policy"
    baseline: str = ""
    how: Reducer = "mean"
    before: Callable[[str], str | None] = reasoning_prefix
    opening: str = ""
    format: Callable[[str], float] | None = None
    format_weight: float = 0.1

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        async def rewards(groups: list[Group]) -> list[Reward | Fault]:
            asked = [(g, e) for g in groups for e in g.episodes]
            scored = self._scores(
                ctx, self.model, [(g, e, self.before(response_text(e))) for g, e in asked]
            )
            base = self._bases(ctx, groups) if self.baseline else {}
            return [
                self._reward(e, x, base.get(g.task.id, 0.0))
                for (g, e), x in zip(asked, scored, strict=True)
            ]

        return await judge_together(ctx, self, group, rewards)

    def _reward(self, episode: Episode, score: float, base: float) -> Reward:
        text = response_text(episode)
        gained = debias(score, base) if self.baseline else score
        form = self.format(text) if self.format else 0.0
        w = self.format_weight if self.format else 0.0
        total = (1 - w) * gained + w * form - float(repeats(text))
        return Reward(
            total=total, parts={"answer": score, "base": base, "gain": gained, "format": form}
        )

    def _bases(self, ctx: Context, groups: list[Group]) -> dict[str, float]:
        """Of the reference without reasoning, once a task."""
        first = {
            g.task.id: (g, g.episodes[0], self.opening or answer_opening(ctx.bench.tasks, g))
            for g in groups
            if g.episodes
        }
        return dict(zip(first, self._scores(ctx, self.baseline, list(first.values())), strict=True))

    def _scores(
        self, ctx: Models, model: str, asked: Sequence[tuple[Group, Episode, str | None]]
    ) -> list[float]:
        return [
            answer_score(x, self.how)
            for x in reference_logp(ctx, model, [(e, t, reference(g)) for g, e, t in asked])
        ]


def reference(group: Group) -> str:
    if group.task.answer is None:
        raise UserError(
            f"task {group.task.id!r} has no answer whose probability could be a reward; give it one"
        )
    answer = group.task.answer
    return str(answer[0] if isinstance(answer, list | tuple) and answer else answer)


def reference_logp(
    ctx: Models, model: str, asked: Sequence[tuple[Episode, str | None, str]]
) -> list[np.ndarray]:
    """For each (episode, start of the reply, reference) the reference's token log-probs behind that
    start; none where it is None.

    Start and reference are tokenised apart, so the reference's tokens are known exactly.
    """
    spell = ctx.engine(model).dialect.encode_text
    pairs = [
        (*last_turn_prompt(e), *spell(start)) if start is not None and spell(ref) else None
        for e, start, ref in asked
    ]
    there = [i for i, context in enumerate(pairs) if context]
    with ctx.phase("forward"):
        scored = score_pairs(
            ctx.model(model), [(pairs[i] or (), spell(asked[i][2])) for i in there]
        )
    out = [np.zeros(0)] * len(asked)
    for i, x in zip(there, scored, strict=True):
        out[i] = x
    return out


def last_turn_prompt(episode: Episode) -> tuple[int, ...]:
    """What stands before the last turn of the policy, whose forced start is a part of the turn."""
    row = episode.rows[last_policy_row(episode)]
    own = [n for n, s in enumerate(row.segments) if s.trained or s.logp is not None]
    turn, before = row.segments[own[-1]].turn, row.segments[: own[-1]]
    return tuple(i for s in before if (s.author, s.turn) != ("forced", turn) for i in s.ids)


@stage
class InformationGain:
    """What each step of a reply adds to the probability of the reference answer: J(after) -
    J(before), at the step's last token.

    `steps(text)` cuts the reply; `opening` stands between a step and the reference; empty: what opens the
    answers of the group. The gains sum
    to J(end) - J(start), so more steps earn nothing. The total is weight * that sum, beside
    `outcome` (the bench's own reward) if asked for.
    """

    model: str = "policy"
    steps: Callable[[str], Sequence[str]] = lines
    opening: str = ""
    weight: float = 0.8
    outcome: bool = True

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        outcomes: Sequence[Reward | Fault] = [Reward(total=0.0)] * len(group.episodes)
        if self.outcome and ctx.bench.reward is not None:
            outcomes = await ctx.bench.reward(ctx, group)

        async def rewards(groups: list[Group]) -> list[list[Event]]:
            asked = [(g, e, [*self._starts(response_text(e))]) for g in groups for e in g.episodes]
            openings = [self.opening or answer_opening(ctx.bench.tasks, g) for g, _, _ in asked]
            flat = [
                (e, start + opening, reference(g))
                for (g, e, starts), opening in zip(asked, openings, strict=True)
                for start in starts
            ]
            j = iter([answer_score(x) for x in reference_logp(ctx, self.model, flat)])
            return [
                self._events(ctx, e, starts, gains([next(j) for _ in starts]))
                for _, e, starts in asked
            ]

        gains_of = await judge_together(ctx, (self, "gains"), group, rewards)
        return [self._reward(o, events) for o, events in zip(outcomes, gains_of, strict=True)]

    def _starts(self, text: str) -> list[str]:
        """The reply before any step, and up to the end of each."""
        steps = [s for s in self.steps(text) if s.strip()]
        return ["".join(steps[:k]) for k in range(len(steps) + 1)]

    def _events(
        self, ctx: Context, episode: Episode, starts: list[str], gain_k: np.ndarray
    ) -> list[Event]:
        row = last_policy_row(episode)
        ids, own = row_tokens(episode.rows[row])
        ends = ends_of(ctx, self.model, [ids[t] for t in own], starts[1:])
        return [
            Event(row=row, token=int(own[end]), value=self.weight * float(x), part="gain")
            for end, x in zip(ends, gain_k, strict=True)
        ]

    @staticmethod
    def _reward(outcome: Reward | Fault, events: list[Event]) -> Reward | Fault:
        if isinstance(outcome, Fault):
            return outcome
        gain = sum(e.value for e in events)
        parts = {**outcome.parts, "outcome": outcome.total, "gain": gain}
        return Reward(total=outcome.total + gain, parts=parts, events=(*outcome.events, *events))


def ends_of(ctx: Models, model: str, ids: Sequence[int], starts: Sequence[str]) -> list[int]:
    """The token with which each start of the text is complete."""
    decode, ends, n = ctx.engine(model).dialect.decode, [], 0
    for start in starts:
        while n < len(ids) - 1 and len(decode(ids[: n + 1])) < len(start):
            n += 1
        ends.append(n)
    return ends


@stage
class Majority:
    """1 for the group's commonest answer, else 0; 0 for all where the first place is shared (TTRL,
    arXiv:2504.16084).

    It pays any constant answer in full: watch the parts "consensus" (the share of the commonest)
    and "gold" (Score(shadow=True)).
    """

    read: Callable[[str], str | None] = read_answer

    async def __call__(self, ctx: Context | None, group: Group) -> list[Reward | Fault]:
        answers = [self.read(response_text(e)) for e in group.episodes]
        best, share = majority_answer(answers)
        right = [float(best is not None and a == best) for a in answers]
        return [
            Reward(total=x, parts={"consensus": share, "unread": float(a is None)})
            for x, a in zip(right, answers, strict=True)
        ]
