"""RL Tango: a generator and a generative verifier of its steps, trained in turns.

The verifier reads question and solution and says for each of the K steps v_k = +1 or -1, and for
the whole f = 1 or 0. Generator, in a group of solutions with outcomes R_i (arXiv:2505.15034,
section 3):

    A_out,i    = (R_i - mean R) / std R
    A_step,i,t = sum of the normalised v_k / K over the steps that end at or after token t,
                 normalised by the mean and std of all v_k / K of the group together
    A_i,t      = (1 - a) A_out,i + a A_step,i,t,          a falls exponentially from 0.1 to 0.001

Verifier, one verdict a solution: r = 1[f = R] + 0.8 form, form = share of the criteria that its
reply meets; z-scored in the group, then times s = 1 / sqrt(count in the batch) of the solution's
class, right or wrong, smoothed over steps: else "wrong" for everything pays while the generator is
weak. No labels of steps are used.

After `warmup` steps of the verifier alone, three of four steps train the generator, the fourth the
verifier. Missing verdicts are 0 and cost form; without a readable f the verifier earns 0; a
solution of one line has K = 1; zero std gives 0. The additive form and std with ddof 0 are inferred
from the paper's prose. Division by K leaves nothing to gain from more steps.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="RL Tango: generator and verifier trained together",
    paper="arXiv:2505.15034",
    claim="A verifier of steps that learns beside the generator makes RL faster and better than "
    "outcomes alone.",
    source="text of the paper without its display equations; the sum of the verifier's reward and "
    "ddof are inferred",
    size=pl.Size(
        setting="Qwen2.5-Math-7B after SFT, verifier Qwen2.5-7B, 455k prompts, batch 256 x 5, lr "
        "1e-6, 200 steps, warm-up 40",
        model="qwen2.5-7b",
        prompts=256,
        samples=5,
        lr=1e-6,
    ),
)


@pl.value_class
class StepVerdicts:
    """What a verifier's reply says: +1, -1 or 0 by step, the whole (None = unread), the share of
    criteria of form met.
    """

    steps: tuple[float, ...]
    final: bool | None
    form: float


class Form(Protocol):
    """How a verifier is asked and read."""

    def ask(self, task: pl.Task, text: str) -> tuple[pl.Message, ...]: ...
    def read(self, reply: str, lines: Sequence[str]) -> StepVerdicts: ...


@pl.stage
class Reworked:
    """The verifier works the problem itself and says `= right` or `= wrong`: a step is right if it
    stands in that work.
    """

    def ask(self, task: pl.Task, text: str) -> tuple[pl.Message, ...]:
        return pl.tasks.judging_task(task, text, True).prompt

    def read(self, reply: str, lines: Sequence[str]) -> StepVerdicts:
        own, whole = (
            pl.tasks.answer_lines(reply)[:-1],
            {"right": True, "wrong": False}.get(pl.tasks.final_answer(reply) or ""),
        )
        found = [1.0 if a == b else -1.0 for a, b in zip(lines[:-1], own, strict=False)]
        found += [0.0] * (len(lines) - 1 - len(found))
        found += [0.0 if whole is None else 1.0 if whole else -1.0] * bool(lines)
        return StepVerdicts(
            steps=tuple(found), final=whole, form=(bool(own) + (len(own) == len(lines))) / 2
        )


@pl.declare(facts=(("right", bool, "whether the solution was right"),))
@pl.stage
class VerifySteps:
    """Adds a verifier's row to every scored episode: its verdicts are events, its pay the part
    "seat:verifier".
    """

    form: Form = Reworked()
    model: str = "verifier"
    weight: float = 0.8  # of the form
    max_tokens: int = 64

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        found = (self._of(ctx, (*key, i), group.task, e) for i, e in enumerate(group.episodes))
        return replace(group, episodes=tuple(await asyncio.gather(*found)))

    async def _of(self, ctx: pl.Context, key: pl.Key, task: pl.Task, e: pl.Episode) -> pl.Episode:
        if e.reward is None:
            return e
        sampling = pl.Sampling(temperature=1.0, max_tokens=self.max_tokens)
        player = pl.rollout.EnginePlayer(
            engine=ctx.engine(self.model), sampling=sampling, name=self.model, policy=self.model
        )
        ask = pl.Ask(seat=self.model, say=self.form.ask(task, pl.response_text(e)))
        row = pl.Row(seat=self.model, segments=player.hear(ask, first=True, closed=False, turn=0))
        try:
            reply = await player.act(row, (), ask, key)
        except pl.Fault as fault:
            return pl.rollout.apply_reward(e, fault)
        spoken = pl.Segment(
            ids=reply.ids, logp=reply.logp, author=self.model, policy=self.model, trained=True,
            version=reply.version, moved=reply.moved, text=reply.text, finish=reply.finish,
        )  # fmt: skip
        return self.paid(replace(e, rows=(*e.rows, row.add(spoken))), reply.text, ctx)

    def paid(self, e: pl.Episode, reply: str, ctx: pl.Context) -> pl.Episode:
        """The episode with what its last row's reply means for both."""
        assert e.reward is not None
        found = [s for s in pl.rollout.answer_steps(e, ctx.decode) if s.row < len(e.rows) - 1]
        verdict, right = self.form.read(reply, [s.text for s in found]), e.total >= 1
        pay = (
            0.0
            if verdict.final is None
            else float(verdict.final == right) + self.weight * verdict.form
        )
        events = tuple(
            pl.Event(row=s.row, token=s.token, value=v / len(found), part="verdict")
            for s, v in zip(found, verdict.steps, strict=True)
        )
        agrees = verdict.final == right
        found_out = {
            "right and said so": float(right and agrees),
            "wrong and said so": float(agrees and not right),
        }
        parts = {**e.reward.parts, pl.payment(self.model): pay, **found_out}
        return replace(
            e,
            reward=replace(e.reward, parts=parts, events=events),
            facts={**e.facts, "right": right},
        )


