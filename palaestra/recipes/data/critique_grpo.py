"""Critique-GRPO: an answer that was improved behind a critique joins the group, and the bare question
learns from it.

Seven answers; each wrong one is shown again with what is said of it, and answered anew. One of these
refinements joins the seven: the first right one, else the first. It is trained on as an answer to the
question alone, as if whoever gave it had said it with probability 1 (arXiv:2506.03106;
zhangxy-2019/critique-GRPO, critique_core_algos.py, critique_vllm_rollout_spmd.py and its script):

    own          -rho A,    rho = pi / pi_old, without a clip
    refinement   -A p / (p + 0.1),    p = pi(o | question)

A = r - mean r over the eight: [1, 0 x 6] and a right refinement have 0.75, the others -0.25. Summed
over tokens and divided by the longest answer allowed, 0.001 of entropy, no KL. A token that the
policy would rarely say weighs most, 0.1 p / (p + 0.1)^2; a wrong refinement is pushed down.

`kind`: "verdict" says that it is wrong; "answer" also the right answer ("simple_gt"), which a
refinement may copy; "critique" which line is the first wrong one, of tasks that know: it stands in
for the text of a stronger model, which is not built. Where every answer is right, nothing is refined, and seven are compared; the
released code refines right ones too. `clip` bounds rho again. `refined=False` leaves the refinement
out of the loss, an ablation; it stays in the mean.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="Critique-GRPO: natural-language and numerical feedback",
    paper="arXiv:2506.03106",
    claim="Answers that were improved by critiques, learned without the critiques beside the policy's own, "
    "go beyond the plateau of GRPO.",
    source="released code (zhangxy-2019/critique-GRPO: critique_core_algos.py, "
    "critique_vllm_rollout_spmd.py, run script) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-7B and Qwen3-8B base, 4k prompts of OpenR1-Math, 7 + 1 samples, 128 prompts "
        "in minibatches of 64, temperature 1, 6,144 tokens, lr 1e-6, entropy 0.001",
        model="qwen3-8b",
        prompts=128,
        samples=7,
        tokens=6144,
        lr=1e-6,
        arguments={"length": 6144, "kind": "answer"},
    ),
)
MARK = "refined"


@pl.declare(facts=(("refined", float, "1 where a critique of an earlier answer was shown"),))
@pl.stage
class EachAttempt:
    """Runs `link` for every attempt as if it were the group's only one; what it adds joins."""

    link: pl.Collect

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        alone = [
            self.link(ctx, (*key, i), pl.Group(task=group.task, episodes=(e,)))
            for i, e in enumerate(group.episodes)
        ]
        more = [e for made in await asyncio.gather(*alone) for e in made.episodes[1:]]
        return replace(group, episodes=(*group.episodes, *more))


def with_one_refinement(group: pl.Group) -> Sequence[int]:
    """The policy's answers, and of its refinements the first right one, else the first."""
    own = [i for i, e in enumerate(group.episodes) if not e.facts.get(MARK)]
    refined = [i for i, e in enumerate(group.episodes) if e.facts.get(MARK) and e.ok]
    right = [i for i in refined if group.episodes[i].solved]
    return [*own, *(right or refined)[:1]]


def build(
    kind: Literal["verdict", "answer", "critique"] = "verdict",
    clip: bool = False,
    refined: bool = True,
    entropy: float = 0.001,
    length: float = 64,
) -> pl.Recipe:
    """`kind` is what is said of a wrong answer."""
    refine = pl.Under(pl.Feedback(kind), pl.Sample(n=1), MARK)
    own = (
        pl.Clipped(reduce="constant", length=length)
        if clip
        else pl.Shaped("power", old="behaviour", reduce="constant", length=length)
    )
    other = pl.Shaped("saturating", reduce="constant", length=length)
    kept = pl.On(MARK, own, absent=True)
    loss = pl.On(MARK, other) + kept if refined else kept
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            pl.Sample(n=7),
            pl.Score(),
            EachAttempt(refine),
            pl.Hide(MARK),
            pl.Score(),
            pl.rollout.Regroup(with_one_refinement),
        ),
        credit=pl.chain(pl.Fact(MARK), pl.Center(pl.Stratum(fact=""))),
        objective=loss + entropy * pl.Entropy() if entropy else loss,
        update=pl.Plain(minibatches=2),
    )
