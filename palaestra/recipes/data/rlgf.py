"""RLGF: PPO whose attempts begin, or end, with another policy's words.

A guide is a frozen model. With probability `beta` an attempt is rolled in: of what one of the two
says the first h tokens are kept, h uniform in 1..L-1 with L the tokens that it said, and the other
one goes on to the end. Which one, is drawn by the step (arXiv:2306.11816; Cornell-RL/tril,
algorithms and logit_processors):

    ppo++       the guide rolls in, the policy out and is trained on what it says
    aggrevate   the policy rolls in and is trained on it, the guide out: how well the guide does
                from where the policy brought it
    lols        each step ppo++ with probability 0.8, else aggrevate
    d2lols      aggrevate for the first 20 steps, then ppo++

Credit and loss are those of PPO: GAE over the policy's own tokens (gamma 0.99, lambda 0.95), whitened
over these alone, clip 0.2, five epochs, 0.001 of KL to the start in the reward. The reward of the
whole answer sits at the last token of the policy.

Fewer than two tokens are never a roll-in. Where the guide would roll out and nothing is rolled in
there is no token of the policy, so nothing is played; the released code trains on the guide's tokens
there. In the released code the values of the guide's tokens lie between the last trained token and
the reward; here these are no states of the policy, and an aggrevate attempt has its reward at
the hand-over. One value head serves both: with `lols` it is a mean of what the two would reach,
where the paper keeps a critic for each. What a roll-in throws away was sampled, so it is in the
budget. The two go on with one another's tokens, so the guide has the policy's tokenizer.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="RLGF: learning to generate better than your LLM (guide policy roll-in/roll-out)",
    paper="arXiv:2306.11816",
    claim="A policy that starts from a guide's states, or hands over to the guide, learns faster "
    "than by PPO and comes to surpass its guide.",
    source="released code (Cornell-RL/tril: algorithms ppo_pp, aggrevated, lols, d2lols; "
    "logit_processors; cfgs) and the abstract",
    size=pl.Size(
        setting="GPT-2 on IMDB and T5 on CommonGen, 112 trajectories a step, 5 epochs, lr 1e-5, beta "
        "0.6 and 0.8; 48 tokens from memory",
        model="gpt2",
        prompts=112,
        samples=1,
        tokens=48,
        lr=1e-5,
        arguments={"samples": 1},
    ),
)
MARK = "rolled-in"


@pl.declare(facts=(("rolled-in", float, "the share of the answer that was of another policy"),))
@pl.stage
class RollIn:
    """`n` attempts that one of the policy and `guide` begins and the other one ends, see the
    module. They have the fact "rolled-in", the share of the answer's tokens that the first said.

    Args:
        beta: the probability of a roll-in.
        student: the probability of a step in which the policy ends what the guide begins; in the
            other steps it is the other way round.
    """

    n: int = 8
    beta: float = 0.8
    student: float = 1.0
    guide: str = "guide"
    sample: pl.Sample = pl.Sample(n=1)

    def __post_init__(self) -> None:
        pl.check_bounds("RollIn.beta", self.beta, least=0, most=1)
        pl.check_bounds("RollIn.student", self.student, least=0, most=1)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        student = bool(pl.rng_of((key[0], "roles", ctx.step)).random() < self.student)
        own = self.sample.players(ctx)
        frozen = pl.rollout.Frozen(self.guide)(ctx, key, self.sample.sampling(ctx))
        other = {s: frozen if isinstance(p, pl.rollout.EnginePlayer) else p for s, p in own.items()}
        first, second = (other, own) if student else (own, other)
        parts = [
            self._attempt(ctx, (*key, i), group.task, first, second, student) for i in range(self.n)
        ]
        made = [e for e in await asyncio.gather(*parts) if e is not None]
        return replace(group, episodes=(*group.episodes, *made))

    async def _attempt(
        self,
        ctx: pl.Context,
        key: pl.Key,
        task: pl.Task,
        first: Mapping[str, pl.Player],
        second: Mapping[str, pl.Player],
        student: bool,
    ) -> pl.Episode | None:
        """None = an attempt in which the policy would say nothing."""
        rolls, u = pl.rng_of((*key, "roll-in")).random(2)
        said, sample = None, replace(self.sample, n=1)
        if rolls < self.beta:
            begun = await sample.play(ctx, (*key, "in"), pl.Group(task=task), first)
            if not begun.episodes[0].ok:
                return begun.episodes[0]
            said = first_turn(begun.episodes[0])
        if said is None or len(said.ids) < 2:
            if not student:
                return None
            made = await sample.play(ctx, (*key, "out"), pl.Group(task=task), second)
            return _with(made.episodes[0], 0.0)
        kept = cut_turn(said, kept_tokens(u, len(said.ids)), ctx.decode)

        def handed(p: pl.Player) -> pl.Player:
            return (
                pl.rollout.Handover(player=p, said=kept)
                if isinstance(p, pl.rollout.EnginePlayer)
                else p
            )

        cast = {seat: handed(p) for seat, p in second.items()}
        made = await sample.play(ctx, (*key, "out"), pl.Group(task=task), cast)
        e = made.episodes[0]
        return _with(e, len(kept.ids) / max(e.n_sampled, 1))


def kept_tokens(u: float, length: int) -> int:
    """h, uniform in 1..length - 1 for a uniform u in [0, 1)."""
    return 1 + int(u * (length - 1))


def first_turn(e: pl.Episode) -> pl.Segment | None:
    """What was sampled in the first turn; None = nothing."""
    return next((s for row in e.rows for s in row.segments if s.logp is not None), None)


def cut_turn(said: pl.Segment, h: int, decode: Any) -> pl.Segment:
    """The first `h` tokens of a turn, which is open then."""
    ids = said.ids[:h]
    return replace(
        said,
        ids=ids,
        logp=None if said.logp is None else said.logp[:h],
        moved=tuple((i, v) for i, v in said.moved if i < h),
        text=decode(ids),
        finish="",
    )


def _with(e: pl.Episode, share: float) -> pl.Episode:
    return replace(e, facts={**e.facts, MARK: share})


Kind = Literal["ppo++", "aggrevate", "lols", "d2lols"]


def build(
    kind: Kind = "d2lols",
    beta: float = 0.8,
    tau: float | None = None,
    guide: str = "policy",
    samples: int = 8,
    gamma: float = 0.99,
    kl: float = 0.001,
    epochs: int = 5,
) -> pl.Recipe:
    """`guide` is a model by name or folder, "policy" a copy of the start; `tau` the probability of
    lols (0.8) and the steps of d2lols (20). beta 0 in ppo++ is PPO.
    """
    student: Any = {
        "ppo++": 1.0,
        "aggrevate": 0.0,
        "lols": 0.8 if tau is None else tau,
        "d2lols": pl.Jump(0.0, 1.0, 20 if tau is None else int(tau)),
    }[kind]
    rewards = pl.Gae(gamma=gamma, lam=0.95, kl=kl)
    return pl.vary(
        pl.recipe("ppo", kl=kl),
        collect=pl.links(RollIn(n=samples, beta=beta, student=student), pl.Score()),
        credit=pl.chain(pl.Fact(MARK), rewards, pl.Center("batch"), pl.Scale("batch")),
        objective=pl.Clipped(reduce="tokens")
        + 0.5 * pl.ValueLoss(clip=0.2)
        + pl.Track((f"is:{MARK}",)),
        update=pl.Plain(epochs=epochs, minibatches=1),
        references={"guide": guide, **({"ref": "policy"} if kl else {})},
    )
