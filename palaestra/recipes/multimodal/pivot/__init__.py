"""PIVOT: what post-training does to the encoder of a vision-language model, and the encoder that is left
when the language model is dropped.

All arms learn from the same (picture, question, chosen, rejected) items, in the same order, with the same number
of updates and one optimiser; all weights train, those of the encoder too (arXiv:2510.16333):

    sft      -log p(y_c | I, q)
    dpo      -log sigmoid(m),  m = beta [(log p - log p_ref)(y_c) - (log p - log p_ref)(y_r)]
    both     -log p(y_c) - log p(y_r): what the rejected replies tell without being compared
    grpo     GRPO on 8 replies of the model's own, 1 for exactly y_c, else 0
    frozen   dpo, the encoder frozen
    random   dpo, y_r of another item

Then each model's encoder is detached and frozen. What the projector would take of it is read:

    probe          a linear (logistic) probe of the mean over patches names each of the picture's `traits`
    segmentation   one of single patches names the thing that a patch shows, by `boxes`
    localisation   sum over patches in the box |g| / sum over all patches |g|,  g = d(-log p(y_c)) / d feature
    by encoder     log p(y_c) - log p(y_r), less the same with the start's encoder put back, in nats

Beside that stands what the whole model makes of held-out items:

    answered       whether its greedy answer is y_c but for case and white space, in all and by the column `domain`
    ranked         p(y_c) > p(y_r), which is what dpo learns from and sft does not: no fair comparison of these two

Localisation is ours, a number for the paper's gradient maps; its chance level is the box's share of the picture. The maps
of eight held-out pictures, a column for each model, are in RUN/gradients.png, which the study links to. DPO
is compared with sft, both and random item by item; where it does not beat random, the gain is not the comparison's.
All rows of a file with the same picture are held out together, and of a split of your own no item is measured whose
picture training shows. Long replies are hardly ever repeated word for word: `answered` is for short ones. Probes
are those of the package, a convex problem with one minimum; the ridge is chosen for every model alike among four on
a fifth of the fitted pictures. At last the recipe: the encoder is put, frozen, on a model that has not seen it
(`fresh`, else the start with its own projector and language part), first the projector alone learns (from `caption_data`),
then projector and language part (from `instruction_data`); without these files both learn from the chosen replies. What
differs between these models comes from the encoders alone.

    palaestra train pivot --model VLM --data pairs.jsonl
    palaestra train pivot --model VLM --data pairs.jsonl arms=sft,both,dpo,frozen,random fresh=OTHER attach=start,dpo
    palaestra train pivot --model VLM --data pairs.jsonl caption_data=captions.jsonl instruction_data=tuning.jsonl

    {"image": "photos/1.png", "prompt": "What is in the bowl?", "chosen": "Three apples.", "rejected": "Two apples.",
     "traits": {"thing": "apple"}, "boxes": {"bowl": [20, 40, 180, 150]}, "about": "bowl"}

On the built-in scenes the start ranks 57% of held-out pairs right, so it hardly sees, and one run (seed 0, five
arms of 30 x 16 items) tells DPO and SFT apart in nothing but localisation, where DPO is lower: 10.9% of the gradient in
the box against 11.6%, 0.7 points (0.0 to 1.3), chance 9.1%. Probe of position 34% after DPO, 29% after SFT, 25% at the
start and after `frozen`, 24% after `random`; encoders moved by 1.0% (sft) and 1.5% (dpo).
A fresh model ranks 62% right around the start's encoder, 66% around that of SFT and 65% of DPO.

The study is RUN/study.html; each model lies in RUN/ARM/checkpoints and RUN/tune-ARM/checkpoints. `media=removed`,
`media=swapped` and `question=False` take the pictures, their assignment or the question away in all arms.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import palaestra as pl
from palaestra.recipes.multimodal.pivot.arms import ARMS, FROZEN, PROJECTOR, arm_of, imitation
from palaestra.recipes.multimodal.pivot.look import Look
from palaestra.recipes.multimodal.pivot.program import START, Pivot, names_of

# three pictures of the built-in problem as PNG files, in base64
PICTURES = (
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgAgMAAAAOFJJnAAAADFBMVEUUFB4otDzmMijw0ihU7DjYAAAAPklEQVR4"
    "2mNgwAfsYYz/ByA08/8PuBhwNQhdJAJWDIaoAzojNABIcK1qgDMYQ0PQGKyhoWgM0dBQB4gukgEAYvgX7i/Gz2UA"
    "AAAASUVORK5CYII=",
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgAgMAAAAOFJJnAAAACVBMVEUUFB4otDzmMih8sBzwAAAANElEQVR42mNg"
    "AAIHBiiAMRgD0BmsIegM0VAG/IBp1aoV9GLgdccCKIMLplZrFU4GXA1UFwB6lx9LMP8/lgAAAABJRU5ErkJggg==",
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgAgMAAAAOFJJnAAAABlBMVEUUFB7mMihtLLg1AAAAOklEQVR42mNgIBaI"
    "hlLEIBOwYDBEIaQDhMEYGsIQ6gBksIaGwhmMoQFgq8F8vAyQLlQGyEAGmBUMDAD5Vw2fZzlnyQAAAABJRU5ErkJg"
    "gg==",
)

CARD = pl.Card(
    title="PIVOT: RL makes MLLMs see better",
    paper="arXiv:2510.16333",
    claim="Post-training by preferences gives a vision encoder stronger and better localised features than "
    "imitation of the same items, and an encoder that was trained so serves a new language model better.",
    source="abstract, and the full text as the catalogue has it (sections 1 to 4.1); localisation as a number, the arms "
    "beside SFT and DPO and the sizes of probes are ours",
    size=pl.Size(
        setting="SigLIP2-L/16 and Qwen2.5-3B, 20,000 pairs after 3.2M instructions; PIVOT: Qwen2.5-1.5B, 18 h on 8 H100",
    ),
    task="scenes",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "image",
                "image",
                tuple(f"data:image/png;base64,{x}" for x in PICTURES),
                "the picture: a file beside the data, or a data URL",
            ),
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("where is circle", "colour of triangle", "size of triangle"),
                "what is asked about it",
            ),
            pl.needs.NeededColumn(
                "chosen", "text", ("top left", "green", "small"), "the reply that is better"
            ),
            pl.needs.NeededColumn(
                "rejected", "text", ("top right", "yellow", "large"), "the reply that is worse"
            ),
            pl.needs.NeededColumn(
                "traits",
                "any",
                ({"large": "triangle"}, {"large": "square"}, {"large": "circle"}),
                "classes of the picture, each by what it says, or one as a text",
                otherwise="nothing is read off by a linear probe",
            ),
            pl.needs.NeededColumn(
                "boxes",
                "record",
                (
                    {"circle": [7, 3, 13, 9], "triangle": [13, 14, 24, 25]},
                    {"square": [3, 10, 14, 21], "triangle": [13, 0, 19, 6]},
                    {"circle": [9, 20, 20, 31], "triangle": [23, 17, 29, 23]},
                ),
                "left, top, right and bottom of things in it, in pixels",
                otherwise="no patches are probed and no gradient is located",
            ),
            pl.needs.NeededColumn(
                "about",
                "any",
                ("circle", "triangle", ["triangle"]),
                "the thing that is asked about, or a list of them",
                otherwise="the only box, where there is one",
            ),
        ),
        shows="margin_by_encoder",
        off={"arms": "frozen"},
        own={"arms": "sft,dpo", "attach": "dpo", "prompts": 2, "fitted": 6, "held": 2},
    ),
    use="It helps to see what a post-training run did to the eyes of a model, and to make an encoder for another one; "
    "look at the arm `both` before crediting the comparison, and repeat it with other seeds.",
    lacks=(
        "The claim is not shown on the built-in model: eyes that are trained within a minute hardly see, and no probe "
        "tells DPO from SFT there.",
        "ImageNet, a segmentation data set and the paper's benchmarks are not here: probes read `traits` and `boxes` "
        "of your own pictures.",
        "Without `caption_data` and `instruction_data` both stages on the fresh model imitate the chosen replies of the rows, "
        "and without `fresh` that model is the start, whose language part was made with this encoder.",
        "Replies are judged by the chosen one alone: long replies that say the same in other words count as wrong.",
        "One run is one seed: intervals are over its items.",
        "Alignment of vision and language representations across model sizes is not measured.",
        "Patches are probed and gradients located only where they are one grid: not for pictures that a processor "
        "cuts into tiles, such as Idefics 3 and LLaVA-OneVision do with large ones.",
        "The first stages before post-training (captions, instructions) are yours; an encoder without a language "
        "model, such as SigLIP alone, has to be put into a vision-language model first.",
    ),
    grade="B",
)


def build(
    arms: str = "sft,dpo",
    attach: str = "start,sft,dpo",
    fresh: str = "",
    beta: float = 0.1,
    lr: float = 1e-5,
    prompts: int = 16,
    updates: int = 200,
    fresh_updates: int = 200,
    fitted: int = 256,
    held: int = 128,
    media: str = "kept",
    question: bool = True,
    caption_data: str = "",
    instruction_data: str = "",
) -> Pivot:
    """`arms` are some of sft, both, dpo, grpo, frozen and random; `attach` names those whose encoder is put on
    `fresh`, a folder or hub id, "" = the start; attach="" leaves it out. Each arm makes `updates` of `prompts` items
    with the rate `lr`, each of the two stages on the fresh model `fresh_updates`. Probes are fitted to `fitted`
    pictures and measured on `held`. On the fresh model the projector learns from `caption_data` and the tuning from
    `instruction_data`, files as `sft` takes them; "" = the chosen replies of the rows.
    """
    pl.check_bounds("pivot: beta", beta, least=1e-6)
    pl.check_bounds("pivot: fitted", fitted, least=4)
    pl.check_bounds("pivot: held", held, least=1)
    return study(
        arms,
        attach,
        fresh,
        beta,
        lr,
        prompts,
        updates,
        fresh_updates,
        fitted,
        held,
        media,
        question,
        {"projector": caption_data, "tune": instruction_data},
    )


def study(
    arms: str,
    attach: str,
    fresh: str,
    beta: float,
    lr: float,
    prompts: int,
    updates: int,
    fresh_updates: int,
    fitted: int,
    held: int,
    media: str = "kept",
    question: bool = True,
    files: Mapping[str, str] = MappingProxyType({}),
) -> Pivot:
    """The program of these settings; see `build`."""
    control: Any = pl.tasks.MediaControl(media, question)  # type: ignore[arg-type]
    named = names_of(arms, (*ARMS,), "pivot: arms")
    if not named:
        raise pl.UserError(f"pivot: arms is empty; name some of {', '.join(ARMS)}")
    optimiser = pl.AdamW(lr=lr, warmup=5)
    schedule = pl.Schedule(prompts=prompts, steps=updates)
    common: dict[str, Any] = {
        "optimiser": optimiser,
        "schedule": pl.Schedule(prompts=prompts, steps=fresh_updates),
        "heads": ("eyes",),
        "draw": pl.tasks.ControlledDraw(pl.Shuffled(), control),
    }
    known = (START, *ARMS)
    put = tuple(n for n in names_of(attach, known, "pivot: attach") if n in (START, *named))
    return Pivot(
        arms={n: arm_of(n, beta, schedule, optimiser, control) for n in named},
        attach=put,
        fresh=fresh,
        stages={
            n: pl.vary(pl.recipe("sft"), rates=rates, **common)
            if files.get(n)
            else imitation(rates=rates, **common)
            for n, rates in (("projector", PROJECTOR), ("tune", FROZEN))
        },
        look=Look(fitted=fitted, held=held, control=control),
        files={n: file for n, file in files.items() if file},
    )


def embedded(
    arms: str = "sft,both,dpo,random",
    attach: str = "start,sft,dpo",
    beta: float = 0.1,
    lr: float = 3e-4,
    prompts: int = 16,
    updates: int = 30,
    fresh_updates: int = 30,
    fitted: int = 256,
    held: int = 128,
    captions: int = 40,
    asked: int = 80,
) -> pl.Pipeline:
    """On scenes of three shapes. Eyes of its own are first fitted to the built-in model by `captions` updates, and by
    `asked` to the questions; the fresh language model is the built-in one, which has never seen a picture.
    """

    def shown(steps: int) -> pl.Recipe:
        return pl.vary(
            pl.recipe("sft"),
            heads=("eyes",),
            optimiser=pl.AdamW(lr=1e-3, warmup=5),
            schedule=pl.Schedule(prompts=32, steps=steps),
        )

    pivot = study(arms, attach, "tiny", beta, lr, prompts, updates, fresh_updates, fitted, held)
    return pl.Pipeline(
        parts={
            "eyes": pl.warm(shown(captions), "scenes(asks=caption)"),
            "asked": pl.warm(shown(asked), "scenes", model=pl.Output("eyes")),
            "pivot": pl.Part(pivot, model=pl.Output("asked")),
        }
    )
