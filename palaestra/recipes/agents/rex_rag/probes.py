"""Probes: clones of wrong answers that go on from another phrase, and their credit."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl

PHRASES = (
    "Wait, this may be wrong: a fact could still be missing.",
    "Wait, this may be wrong: I have not checked every step.",
    "Wait, this may be a guess, and the documents may say more.",
    "Wait, I should look again at what was asked.",
    "Maybe I stopped too early, and another search is needed.",
    "Maybe I stopped too early, and misread what I found.",
    "Maybe I took one thing for another.",
    "Maybe the last step does not follow.",
    "I am not sure about this: what do the documents really say?",
    "I am not sure about this: which part of the question is still open?",
    "I doubt this answer, and look for what speaks against it.",
    "I doubt this answer, and go through it step by step.",
)
KEPT = "probe_keep"  # k, in the state of the credit


def tree_logp(phrases: Sequence[tuple[int, ...]], phrase: tuple[int, ...]) -> tuple[float, ...]:
    """[tokens of phrase] log of the share of phrases with this token among those that begin so.

    Args:
        phrases: token ids of all that could have been said, each as often; `phrase` is one of them.
    """
    shares = list[float]()
    for j in range(len(phrase)):
        before = sum(p[:j] == phrase[:j] and len(p) > j for p in phrases)
        shares.append(sum(p[: j + 1] == phrase[: j + 1] for p in phrases) / before)
    return tuple(np.log(shares).tolist())


def mixture_logp(
    old_T: np.ndarray,
    a: float,
    probe: tuple[int, int] | None = None,
    mu_P: np.ndarray | None = None,
    before_T: np.ndarray | None = None,
    wrong: float = 1.0,
) -> np.ndarray:
    """[T] log q of the tokens of a row, see above.

    Args:
        old_T: log pi_old.
        a: share of kept clones.
        probe: first and last + 1 of the probe's tokens; None = the row is an answer's.
        mu_P: log mu of these.
        before_T: whether a token was sampled before the probe.
        wrong: eps, above 0.
    """
    if probe is None:
        return old_T + np.log1p(-a)
    mu_T = old_T.copy()
    if before_T is not None and before_T.any():
        mu_T[before_T] -= np.log(wrong) / before_T.sum()
    mu_T[slice(*probe)] = mu_P
    return np.logaddexp(np.log1p(-a) + old_T, np.log(a) + mu_T)


@pl.declare(facts=(("probe", tuple, "row, first and last + 1 token of a phrase that was put in"),))
@pl.stage
class ProbeSampling:
    """A link after scoring: clones wrong answers with probability `p`, puts a phrase in the place of
    the answer, and has the policy go on. `judge` scores the clones, which have the fact "probe".

    Args:
        phrases: one is drawn, each as often.
        opening: what a phrase begins with where no thought is open.
        mark: what an answer begins with; a message without it is an answer as a whole.
        right: the reward from which on an answer is right; None = the reward says it.
    """

    p: float = 0.2
    phrases: tuple[str, ...] = PHRASES
    opening: str = "<think> "
    mark: str = "<answer>"
    right: float | None = None
    judge: pl.Collect = pl.Score()
    model: str = "policy"

    def __post_init__(self) -> None:
        pl.check_bounds("rex-rag: p", self.p, least=0, most=1)
        if not self.phrases or not all(phrase.strip() for phrase in self.phrases):
            raise pl.UserError("rex-rag: phrases are one or more texts, and none of them is empty")

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        tried = (
            self._clone(ctx, (*key, i), group, i)
            for i, e in enumerate(group.episodes)
            if has_answered(e)
            and not e.is_right(self.right)
            and pl.rng_of((*key, "probe", i)).random() < self.p
        )
        clones = [e for e in await asyncio.gather(*tried) if e.ok]
        scored = await self.judge(ctx, (*key, "judge"), replace(group, episodes=tuple(clones)))
        marked = (rescue_part(e, self.right) for e in (*group.episodes, *scored.episodes))
        return replace(group, episodes=tuple(marked))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where nothing was cloned, so that the step was GRPO's."""
        episodes = [e for g in groups for e in g.valid]
        if not self.p or not episodes or any("probe" in e.facts for e in episodes):
            return ""
        answered = [e for e in episodes if has_answered(e)]
        wrong = sum(not e.is_right(self.right) for e in answered)
        why = (
            f"{wrong} of {len(episodes)} were wrong, and each is cloned with probability p={self.p:g}; "
            "raise p, or take more prompts a step"
            if wrong
            else "all that ended were right; take harder questions"
            if answered
            else f"none of {len(episodes)} came to an answer; tell the form with --env "
            "'search(told=1)', or imitate it first (sft)"
        )
        return f"no answer of the first step was cloned, so it was GRPO's: {why}"

    async def _clone(
        self, ctx: pl.Context, key: pl.Key, group: pl.Group, parent: int
    ) -> pl.Episode:
        e, dialect = group.episodes[parent], ctx.engine(self.model).dialect
        row, last = last_turn(e)
        kept, thinking = self._kept(ctx, e.rows[row], last)
        opening = "" if thinking else self.opening
        written = [tuple(dialect.encode_text(opening + phrase)) for phrase in self.phrases]
        probe = written[int(pl.rng_of((*key, "phrase")).integers(len(written)))]
        start = pl.rollout.prefix(e, last.turn, kept)
        *whole, open_ = start.said
        begun = replace(
            open_,
            ids=(*open_.ids, *probe),
            logp=(*(open_.logp or ()), *tree_logp(written, probe)),
            text="",
            finish="",
        )
        start = replace(start, said=(*whole, begun), context=(*start.context, *probe))
        sampling = pl.Sampling(max_tokens=ctx.bench.max_tokens)
        clone = await pl.rollout.continuation(ctx, key, group.task, start, sampling, self.model)
        if not clone.ok:
            return clone
        at = place_of(clone.rows[row], last.turn) + kept
        facts = {**clone.facts, "probe": (row, at, at + len(probe))}
        return replace(clone, facts=facts, origin=pl.Origin(parent=parent, turn=last.turn))

    def _kept(self, ctx: pl.Context, row: pl.Row, last: pl.Segment) -> tuple[int, bool]:
        """Tokens of the last turn that stay, and whether a thought is open behind them."""
        text = last.text
        begun = "".join(
            s.text for s in row.segments if s.author == "forced" and s.turn == last.turn
        )
        closed, mark = text.rfind("</think>"), text.rfind(self.mark)
        at = closed if closed >= 0 else max(mark, 0)
        kept = len(last.ids)
        while kept and len(ctx.decode(last.ids[:kept])) > at:
            kept -= 1
        return kept, closed >= 0 or (not kept and "<think>" in begun)


