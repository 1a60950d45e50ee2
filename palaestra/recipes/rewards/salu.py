"""SALU: a model learns to answer what can be answered and to abstain from the rest; a false answer
costs the more the surer the model was of it.

    answerable question:      right +1, abstention -0.5, wrong -1 - conf
    unanswerable question:    abstention +1, any other answer -1 - conf        conf = exp(mean log p of the response's tokens)

(arXiv:2507.16951, whose abstract has the idea; the table and conf are inferred.) `build` is a
pipeline of both stages: "sft" imitates answers and abstentions with equal weight per token, "rl" is
GRPO with a KL to its result. conf is that of the frozen result of "sft": a policy could lower its
own confidence. The column `answerable` says which half of the table holds; the answer of a question
that has none is an abstention. With conf c, answering pays if the chance p of being right exceeds
(0.5 + c) / (2 + c). Abstaining always earns 0.1 where 60% can be answered. An abstention is a
response that is one of the phrases and nothing more; with an answer beside it, it is wrong, and so
is an empty response.
"""

import math
import re

import palaestra as pl

CARD = pl.Card(
    title="SALU: unanswerability recognition with RLHF",
    paper="arXiv:2507.16951",
    claim="Punishing false answers by their confidence cuts hallucination on what has no answer "
    "and keeps the other answers.",
    source="abstract and third-party numbers; the table of rewards, lambda and the confidence are "
    "inferred",
    size=pl.Size(
        setting="a Chinese set of retrieval questions; overall accuracy .908, 1.3% hallucination "
        "on unanswerable ones",
    ),
    task="unanswerable",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "answer",
                "text",
                ("42", "I don't know.", "49"),
                "the right answer, or the abstention where the question has none",
            ),
            pl.needs.NeededColumn(
                "answerable",
                "true or false",
                (True, False, True),
                "whether the question has an answer",
            ),
        ),
        shows="part/penalty",
        off={"scale": 0.0},
        own={
            "sft.schedule.prompts": 2,
            "sft.schedule.steps": 1,
            "rl.schedule.prompts": 2,
            "rl.collect.links.0.n": 2,
            "max_tokens": 12,
        },
    ),
    use="It helps where questions without an answer are marked in the data and a false answer "
    "costs more than a missing one; where nearly everything can be answered it teaches needless abstentions.",
    lacks=(
        "Retrieval is not run: what was retrieved stands in the prompt.",
        "The human feedback is a table of rewards, not a reward model trained on preferences.",
        "Answerability of sentences, paragraphs and ranked lists is not predicted apart.",
    ),
    grade="B",
)
PHRASES = ("I don't know.", "= ?")


def is_abstention(text: str, phrases: tuple[str, ...] = PHRASES) -> bool:
    """Whether a response is one of the phrases, whatever its case, spaces, quotes and
    final marks.
    """
    return strip_text(text) in {strip_text(p) for p in phrases}


def strip_text(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("\u2019", "'")).strip(" \"'.!").lower()


def table(
    answerable: bool, right: bool, abstains: bool, punishment: float, abstention: float = -0.5
) -> float:
    """The reward of a response; `punishment` is that of a false answer."""
    if abstains:
        return abstention if answerable else 1.0
    return 1.0 if answerable and right else punishment


@pl.stage
class Honest:
    """The table of the module's docstring, with wrong - scale * conf for false answers; conf under
    `model`.

    The task's meta `answerable` says which half of the table holds; a task without it is
    answerable.
    """

    scale: float = 1.0
    wrong: float = -1.0
    abstention: float = -0.5
    phrases: tuple[str, ...] = PHRASES
    model: str = "ref"

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        if ctx.bench.reward is None:
            raise pl.UserError(
                f"Honest needs a bench that checks answers; the world {ctx.bench.name!r} pays by "
                "itself"
            )
        sure = await pl.rewards.judge_together(
            ctx, self, group, lambda groups: confidences(ctx, self.model, groups)
        )
        gold = await pl.judge_group(ctx, ctx.bench.reward, group)
        known = pl.needs.truth_of(group.task.meta.get("answerable")) is not False
        return [
            g
            if isinstance(g, pl.Fault)
            else self._reward(pl.response_text(e), known, g.total >= pl.SOLVED_TOTAL, c)
            for e, g, c in zip(group.episodes, gold, sure, strict=True)
        ]

    def _reward(self, text: str, known: bool, right: bool, conf: float) -> pl.Reward | pl.Fault:
        if math.isnan(conf):
            return pl.Fault("confidence", "an episode without a sampled token has no confidence")
        abstains = is_abstention(text, self.phrases)
        total = table(known, right, abstains, self.wrong - self.scale * conf, self.abstention)
        parts = {
            "confidence": conf,
            "penalty": self.scale * conf if not abstains and not (known and right) else 0.0,
            "abstained": float(abstains),
            "needlessly": float(abstains and known),
            "hallucinated": float(not abstains and not known),
        }
        return pl.Reward(total=total, parts=parts)


async def confidences(ctx: pl.Context, model: str, groups: list[pl.Group]) -> list[float]:
    """exp(mean log p) of every response under `model`; NaN for one without a token."""
    episodes = [e for g in groups for e in g.episodes]
    there = [i for i, e in enumerate(episodes) if last_turn_ids(e)]
    with ctx.phase("forward"):
        logps = pl.models.score_pairs(
            ctx.model(model),
            [(pl.rewards.last_turn_prompt(episodes[i]), last_turn_ids(episodes[i])) for i in there],
        )
    sure = dict(zip(there, map(pl.rewards.sequence_confidence, logps), strict=True))
    return [sure.get(i, math.nan) for i in range(len(episodes))]


def last_turn_ids(episode: pl.Episode) -> tuple[int, ...]:
    """The ids of the policy's last turn."""
    own = [s for r in episode.rows for s in r.segments if s.trained or s.logp is not None]
    return own[-1].ids if own else ()


def improve(scale: float = 1.0, wrong: float = -1.0, kl: float = 0.02) -> pl.Recipe:
    """The second stage, from a start that answers and abstains."""
    collect = pl.links(pl.Sample(n=8), pl.Score(reward=Honest(scale, wrong), shadow=True))
    return pl.vary(pl.recipe("grpo", kl=kl), collect=collect, references={"ref": "policy"})


def build(
    scale: float = 1.0, wrong: float = -1.0, kl: float = 0.02, steps: int = 12
) -> pl.Pipeline:
    """A false answer is paid `wrong` - `scale` * conf. `steps` are those of the first stage."""
    imitation = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=16, steps=steps))
    rl = improve(scale, wrong, kl)
    return pl.Pipeline(parts={"sft": pl.Part(imitation), "rl": pl.Part(rl, model=pl.Output("sft"))})
