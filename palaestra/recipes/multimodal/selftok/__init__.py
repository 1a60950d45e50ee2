"""Selftok: a picture as a sequence of discrete tokens, and reinforcement learning on the picture that they decode to.

A tokenizer turns a small picture into K tokens of C codes, a language model gets a token for each code and learns
their sequences by maximum likelihood, and then from rewards alone (arXiv:2505.07538; Selftok-Zero):

    state s_t = prompt and tokens v_1..v_t,  action v_(t+1),  reward at the end, on the decoded picture, alone
    r = mean of the prompt's tests, each 0 or 1 (a program: number, colour and place of things)
    A_i = (r_i - mean r) / std r over the samples of one prompt, std with ddof 0
    L = -mean A_i log p + kl * mean(p_old / p - log(p_old / p) - 1),  p_old the policy that sampled

without an importance ratio. The last term has no slope before the first update on a batch, so it acts where there are
several, `epochs`. No picture is shown in this stage.

The claim is about the order of the tokens, so tokenizers of equal rate are compared, each with a prior of its own:

    nested     token k is the code nearest to what tokens 1..k-1 leave over, so a prefix decodes to a coarse picture
    spatial    token k is patch k in raster order, of one codebook
    shuffled   the nested tokens in another fixed order

by the reward gained, the KL to the prior that it took (the mean of log p / p_prior of a sampled picture, in nats) and
their quotient. The clean test of order is nested against shuffled, which are the same tokens; spatial ones have
another codebook, whose codes mean the same at each place. Intervals are over prompts. A second program checks the
first: for it only things of the size and shape of the data's own count, not single cells and blobs; `strict=true`
pays by that one. Problems, words with tests, are never in both splits: where a file has some in both, records are
left out, which is said. Nested tokens stand for the paper's, whose order comes from a diffusion decoder: they share
the order from coarse to fine and not its proof. They are made by residual quantisation with k-means rather than by
gradients with nested dropout: in three hundred steps of that a small network did not come below the pictures'
variance, and k-means takes a second.

    palaestra train selftok --data pictures.jsonl --model DIR
    palaestra train selftok --data pictures.jsonl --model DIR orders=nested grid=16 tokens=16 codes=256

    {"image": "icons/1.png", "prompt": "two red dots and a blue one", "shows": [{"colour": "red", "count": 2},
     {"colour": "blue", "count": 1}, {"colour": "blue", "side": "left"}]}

One run of the default (seed 0, 80 updates of the prior, 30 of RL, 128 sampled pictures of 64 held-out prompts):

    tokens      reward by prior, after RL    KL in nats    gain a nat    second program
    nested      0.23   0.34                  3.0           0.036         0.14   0.13
    spatial     0.23   0.27                  2.2           0.017         0.26   0.15
    shuffled    0.24   0.29                  4.5           0.009         0.16   0.13

The order is the one that the paper expects, but of the three gains only that of nested tokens is near to what chance
would not give, and the second program sees a loss everywhere: 0.01, 0.11 and 0.03, of spatial tokens four tenths of what
the prior could. What is gained is paid for specks and blobs. Nothing of it stands above simple baselines: of 40
prompts, pictures of other prompts earn 0.26, random nested tokens 0.27, and one picture that was picked for all of them
0.60; each prompt's own picture, by its tokens, earns 1. No run with `strict=true` has been made yet.

Pictures are brought to `grid` x `grid` cells. Rows without `shows` teach tokenizer and prior alone. The study is
RUN/study.html, the tokenizer lies in RUN/tokens-ORDER/visual, sampled pictures in RUN/exam-rl-ORDER/pictures.png.
"""

import palaestra as pl
from palaestra.recipes.multimodal.selftok.arms import imitation, learner
from palaestra.recipes.multimodal.selftok.program import VisualRL
from palaestra.recipes.multimodal.selftok.tokenizer import ORDERS, TokenizerSettings

# three pictures of the built-in problem as PNG files, in base64
PICTURES = (
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAIAgMAAAC5YVYYAAAACVBMVEUUFB4yUObmMihKQAXvAAAAFUlEQVR42mNg"
    "YGDQ0AAhCAgAIwYGAA9oAUE+uBJSAAAAAElFTkSuQmCC",
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAIAgMAAAC5YVYYAAAABlBMVEUUFB4otDyBHujPAAAAD0lEQVR42mNgQAYB"
    "YAQCAAVoAKFvlaZjAAAAAElFTkSuQmCC",
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAIAgMAAAC5YVYYAAAACVBMVEUUFB4yUObmMihKQAXvAAAAE0lEQVR42mNg"
    "EGEAIQjQACMQAAAF9AB5RS0r2gAAAABJRU5ErkJggg==",
)
PROMPTS = ("2 red top, 1 blue left", "1 green right", "1 red right, 1 blue right")
SHOWS = (
    [
        {"colour": "red", "count": 2},
        {"colour": "red", "side": "top"},
        {"colour": "blue", "count": 1},
    ],
    [{"colour": "green", "count": 1}, {"colour": "green", "side": "right"}],
    [{"colour": "red", "count": 1}, {"colour": "blue", "count": 1}],
)