@pl.stage
class StepMixture:
    """(1 - share) * outcome + share * verdicts; see the module. Without `apart` they are added
    before they are normalised.
    """

    share: Any = 0.1
    apart: bool = True
    spreads: ClassVar[bool] = True  # verdicts differ where outcomes are equal

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        paid = [
            (e, ev) for e, ep in enumerate(table.episodes) if ep.reward for ev in ep.reward.events
        ]
        value_K, of_K = (
            np.array([ev.value for _, ev in paid]),
            np.array([e for e, _ in paid], np.int64),
        )
        if not self.apart:
            total_E = (1 - self.share) * x.x_N + self.share * np.bincount(of_K, value_K, len(x.x_N))
            return table.lift(
                pl.Values(level="episode", x_N=z_scores(total_E, table.group_E)), "token"
            )
        out_N = (1 - self.share) * table.lift(
            pl.Values(level="episode", x_N=z_scores(x.x_N, table.group_E)), "token"
        ).x_N
        at = table.tokens
        for z, (e, event) in zip(z_scores(value_K, table.group_E[of_K]), paid, strict=True):
            before_N = (
                (at.episode_N == e) & (at.row_N == event.row) & (at.position_N <= event.token)
            )
            out_N[before_N] += self.share * z
        return pl.Values(level="token", x_N=out_N)


def z_scores(x_N: np.ndarray, key_N: np.ndarray) -> np.ndarray:
    """z-scores within a key, std with ddof 0; 0 where all are equal."""
    if not len(x_N):
        return x_N
    std_N = pl.credit.group_std(x_N, key_N)
    return np.where(std_N > 1e-9, (x_N - pl.group_mean(x_N, key_N)) / np.maximum(std_N, 1e-9), 0.0)


@pl.declare(reads=("right",))
@pl.stage
class ClassWeight:
    """x * s of the solution's class (the fact "right"), s = 1 / sqrt(count) with an exponential
    average of `keep`.
    """

    keep: float = 0.9

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        right_E = np.array([bool(e.facts.get("right")) for e in table.episodes])
        known = dict(table.state.get("class_weight", {}))
        for name, n in (("right", int(right_E.sum())), ("wrong", int((~right_E).sum()))):
            if n:  # a class that is absent keeps its weight
                known[name] = self.keep * known.get(name, n**-0.5) + (1 - self.keep) * n**-0.5
        table.remember("class_weight", known)
        weight_E = np.array([known["right" if r else "wrong"] for r in right_E])
        return pl.Values(
            level=x.level,
            x_N=x.x_N * table.lift(pl.Values(level="episode", x_N=weight_E), x.level).x_N,
        )


Z = (pl.Center("group"), pl.Scale("group", ddof=0))


def build(
    share: float = 0.1,
    warmup: int = 40,
    learns: bool = True,
    balanced: bool = True,
    apart: bool = True,
    form: Form = Reworked(),
) -> pl.Recipe:
    """`learns=False` fixes the verifier, `balanced=False` drops the class weights, `apart=False`
    merges before normalising.
    """
    grpo = pl.recipe("grpo")
    generator = replace(
        grpo.learners["policy"],
        credit=pl.chain(
            StepMixture(pl.Exponential(share, 1e-3, 200) if share > 1e-3 else share, apart)
        ),
        update=pl.Cycle(pl.Plain(), on=(0, 1, 2), warmup=warmup),
    )
    verifier = pl.Learner(
        credit=pl.credit.Seat(
            "verifier", pl.chain(*Z, ClassWeight()) if balanced else pl.chain(*Z)
        ),
        objective=generator.objective,
        update=pl.Cycle(pl.Plain(), on=(3,) if learns else (), warms=learns, warmup=warmup),
    )
    collect = pl.links(pl.Sample(n=8), pl.Score(), VerifySteps(form))
    return pl.vary(grpo, collect=collect, learners={"policy": generator, "verifier": verifier})
