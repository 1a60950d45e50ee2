"""ReSearch: searches are part of the reasoning, and only outcomes are rewarded.

The policy thinks, searches, reads what was found, and in the end answers. What is found is masked
from the loss. With f the F1 of the answer (arXiv:2503.19470):

    f > 0           R = f
    f = 0           R = 0.1 where the form is right
    form broken     R = 0, also of a right answer, and of an episode without an end

and GRPO on R. The form: every turn is one thought and one search, the last one thought and one
answer in \\boxed{}. `think=False` and `boxed=False` ask for less, for models with a short context.

Deviations: a search ends its message, and what is found is a message of the environment, not text
in <result> tags on the same line. An empty query is answered with "invalid query", as in the paper.
"""

import palaestra as pl

CARD = pl.Card(
    title="ReSearch: reason with search",
    paper="arXiv:2503.19470",
    claim="Reasoning that learns by outcomes when and what to search answers questions over several "
    "pages better than retrieval with the question, and transfers to unseen benchmarks.",
    source="own knowledge of reward, tags and masks, and a verified derivative "
    "(dongguanting/Tool-Star: re_search.py); the official repository was not read",
    size=pl.Size(
        setting="Qwen2.5-7B and 32B, MuSiQue, 5 answers a prompt, batch 256, lr 1e-6, 2 epochs, 5 "
        "passages a search; from memory",
        model="qwen2.5-7b",
        prompts=256,
        samples=5,
        lr=1e-6,
    ),
    task="wiki-2",
    needs=pl.needs.Requirements(
        columns=(pl.needs.QUESTION, pl.needs.GOLD_ANSWER),
        places=(
            pl.needs.NeededPlace(
                "documents",
                "which the model searches",
                also=("tools",),
                built_in=("wiki-2",),
            ),
        ),
        shows="tools/calls",
        never_off="Without tools nothing is searched, so there is no arm without calls; a policy that "
        "never calls makes it 0.",
        own={"model": "tiny-agent", "samples": 2, "schedule.prompts": 2},
    ),
    use="It helps where answers need several searches, each led by the last; where one search with "
    "the question suffices it costs turns.",
    lacks=("The benchmarks and the retriever of the paper are not there.",),
    grade="A",
)
BOX = "Give the final answer in \\boxed{}."


def build(
    floor: float = 0.1, think: bool = True, boxed: bool = True, samples: int = 5, turns: int = 0
) -> pl.Recipe:
    """`floor` is R of a wrong answer in the right form; `turns` 0 = as many as the world allows."""
    reward = pl.rewards.AnswerF1(floor=floor, think=think, boxed=boxed)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=samples, turns=turns), pl.Score(), reward),
        instruction=" ".join(
            (*([pl.rewards.THINK_FIRST] if think else ()), *([BOX] if boxed else ()))
        ),
    )