def has_answered(e: pl.Episode) -> bool:
    """Whether an episode came to an answer that was scored."""
    scored = e.ok and e.reward is not None and "probe" not in e.facts
    return scored and bool(e.facts.get("answered", e.status == "finished"))


def rescue_part(e: pl.Episode, right: float | None = None) -> pl.Episode:
    """A clone with the part "rescued", whether it is right; what is no clone says nothing of it."""
    if e.reward is None:
        return e
    is_clone = "probe" in e.facts
    parts = {**e.reward.parts, "rescued": float(is_clone and e.is_right(right))}
    silent = e.reward.silent if is_clone else (*e.reward.silent, "rescued")
    return replace(e, reward=replace(e.reward, parts=parts, silent=silent))


def last_turn(e: pl.Episode) -> tuple[int, pl.Segment]:
    """The row and the segment of what the policy said last."""
    sampled = [(r, s) for r, row in enumerate(e.rows) for s in row.segments if s.logp is not None]
    return max(sampled, key=lambda x: x[1].turn)


def place_of(row: pl.Row, turn: int) -> int:
    """The place of what was sampled in a turn, in the training view of its row."""
    at = 0
    for s in row.segments:
        if s.turn == turn and s.logp is not None:
            break
        at += 0 if s.hidden else len(s.ids)
    return at


