"""ICPO: one answer of a group is sampled behind a worked example, and the bare prompt learns from it.

Seven answers come from the question, the eighth behind a worked example of another problem, drawn at
random: the model's own reading of examples plays the expert. It is trained on as an answer to the
bare question, as if whoever gave it had said it with probability 1 (arXiv:2510.26519; Celine-hxy/ICPO,
core_algos.py, reward_score.py and icpo_trainer.py):

    own        PPO's clip at 0.2, of a negative advantage at most 3 A,    rho = pi / pi_old
    expert     -A p / (p + 0.1),    p = pi(o | bare question)

A = (r - mean r) / (std r + 1e-6), ddof 1; a mean over tokens, 0.001 of KL (k3). Reject sampling: an
expert's answer that is wrong is left out, so that seven are compared. Reward shaping (RS): a right
one of the expert is worth 1 + bonus, which falls from 1 to 0 over 400 steps; what is above 1 raises
the mean and pushes right answers of the policy down: [1, 0 x 6, 1.75] gives 0.98 and 2.11, without
bonus both have 1.62.

`reject=False` is what the released trainer does; the paper's text leaves wrong ones out. Examples
come from the training tasks, where the paper has a data set of its own and may renew it with what was
solved. `shaped=False` has p itself as the surrogate.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="ICPO: in-context steered policy optimisation",
    paper="arXiv:2510.26519",
    claim="A model's own answers behind a worked example, learned as answers to the bare question, "
    "widen what RL explores and end above GRPO.",
    source="released code (Celine-hxy/ICPO: core_algos.py, reward_score.py, icpo_trainer.py, "
    "scripts), and the abstract for the reject sampling",
    size=pl.Size(
        setting="Qwen3-1.7B and 8B, OpenR1-Math of up to 8,192 tokens, 7 + 1 samples, 128 prompts in "
        "minibatches of 64, 1 example of MATH's training set, lr 1e-6, KL 0.001, 400 steps",
        model="qwen3-1.7b",
        prompts=128,
        samples=7,
        tokens=8192,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            replace(
                pl.needs.DEMONSTRATION,
                otherwise="a worked example shows the answer alone, without working",
            ),
        ),
        least={"tasks": 2},
        shows="is:guided",
        off={"examples": 0},
        own={"reject": False, "schedule.prompts": 3, "collect.links.0.n": 3},
    ),
    use="It helps where a worked example makes the model answer better than the bare question does; a "
    "model that examples do not help learns from its own answers alone.",
    lacks=(
        "Examples come from the training tasks, not from a data set of their own.",
        "Examples are not renewed with what the policy solved.",
    ),
    grade="A",
)
MARK = "guided"


def without_wrong_experts(group: pl.Group) -> Sequence[int]:
    """The policy's own answers, and those of the expert that are right."""
    return [i for i, e in enumerate(group.episodes) if e.ok and (not e.facts.get(MARK) or e.solved)]


@pl.stage
class ExpertBonus:
    """Adds `bonus` to the reward of a right answer with the fact "guided"."""

    bonus: float = 1.0

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        x = table.lift(x, "episode")
        earned = [bool(e.facts.get(MARK)) and e.ok and e.solved for e in table.episodes]
        return pl.Values(level=x.level, x_N=x.x_N + self.bonus * np.array(earned, float))


def build(
    bonus: float = 1.0,
    fades: int = 400,
    examples: int = 1,
    reject: bool = True,
    shaped: bool = True,
    kl: float = 0.001,
) -> pl.Recipe:
    """`bonus` falls to 0 in `fades` steps, 0 = it stays; a bonus of 0 is ICPO without RS. Without
    `examples` nobody is an expert.
    """
    examples_prompt = pl.rollout.Examples(examples) if examples else None
    expert = (
        (pl.Under(examples_prompt, pl.Sample(n=1), MARK), pl.Hide(MARK)) if examples_prompt else ()
    )
    keep = (pl.rollout.Regroup(without_wrong_experts),) if reject else ()
    earned: Any = pl.Linear(bonus, 0.0, fades) if fades else bonus
    scope = pl.Stratum(fact="")
    other = pl.Shaped("saturating") if shaped else pl.Shaped("power")
    own = pl.DualClipped(low=0.2, high=0.2, c=3.0)
    loss = pl.On(MARK, other) + pl.On(MARK, own, absent=True)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=7), *expert, pl.Score(), *keep),
        credit=pl.chain(pl.Fact(MARK), ExpertBonus(earned), pl.Center(scope), pl.Scale(scope)),
        objective=loss + kl * pl.KL("k3", reduce="tokens") if kl else loss,
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
        update=pl.Plain(minibatches=2),
    )