CARD = pl.Card(
    title="Selftok: autoregressive discrete visual tokens for RL",
    paper="arXiv:2505.07538",
    claim="Visual tokens with an autoregressive order support reinforcement learning on the decoded picture, without "
    "pairs of texts and pictures; spatial tokens do less.",
    source="abstract, and the full text of the companion and the tokenizer's repository as the catalogue has them; the "
    "code of the reinforcement learning is not released; orders, detector and sizes are ours",
    size=pl.Size(
        setting="Llama-3-8B and 32,768 codes, 512 or 1,024 tokens for 256 x 256 pixels; GenEval 74 to 92",
    ),
    task="grids",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "image",
                "image",
                tuple(f"data:image/png;base64,{x}" for x in PICTURES),
                "the picture: a file beside the data, or a data URL",
            ),
            pl.needs.NeededColumn(
                "prompt", "text", PROMPTS, "its words, by which a picture is asked for"
            ),
            pl.needs.NeededColumn(
                "shows",
                "any",
                SHOWS,
                "tests of a picture: a colour with a count, or with the side on which all of it lies",
                otherwise="the row teaches tokenizer and prior, and pays nothing",
            ),
        ),
        shows="kl_behaviour",
        off={"kl": 0.0},
        own={
            "orders": "nested",
            "tokens": 4,
            "codes": 8,
            "prompts": 2,
            "samples": 2,
            "exam": 2,
        },
    ),
    use="It helps to make small pictures that a program can test, and to see what a reward costs by the order of tokens; "
    "look at the second program's number and at the sampled pictures before trusting a gain.",
    lacks=(
        "The diffusion encoder and decoder are not here, nor the schedule of tokens over their time (192, 184, 72, 48 and "
        "16 tokens in five stages), nor the renderer of one step: nested tokens stand for theirs.",
        "On the built-in pictures the gain of the reward is one for blobs: the second program sees a loss, whatever the order of "
        "tokens and most for spatial ones, after a prior of 80 updates; whether `strict=true` gains is not measured.",
        "`kl_behaviour` shows that a batch is learned from several times, whatever the order of tokens; what speaks for the "
        "order is the gain a nat of nested less shuffled, in the report.",
        "Pictures have a few cells a side; comprehension of pictures by the same tokens is not trained.",
        "Rewards by a vision-language model that is asked questions are not here; the program knows colours, numbers and "
        "sides.",
        "How much later tokens say of earlier ones (the anti-causal links of spatial tokens) is not measured, and the "
        "Bellman argument is not tested.",
    ),
    grade="C",
)


def build(
    orders: str = "nested,spatial,shuffled",
    grid: int = 8,
    tokens: int = 16,
    codes: int = 64,
    kl: float = 0.1,
    epochs: int = 2,
    samples: int = 8,
    lr: float = 1e-4,
    prior_lr: float = 1e-3,
    prior_updates: int = 200,
    updates: int = 60,
    prompts: int = 8,
    pictures: int = 2048,
    exam: int = 128,
    strict: bool = False,
) -> VisualRL:
    """`orders` are some of nested, spatial and shuffled; their tokenizers have `tokens` of `codes` on `grid` x `grid`
    cells. `kl` weighs the term to the sampling policy, each batch of `prompts` x `samples` pictures is learned from
    `epochs` times. The prior makes `prior_updates` of 32 pictures, of up to `pictures`.
    `strict` pays by the second program, which takes no specks and blobs for things.
    """
    pl.check_bounds("selftok: kl", kl, least=0)
    pl.check_bounds("selftok: samples", samples, least=2)
    pl.check_bounds("selftok: exam", exam, least=1)
    named = tuple(dict.fromkeys(x.strip() for x in orders.split(",") if x.strip()))
    if not named or not set(named) <= set(ORDERS):
        raise pl.UserError(f"selftok: orders are some of {', '.join(ORDERS)}, not {orders!r}")
    rl = learner(kl, epochs, samples, tokens, lr, pl.Schedule(prompts=prompts, steps=updates))
    prior = imitation(prior_lr, prior_updates)
    settings = {n: TokenizerSettings(n, grid, tokens, codes) for n in named}  # type: ignore[arg-type]
    return VisualRL(settings, prior, rl, pictures, exam, strict=strict)


def embedded(
    orders: str = "nested,spatial,shuffled",
    kl: float = 0.1,
    epochs: int = 2,
    samples: int = 8,
    prior_updates: int = 80,
    updates: int = 30,
    exam: int = 64,
    strict: bool = False,
) -> VisualRL:
    """On grids of coloured squares, with the built-in model."""
    return build(
        orders,
        kl=kl,
        epochs=epochs,
        samples=samples,
        prior_updates=prior_updates,
        updates=updates,
        exam=exam,
        strict=strict,
    )
