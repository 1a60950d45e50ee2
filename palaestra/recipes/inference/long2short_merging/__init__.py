"""Long to short by merging: the weights of a model that answers at once and of one that works step
by step become one model, without training (arXiv:2503.20641).

    average            mean of theta_i
    task-arithmetic    theta_0 + a * sum_i d_i,  d_i = theta_i - theta_0
    ties               d_i without their smallest entries; of those the mean over the models that have the elected sign
    dare               entries of d_i dropped at random, the others scaled up; then joined as before
    lore, twin         by singular values: what the models have beyond a shared part, at low rank
    aim                a merge whose changes are smaller where the base model's activations are large

The two models are yours: fine-tunes of one base, which is the run's own --model, theta_0. The merge is
saved, and then greedy answers to held-out problems are compared. The question is whether the merge is
more accurate than answers of the two models, mixed to the same mean length, would be (`above_line`).
The barrier test stands beside it: if the loss between the two is not above the line of their own
losses, they lie in one basin, without which nobody merges. The models may differ in special tokens, in
the padding of the vocabulary and in a tied head, as R1-Distill and Qwen2.5-Math do: ordinary tokens
have to have the same ids. Without models both are fine-tunes of the
embedded one: the short one imitates answers alone, the long one workings.

Sens-Merging, which weighs layers by their gradients, is left out.
"""

from typing import Literal

import palaestra as pl
from palaestra.recipes.inference.long2short_merging.exam import MergeExam
from palaestra.recipes.inference.long2short_merging.merges import ActivationInformed, LoRE, Twin

CARD = pl.Card(
    title="Long-to-short reasoning by model merging",
    paper="arXiv:2503.20641",
    claim="Merging a fast and a slow model halves the length of answers and keeps their accuracy, "
    "without training.",
    source="released code (hahahawu/Long-to-Short-via-Model-Merging: merging_methods.py, "
    "mask_weights_utils.py, README) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-Math or Instruct with DeepSeek-R1-Distill of 1.5B, 7B, 14B and 32B, greedy, "
        "10,240 tokens; TIES k 0.8 a 1 at 7B, DARE p 0.3, task arithmetic a 0.7",
    ),
    needs=pl.needs.Requirements(
        models=(
            pl.needs.NeededModel(
                "short model",
                "short",
                "answers at once; a fine-tune of --model",
                inert="",
                reads_tokens=True,
            ),
            pl.needs.NeededModel(
                "long model",
                "long",
                "works step by step; a fine-tune of --model",
                inert="",
                reads_tokens=True,
            ),
        ),
        shows="moved",
        off={"short": "tiny", "long": "tiny"},
        own={"tasks": 2},
    ),
    use="It helps where a fast and a slow fine-tune of one base exist already; models of different "
    "pre-training do not merge.",
    lacks=(
        "Sens-Merging is not there.",
        "Twin's router is a constant weight of each model, and LoRE's estimate a closed form.",
        "Models of the paper's sizes were not merged here.",
        "Self-critique and self-correction of the merge are not measured.",
    ),
    grade="B",
)

How = Literal["average", "task-arithmetic", "ties", "dare", "lore", "twin", "aim"]
ENDS = ("short", "long")
WAYS: dict[str, pl.Runnable] = {
    "average": pl.run.Merged(ENDS, pl.models.Average()),
    "task-arithmetic": pl.run.Merged(ENDS, pl.models.TaskArithmetic(0.7)),
    "ties": pl.run.Merged(ENDS, pl.models.Ties(removed=0.8, scale=1.0)),
    "dare": pl.run.Merged(ENDS, pl.models.Dare(drop=0.3, then=pl.models.TaskArithmetic(0.7))),
    "lore": pl.run.Merged(ENDS, LoRE()),
    "twin": pl.run.Merged(ENDS, Twin()),
    "aim": ActivationInformed(ENDS),
}


def fine_tune(habit: Literal["guess", "work"], steps: int, lr: float) -> pl.Recipe:
    """Imitation of one way to answer: at once, or after its steps."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(pl.Demonstrate(habit=habit)),
        optimiser=pl.AdamW(lr=lr, warmup=5),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )


def merging(
    how: How, tasks: int, ends: dict[str, pl.Output | str], template: str = ""
) -> dict[str, pl.Part]:
    """The merge of two models, and what it is worth on `tasks` held-out problems."""
    way = pl.override(WAYS[how], "tokenizer", template) if template else WAYS[how]
    return {
        "merged": pl.Part(way, models=ends),
        "exam": pl.Part(MergeExam(tasks), model=pl.Output("merged"), models=ends),
    }


def build(
    how: How = "ties",
    short: str = "",
    long: str = "",
    tasks: int = 256,
    template: Literal["", "short", "long"] = "",
) -> pl.Pipeline:
    """`short` and `long` are folders or hub ids; without one, the embedded model stands for it.
    `template` names the one whose tokenizer and chat template the merge has; "" = the base's."""
    ends: dict[str, pl.Output | str] = {"short": short or "tiny", "long": long or "tiny"}
    return pl.Pipeline(parts=merging(how, tasks, ends, template))


def embedded(how: How = "ties", steps: int = 20, lr: float = 3e-4, tasks: int = 256) -> pl.Pipeline:
    """Both models are made first, in `steps` steps of imitation each."""
    ends: dict[str, pl.Output | str] = {name: pl.Output(name) for name in ENDS}
    return pl.Pipeline(
        parts={
            "short": pl.warm(fine_tune("guess", steps, lr)),
            "long": pl.warm(fine_tune("work", steps, lr)),
            **merging(how, tasks, ends),
        }
    )
