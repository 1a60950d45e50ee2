"""MT-R1-Zero: GRPO on translation. The policy reasons first; translation metrics are its reward,
and no reasoning is demonstrated.

    r = +1 + content    if <think></think><translate></translate> stand there once and in order, else -1 - 2   (arXiv:2504.10160)

content = BLEU / 100 ("lex", one line, sacrebleu), a learned quality metric in [0, 1] ("sem",
COMETKiwi there), or their sum ("mix"); -2 for an empty translation. So r is in [1, 2], or [1, 3]
mixed; -3 for bad form; -1 for good form and nothing in it. With `threshold` the content is +2 above
it, -1.5 below (the paper's discrete ablation). GRPO from a base model: 8 samples, no KL.

`semantic` names a metric of your own, FILE.py:function(source, hypothesis, reference); chrF stands
in for it. A copy of the source, another script than the reference's, loops and text four times too
long have content 0, a guard of ours against what learned metrics pay. Equal rewards: advantage 0.
"""

from dataclasses import replace
from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="MT-R1-Zero: rule-metric mixed reward for translation",
    paper="arXiv:2504.10160",
    claim="A lexical and a semantic metric together, behind a gate of form, train better "
    "translators than either alone.",
    source="released code (fzp0424/MT-R1-Zero: verl/utils/reward_score/mt_score.py, main_grpo.sh)",
    size=pl.Size(
        setting="Qwen2.5 3B and 7B base, 13,130 sentence pairs en-zh, 8 samples, batch 8, lr 5e-7, "
        "no KL, 1,024 tokens",
        model="qwen2.5-7b",
        prompts=8,
        samples=8,
        tokens=1024,
        lr=5e-7,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                (
                    "Translate into English, in <translate></translate> behind your reasoning in "
                    "<think></think>: Guten Morgen.",
                    "Translate into English, in <translate></translate> behind your reasoning in "
                    "<think></think>: Es regnet.",
                ),
                "what the model is asked, with the form of the reply",
            ),
            pl.needs.NeededColumn(
                "source", "text", ("Guten Morgen.", "Es regnet."), "the text that is translated"
            ),
            pl.needs.NeededColumn(
                "answer", "any", ("Good morning.", "It is raining."), "its translation, or several"
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "reward",
                "a semantic metric of your own, (source, hypothesis, reference) -> [0, 1], such as "
                "one that asks COMET",
                flag="semantic=FILE.py:NAME",
                otherwise="chrF, which compares characters, stands in for it",
            ),
        ),
        shows="part/paper",
        never_off="A reply without a translation is paid the least, which is not 0; the reward is the "
        "method.",
        own={"schedule.prompts": 2, "collect.links.0.n": 2},
    ),
    use="It helps where references exist and the metric agrees with people; with one metric alone "
    "the policy drifts to what that metric overlooks.",
    lacks=(
        "COMET and COMETKiwi are not installed: you bring the metric as a function.",
        "Without `semantic` no part of the reward reads meaning: chrF compares characters.",
        "The metric is called for one translation at a time, not for a batch.",
    ),
    grade="B",
)
ASK = "Reason in <think></think>, then write the translation in <translate></translate>."
METRICS = {"lex": (1.0, 0.0), "sem": (0.0, 1.0), "mix": (1.0, 1.0)}


@pl.stage
class Metrics:
    """r of the module's docstring from the parts `lex` and `sem`. Without `gate`, form earns and
    costs nothing.
    """

    reward: pl.Rewritten
    lex: float = 1.0
    sem: float = 1.0
    threshold: float | None = None
    gate: bool = True

    async def __call__(self, ctx: pl.Context | None, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        rewards = await self.reward(ctx, group)
        return [r if isinstance(r, pl.Fault) else replace(r, total=self.total(r)) for r in rewards]

    def put(self, task: pl.Task) -> str | None:
        """The task's answer as a response."""
        return self.reward.put(task)

    def total(self, reward: pl.Reward) -> float:
        if "lex" not in reward.parts:  # no translation
            return reward.parts.get("paper", reward.total) if self.gate else 0.0
        content = self.lex * reward.parts["lex"] + self.sem * reward.parts["sem"]
        if self.threshold is not None:
            content = 2.0 if content > self.threshold else -1.5
        return content + self.gate


@pl.stage
class AsTranslation:
    """An answer with spaces between its characters, which are then the words that a metric
    compares.
    """

    def __call__(self, text: str, task: pl.Task) -> pl.rewards.VerifierInput:
        spaced = lambda answer: " ".join("".join(answer.split()))
        return (
            pl.rewards.write_blocks(text, ("think", "translate"), spaced),
            spaced(str(task.answer)),
            {},
        )


def build(
    metric: Literal["lex", "sem", "mix"] = "mix",
    language: str = "en",
    semantic: str = "",
    threshold: float | None = None,
    gate: bool = True,
) -> pl.Recipe:
    name = f"translation-mix(language={language!r}, semantic={semantic!r})"
    reward = pl.Rewritten(pl.Verified(name, paper=True), unless="source", write=AsTranslation())
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            pl.Sample(n=8), pl.Score(Metrics(reward, *METRICS[metric], threshold, gate))
        ),
        instruction=ASK,
    )
