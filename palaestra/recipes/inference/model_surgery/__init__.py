"""Model Surgery: a behaviour is taken out of a model by adding one direction to a few rows of its
weights, without training (arXiv:2407.08770).

    probe     a linear classifier of unwanted and fine texts, on the mean over tokens (of an answer
              alone) of the last hidden state; v = its weights of "unwanted" less those of "fine", at length 1
    rows      of all gate projections of all layers those with the smallest cos(w, v), a share of them
    edit      w <- w + strength * s * v,    s the mean length of the rows that are edited

A gate that is shut by the unwanted state opens there, and hardly moves where v . h is small.

Texts are yours: two files, `unwanted` and `fine` (a text or an answered prompt each), or labelled
answers of --data (columns prompt, response, right: wrong ones are unwanted). Every fifth text of a
side is held out. There each strength is measured:

    unwanted     share of continuations of held-out beginnings that the unedited model's probe calls
                 unwanted; a broken answer may look so too
    word         share of them with a `word` of yours, the better measure where there is one
    perplexity   of held-out fine texts
    exam         accuracy of greedy answers to --task or --data, where answers can be judged

The strength that is kept has the least of the behaviour among those that raise the perplexity by at
most a share `cost` and lower the accuracy by at most `loss`; the model stays as it is if none has
less. Without texts of yours the model first learns a harmless habit, a made-up word before its
answers, which is then taken out.

Unlike in the released code the probe is the exact minimum of a convex loss, not 20 epochs of Adam,
and v has length 1: a strength is in lengths of a row, and does not depend on how long the probe was
trained. Its accuracy on held-out texts is reported; where that is near a half, v is no direction of
the behaviour. The same edit could take refusals out of a model, so files of refusals are refused as
unwanted texts.
"""

import palaestra as pl
from palaestra.recipes.inference.model_surgery.edit import Select, Surgery
from palaestra.recipes.inference.model_surgery.texts import (
    FromFiles,
    Habit,
    LabelledAnswers,
    Marked,
)

CARD = pl.Card(
    title="Model Surgery: behaviour probe parameter editing",
    paper="arXiv:2407.08770",
    claim="Moving a few rows of the gate projections towards a linear probe of a behaviour removes the "
    "behaviour, and keeps the model's abilities, without gradients of the model.",
    source="released code (lucywang720/model-surgery: modify.py, run_pplm_discrim_train.py, README) and "
    "the abstract",
    size=pl.Size(
        setting="LLaMA2-7B, CodeLLaMA-7B and Mistral-7B; 16,384 of 352,256 gate rows; toxicity on "
        "RealToxicityPrompts and ToxiGen",
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("What is 17 + 25?", "What is 8 + 31?", "What is 40 + 9?", "What is 2 + 5?"),
                "what was asked",
                when={"unwanted": ("",)},
            ),
            pl.needs.NeededColumn(
                "response",
                "text",
                ("um um 42", "= 39", "um um 49", "= 7"),
                "an answer that shows the behaviour, or does not",
                when={"unwanted": ("",)},
            ),
            pl.needs.NeededColumn(
                "right",
                "true or false",
                (False, True, False, True),
                "false where the behaviour is there",
                when={"unwanted": ("",)},
            ),
        ),
        shows="moved_most",
        off={"rows": 0.0},
        own={"tasks": 2, "samples": 2, "tokens": 4, "strengths": "[8]"},
    ),
    use="It helps where a behaviour can be read off the hidden states by a linear probe and shows in texts at "
    "hand; what the probe cannot tell apart from an ability goes with it.",
    lacks=(
        "Detoxification and resistance to jailbreaking were not run: the built-in problem is a made-up "
        "word.",
        "On the built-in model no strength takes the word out at little cost: where fewer answers have "
        "it, fewer are right, so its report keeps strength 0. Fewer rows that are moved further cost less: in one run 1.5% of "
        "the rows at strength 16 left 3% of 36% of the answers with the word, and 81% of 98% right.",
        "The guard against taking refusals out knows a few English beginnings only.",
        "Common sense, question answering and mathematics are measured by one exam of yours.",
        "Architectures without gate projections are refused, and mixtures of experts whose gates lie in one tensor.",
    ),
    grade="C",
)


def build(
    unwanted: str = "",
    fine: str = "",
    rows: float = 0.0465,
    strengths: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0),
    select: Select = "opposed",
    cost: float = 0.05,
    loss: float = 0.02,
    samples: int = 32,
    tokens: int = 32,
    tasks: int = 64,
    word: str = "",
    folder: str = "edited",
) -> Surgery:
    """`unwanted` and `fine` are files of texts; "" = labelled answers of the data. `rows` is the share
    of gate rows, 16,384 of 352,256 in the paper. `samples` continuations of `tokens` tokens, of which
    those with `word` are counted too, and `tasks` held-out problems measure a strength."""
    if bool(unwanted) != bool(fine):
        raise pl.UserError(
            "the probe tells unwanted texts from fine ones: give both, unwanted=FILE fine=FILE"
        )
    return Surgery(
        texts=FromFiles(unwanted, fine) if unwanted else LabelledAnswers(),
        rows=rows,
        strengths=strengths,
        select=select,
        cost=cost,
        loss=loss,
        n=samples,
        tokens=tokens,
        tasks=tasks,
        word=word,
        folder=folder,
    )


def embedded(
    steps: int = 20,
    lr: float = 5e-4,
    share: float = 0.5,
    tasks: int = 64,
    samples: int = 128,
    select: Select = "opposed",
) -> pl.Pipeline:
    """The model first learns, in `steps` steps of imitation, to put a made-up word before a `share` of
    its answers."""
    habit = Habit()
    start = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(Marked(habit, share)),
        optimiser=pl.AdamW(lr=lr, warmup=5),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )
    surgery = Surgery(
        texts=habit,
        strengths=(1.0, 2.0, 4.0, 8.0),
        select=select,
        n=samples,
        tokens=24,
        tasks=tasks,
        word=habit.word,
    )
    return pl.Pipeline(
        parts={"marked": pl.warm(start), "edit": pl.Part(surgery, model=pl.Output("marked"))}
    )