@pl.stage
class MixedCredit:
    """Credit that keeps the most likely probes of a batch and leaves log q as the column
    "mixture_logp"; the learner needs ("policy", "logp"). Clones that are not kept are no part of
    the statistics either.

    Args:
        credit: of the answers and the kept clones.
        keep: k at the first step.
        weight: of the newest share of right clones in k.
        corrected: without it q is pi_old.
        right: the reward from which on an answer is right; None = the reward says it.
    """

    credit: pl.Credit
    keep: float = 0.08
    weight: float = 0.1
    corrected: bool = True
    right: float | None = None

    def __post_init__(self) -> None:
        pl.check_bounds("rex-rag: keep", self.keep, least=0)
        pl.check_bounds("rex-rag: weight", self.weight, least=0, most=1)

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where clones were made and none is kept."""
        made = any("probe" in e.facts for g in groups for e in g.valid)
        if made and not self.keep:
            return "keep=0 keeps no clone, so what was cloned in the first step trains nothing"
        return ""

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        k = float(state.get(KEPT, self.keep))
        episodes = [
            (g, i, e) for g, x in enumerate(groups) for i, e in enumerate(x.episodes) if e.ok
        ]
        clones = [(g, i) for g, i, e in episodes if "probe" in e.facts]
        answers = [e for *_, e in episodes if "probe" not in e.facts]
        chances = [probe_logp(groups[g].episodes[i], signals[g][i]) for g, i in clones]
        most = max(int(len(answers) * k), 1) if k > 0 else 0
        best = np.argsort(-np.array(chances), kind="stable")[:most]
        kept = {clones[n] for n in best.tolist()}
        use = [
            [i for i in range(len(x.episodes)) if (g, i) in kept or (g, i) not in clones]
            for g, x in enumerate(groups)
        ]
        groups = [
            replace(x, episodes=tuple(x.episodes[i] for i in mine))
            for x, mine in zip(groups, use, strict=True)
        ]
        seen = [[signals[g][i] for i in mine] for g, mine in enumerate(use)]
        examples, after = self.credit(groups, seen, state)
        if clones:
            rescued = [e.is_right(self.right) for *_, e in episodes if "probe" in e.facts]
            k = (1 - self.weight) * k + self.weight * float(np.mean(rescued))
        wrong = np.mean([not e.is_right(self.right) for e in answers]) if answers else 1.0
        a = len(kept) / max(len(answers) + len(kept), 1)
        of_row = {
            id(row): (e, r) for x in groups for e in x.episodes for r, row in enumerate(e.rows)
        }
        made = [
            self._corrected(x, *of_row[id(x.row)], a, max(float(wrong), 1e-6)) for x in examples
        ]
        return made, {**after, KEPT: k}

    def _corrected(
        self, example: pl.Example, e: pl.Episode, r: int, a: float, wrong: float
    ) -> pl.Example:
        old_T = np.asarray(example.columns["policy_logp"], float)
        row, begin, end = e.facts.get("probe", (-1, 0, 0))
        mixed_T = old_T
        if self.corrected and row < 0:
            mixed_T = mixture_logp(old_T, a)
        elif self.corrected and row == r:
            view = e.rows[r].view()
            before_T = view.trained_T & (np.arange(len(old_T)) < begin)
            mu_P = view.logp_T[begin:end]
            mixed_T = mixture_logp(old_T, a, (begin, end), mu_P, before_T, wrong)
        probed_T = np.full(len(old_T), float(row >= 0))
        columns = {**example.columns, "mixture_logp": mixed_T, "track:probed": probed_T}
        return replace(example, columns=columns)


def probe_logp(e: pl.Episode, signals: Sequence[Any]) -> float:
    """The mean log-prob of a clone's probe under the policy."""
    row, begin, end = e.facts["probe"]
    return float(np.mean(signals[row]["policy_logp"][begin:end]))
