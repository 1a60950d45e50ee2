"""Critique-GRPO: an answer that was improved after a critique joins the group, and the bare question
learns from it.

Seven answers are sampled. A critic says in words what is wrong with each wrong one, and the policy
answers anew behind its attempt and that critique. One of these refinements joins the seven: the first
right one, else the first. It is trained on as an answer to the question alone, as if it had been
sampled there with probability 1 (arXiv:2506.03106; zhangxy-2019/critique-GRPO,
critique_core_algos.py, critique_vllm_rollout_spmd.py and its script):

    own          -rho A,    rho = pi / pi_old, without a clip
    refinement   -A p / (p + 0.1),    p = pi(o | question)

A = r - mean r over the eight: [1, 0 x 6] and a right refinement have 0.75, the others -0.25. Summed
over tokens and divided by the longest answer allowed, 0.001 of entropy, no KL. A token that the
policy would rarely say weighs most, 0.1 p / (p + 0.1)^2; a wrong refinement is pushed down.

    palaestra train critique-grpo --data FILE.jsonl critic="endpoint(url='http://HOST:PORT/v1',model='m')"

`critic` sees the question, the reference answer and the attempt; it is the policy as it is, unless an
endpoint or the folder of a frozen model is named. `kind` "verdict" says only that the attempt is
wrong and "answer" also the right answer ("simple_gt"), which a refinement may copy; neither asks a
critic. `clip` bounds rho again.

Edges: where every answer is right, nothing is refined, and seven are compared; the released code
refines right ones too. An attempt whose critic fails or says nothing has no refinement.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

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
    needs=pl.needs.Requirements(
        models=(
            pl.needs.NeededModel(
                "critic",
                "critic",
                "says in words what is wrong with an attempt",
                inert=pl.LocalModel(),
                example="endpoint(url='http://HOST:PORT/v1',model='NAME')",
                otherwise="the policy criticises itself",
                when={"kind": ("critique",)},
            ),
        ),
        shows="refined/shaped",
        never_off="Every wrong answer gets a critique and a refinement, and no argument turns that "
        "off; without wrong answers the number is 0.",
        own={
            "endpoint": "The first step is wrong: carry the one.",
            "schedule.prompts": 2,
            "collect.links.0.n": 2,
        },
    ),
    use="It helps where an answer that was wrong is often right after a critique, so the model reads "
    "critiques and the critic writes good ones; each wrong answer costs a critique and a refinement.",
    lacks=("Right answers are not refined.",),
    grade="A",
)
MARK, CRITIQUE = "refined", "written-critique"
ASK = (
    "A question:\n{question}\n\nIts answer: {answer}\n\nA wrong attempt:\n{attempt}\n\n"
    "Go through the attempt step by step. Say which step goes wrong, why, and what to do instead."
)
Kind = Literal["critique", "verdict", "answer"]


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


@pl.declare(facts=(("written-critique", str, "what a critic says of a wrong answer"),))
@pl.stage
class WriteCritiques:
    """Leaves at each wrong answer the fact "written-critique", in the words of `critic`."""

    critic: pl.Source = pl.LocalModel()
    max_tokens: int = 512

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        async def criticise(e: pl.Episode, number: int) -> pl.Episode:
            if not e.ok or e.solved or not e.text:
                return e
            asked = ASK.format(
                question=pl.tasks.question_text(group.task),
                answer="unknown" if group.task.answer is None else group.task.answer,
                attempt=e.text.strip(),
            )
            request = pl.ChatRequest(
                messages=pl.services.question_messages(asked),
                temperature=1.0,
                max_tokens=self.max_tokens,
            )
            try:
                text = await ctx.ask(self.critic, request, seed=pl.seed_of((*key, number)))
            except pl.Fault:  # what nobody criticises is not refined
                return e
            return replace(e, facts={**e.facts, CRITIQUE: text.strip()})

        made = [criticise(e, i) for i, e in enumerate(group.episodes)]
        return replace(group, episodes=tuple(await asyncio.gather(*made)))


@pl.stage
class ShowCritique:
    """The question, the group's only attempt and its critique; None where it has none."""

    def __call__(
        self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator
    ) -> pl.Task | None:
        (e,) = group.episodes
        text = e.facts.get(CRITIQUE)
        if not text:
            return None
        attempt = pl.Message(role="assistant", content=e.text.strip(), author="policy")
        critique = pl.Message(role="user", content=f"{text}\n\nAnswer the question again.")
        return replace(group.task, prompt=(*group.task.prompt, attempt, critique))


def with_one_refinement(group: pl.Group) -> Sequence[int]:
    """The policy's answers, and of its refinements the first right one, else the first."""
    own = [i for i, e in enumerate(group.episodes) if not e.facts.get(MARK)]
    refined = [i for i, e in enumerate(group.episodes) if e.facts.get(MARK) and e.ok]
    right = [i for i in refined if group.episodes[i].solved]
    return [*own, *(right or refined)[:1]]


def build(
    kind: Kind = "critique",
    critic: pl.Source = pl.LocalModel(),
    clip: bool = False,
    entropy: float = 0.001,
    length: float | None = None,
) -> pl.Recipe:
    """Args:
    kind: what is said of a wrong answer.
    critic: says it in words, for the kind "critique".
    length: tokens of the longest answer allowed; None = the run's.
    """
    written = kind == "critique"
    rewrite = ShowCritique() if written else pl.Feedback(kind)
    own = (
        pl.Clipped(reduce="constant", length=length)
        if clip
        else pl.Shaped("power", old="behaviour", reduce="constant", length=length)
    )
    other = pl.Shaped("saturating", reduce="constant", length=length)
    loss = pl.On(MARK, other) + pl.On(MARK, own, absent=True)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            pl.Sample(n=7),
            pl.Score(),
            *((WriteCritiques(critic),) if written else ()),
            EachAttempt(pl.Under(rewrite, pl.Sample(n=1), MARK)),
            pl.Hide(MARK),
            pl.Score(),
            pl.rollout.Regroup(with_one_refinement),
        ),
        credit=pl.chain(pl.Fact(MARK), pl.Center(pl.Stratum(fact=""))),
        objective=loss + entropy * pl.Entropy() if entropy else loss,
        update=pl.Plain(minibatches=2),
    )


def embedded(
    kind: Kind | None = None, critic: pl.Source | None = None, **options: Any
) -> pl.Recipe:
    """On the embedded problem, whose model cannot write critiques: unless a critic is given, it only
    hears that it was wrong.
    """
    if critic is None:
        return build(kind or "verdict", **options)
    return build(kind or "critique", critic, **options)
