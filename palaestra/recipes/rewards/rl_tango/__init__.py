"""RL Tango: a generator and a verifier of its steps, both trained by RL, in turns.

The verifier is a language model that reads a question and a solution, and says for each of its K
steps v_k = +1 or -1, and for the whole f = 1 or 0. Its verdicts on steps are part of the
generator's advantage; it is itself paid for agreeing with the outcome, so no step needs a label.
Generator, in a group of solutions with outcomes R_i (arXiv:2505.15034, section 3):

    A_out,i    = (R_i - mean R) / std R
    A_step,i,t = sum of the normalised v_k / K over the steps that end at or after token t,
                 normalised by the mean and std of all v_k / K of the group together
    A_i,t      = (1 - a) A_out,i + a A_step,i,t,          a falls exponentially from 0.1 to 0.001

Verifier, one verdict a solution: r = 1[f = R] + 0.8 form, form = share of the criteria that its
reply meets; z-scored in the group, then times s = 1 / sqrt(count in the batch) of the solution's
class, right or wrong, smoothed over steps: else "wrong" for everything pays while the generator is
weak.

A step is a line that is not empty. After `warmup` steps of the verifier alone, three of four steps
train the generator, the fourth the verifier. Missing verdicts are 0 and cost form; without a
readable f the verifier earns 0; a solution of one line has K = 1; zero std gives 0. Both models
start from the same weights. The additive form, its criteria, the words of the verifier's prompt and
std with ddof 0 are inferred from the paper's prose. Division by K leaves nothing to gain from more
steps.

Long because two models are paid by each other in one episode: the recipe has the verifier's row and
pay, its verdicts in the generator's advantage, class weights, and the turns of both learners.
"""

import asyncio
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.rewards.rl_tango.forms import Form, NumberedSteps, Reworked

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
    needs=pl.needs.Requirements(
        shows="verifier/updates",
        off={"learns": False},
        own={
            "warmup": 1,
            "schedule.prompts": 2,
            "collect.links.0.n": 2,
            "collect.links.2.max_tokens": 24,
        },
    ),
    use="It helps where answers can be checked and solutions have steps that a model of the "
    "generator's size can judge; while the verifier guesses, its verdicts are noise with a weight "
    "of a tenth or less.",
    lacks=(
        "Generator and verifier start from the same weights; two different models cannot be "
        "trained.",
        "The supervised start of the generator on written solutions is a run of `sft` before.",
        "How right the verifier is about single steps, as on ProcessBench, is not measured.",
    ),
    grade="A",
)


@pl.declare(facts=(("right", bool, "whether the solution was right"),))
@pl.stage
class VerifySteps:
    """Adds a verifier's row to every scored episode: its verdicts are events, its pay the part
    "seat:verifier".
    """

    form: Form = NumberedSteps()
    model: str = "verifier"
    weight: float = 0.8  # of the form
    max_tokens: int = 1024

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        each = (self._verify(ctx, (*key, i), group.task, e) for i, e in enumerate(group.episodes))
        return replace(group, episodes=tuple(await asyncio.gather(*each)))

    async def _verify(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, e: pl.Episode
    ) -> pl.Episode:
        if e.reward is None:
            return e
        sampling = pl.Sampling(temperature=1.0, max_tokens=self.max_tokens)
        player = pl.rollout.EnginePlayer(
            engine=ctx.engine(self.model), sampling=sampling, name=self.model, policy=self.model
        )
        lines = [s.text for s in pl.rollout.answer_steps(e, ctx.decode)]
        ask = pl.Ask(seat=self.model, say=self.form.ask(task, pl.response_text(e), lines))
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
        steps = [s for s in pl.rollout.answer_steps(e, ctx.decode) if s.row < len(e.rows) - 1]
        verdict, right = self.form.read(reply, [s.text for s in steps]), e.solved
        pay = (
            0.0
            if verdict.final is None
            else float(verdict.final == right) + self.weight * verdict.form
        )
        events = tuple(
            pl.Event(row=s.row, token=s.token, value=v / len(steps), part="verdict")
            for s, v in zip(steps, verdict.steps, strict=True)
        )
        agrees = verdict.final == right
        agreement = {
            "right and said so": float(right and agrees),
            "wrong and said so": float(agrees and not right),
        }
        parts = {**e.reward.parts, pl.payment(self.model): pay, **agreement}
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
    form: Form = NumberedSteps(),
    verdict_tokens: int = 1024,
) -> pl.Recipe:
    """`learns=False` fixes the verifier, `balanced=False` drops the class weights, `apart=False`
    merges before normalising. `form` says how the verifier is asked and read, and its reply has up
    to `verdict_tokens` tokens.
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
    collect = pl.links(pl.Sample(n=8), pl.Score(), VerifySteps(form, max_tokens=verdict_tokens))
    return pl.vary(grpo, collect=collect, learners={"policy": generator, "verifier": verifier})


def embedded(form: Form = Reworked(), verdict_tokens: int = 64, **options: Any) -> pl.Recipe:
    """On the embedded problem, whose small model writes no prose."""
    return build(form=form, verdict_tokens=verdict_tokens, **options)
