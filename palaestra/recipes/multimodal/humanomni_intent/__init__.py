"""HumanOmniV2: what is seen and heard is written down first, and judged apart from the thoughts and the answer.

    <context>what is seen and heard</context><think>...</think><answer>...</answer>

    A_t = (r - mean r) + 1[t in context] (c - mean c) + 1[t in think] (l - mean l),    r = format + accuracy

over the answers of a question, without division by the deviation. A judge scores 0, 1, 2, 4 or 5 fifths for c, how
much of the reference the context covers, and one fifth for each of five questions about the thoughts for l. The loss
is a mean over tokens, clipped at 0.2, with k3 KL whose weight falls from 0.04 to 0.01 in the first half of a run.
Accuracy goes by `problem_type`: multiple choice, numerical, ocr, regression, yes/no, multi-label, free-form.

    palaestra train humanomni-intent --data scenes.jsonl --model DIR judge="endpoint(url='http://HOST:PORT/v1',model='NAME')"

A row is {"image": "1.png", "audio": "1.wav", "prompt": "What is meant? A praise B irony", "answer": "B",
"problem_type": "multiple choice", "context": "She smiles, and her voice falls."}; with a column `options` the answer
may be the text of one. Rows as the released code reads IntentBench's qa.json (`problem`, `options`, `solution`, its
names of types) do as they are, with --columns path=video where the video stands in `path`, but for two things: the
sound has to be named, {"video": "1.mp4", "audio": "1.mp4", ...}, and options of which several are right stand in the
question, not in a column. It stands behind the frames, as in the released code. An answer that is none of its type is
refused before the first step; the exam judges by the type too. DIR is Qwen2.5-Omni, whose thinker is trained, as the
paper's is; `video` is shown as pictures. With it give frozen=True, as eyes and ears are frozen in the paper's RL;
both are checked with small random weights alone. A text model gets small eyes and ears of its own. Without `judge`
the policy's start, frozen, is the judge. `start=shown` first imitates the column `demonstration`; eyes and ears are
frozen after it (`frozen=False` trains them on). `finish=True` then trains on format and accuracy alone, with two
updates a batch. `pool` keeps tasks that the start solves at times.

The released trainer computes the advantages of context and thoughts from the whole reward, so that the judge's scores
never reach the gradient, and finds tokens by fixed ids: `spans=released` is the first of these faults. Here tokens are
found by their offsets in the text. `spans=everywhere` adds context and logic to all tokens, `spans=none` leaves them
out, `shuffled=True` gives answers the grades of others. `media` and `question` are those of training, see
`pl.tasks.MediaControl`; the exam asks without media, with others', and without the question.

Deviation: a judge that cannot be reached makes an answer an error here, and 0 in the released code.

On the embedded problem (`--task intents`) a face and a voice decide what is meant, and a topic suggests it in six of
ten questions; `--exams intents(shortcut=0)` asks those that the topic gets wrong. "span_advantage" is what context and
logic add to a token's advantage, on average. A run from before eyes and ears were frozen shows that the parts work
together, and no gain: from one seed, on 48 held-out questions, 0.46 were right after 60 batches of imitation and 0.31
after 24 steps of RL (intervals of 0.14 to each side), with the topic wrong 0.31 and 0.21. That it falls is not sure:
shares as far apart come by chance in one of seven pairs of such samples. With media of other questions 0.40 and 0.31 are right,
so the model has hardly looked. Of its contexts the judge thinks 0.30 at the first step and 0.32 at the last. The likely
cause lies before RL: of the 82 tokens of a demonstration media decide two, and all else is form or follows. After 24
batches of the same imitation the loss is 1.12 nats a token, about 92 an answer; a model that wrote the form and guessed among
the four scenes would have ln 4 = 1.4 an answer. Until a model sees, the context's reward is one for the same guess as
the accuracy, 0.6 by the topic at best, and cannot lead past it. Not measured: imitation to where the model looks, both
frozen, and arms. Imitate longer, e.g. `shown=300`, before you compare arms.
"""

from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

from .rewards import HalfKnown, OmniReward, Spans, span_credit

CARD = pl.Card(
    title="Context and logical rewards for omni-modal reasoning (IntentBench)",
    claim="Rewards for the context that a model writes down and for its logic make answers about people in videos better "
    "than a reward for the answer alone, which leads to shortcuts.",
    source="released code (HumanMLLM/HumanOmniV2: rewards, rubrics, trainer, scripts, filter) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-Omni-7B thinker, 8 answers of 1,024 tokens, KL 0.04 to 0.01; IntentBench, Daily-Omni, WorldSense",
        model="qwen2.5-7b",
        samples=8,
        tokens=1024,
    ),
    task="intents",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                (
                    "gift: what is meant? A praise B irony",
                    "delay: what is meant? A praise B irony",
                    "news: what is meant? A praise B irony",
                ),
                "the question, or `messages`, a chat; its media are in `image`, `images`, `video`, `audio` or `audios`",
            ),
            pl.needs.NeededColumn(
                "answer", "any", ("A", "B", "B"), "the right answer, as `problem_type` says"
            ),
            pl.needs.NeededColumn(
                "problem_type",
                "text",
                ("multiple choice",),
                "multiple choice, numerical, ocr, regression, yes/no, multi-label or free-form",
                otherwise="it is a multiple choice",
            ),
            pl.needs.NeededColumn(
                "context",
                "text",
                ("smile rise", "smile fall", "smile fall"),
                "what is seen and heard, in words, which contexts are compared with",
                otherwise="its context is worth 0",
            ),
            pl.needs.NeededColumn(
                "demonstration",
                "text",
                (
                    "<context>rise</context><think>kind</think><answer>A</answer>",
                    "<context>fall</context><think>mock</think><answer>B</answer>",
                    "<context>fall</context><think>mock</think><answer>B</answer>",
                ),
                "an answer in the form, which is imitated first",
                when={"start": ("shown",)},
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "judge",
                "judge",
                "grades what was written of the context, the thoughts, and free answers",
                inert=None,
                example="endpoint(url='http://HOST:PORT/v1',model='NAME')",
                otherwise="the policy's start, frozen, is the judge",
            ),
        ),
        shows="span_advantage",
        off={"spans": "none"},
        own={
            "samples": 4,
            "exam": 0,
            "start": "shown",
            "steps": 3,
            "endpoint": ("[[4]]", "[[0]]", "[[5]]"),
            "shown.instruction": "",
            "shown.schedule.prompts": 2,
            "shown.update.epochs": 24,
            "shown.optimiser.lr": 0.004,
            "shown.optimiser.warmup": 0,
            "rl.instruction": "",
            "rl.schedule.prompts": 2,
            "rl.collect.links.0.temperature": 0.5,
            "max_tokens": 64,
        },
    ),
    use="It helps where answers can be guessed from the words and somebody wrote down what the media show; contexts without "
    "a reference are worth nothing.",
    lacks=(
        "That the rewards for context and logic help is not shown: the default run is too short, and its arms are not compared.",
        "IntentBench, Daily-Omni and WorldSense are not there; rows of IntentBench are read where you have them.",
        "Qwen2.5-Omni is trained and checked with small random weights; with the weights of the hub nothing was run. Videos "
        "are shown to it as pictures, without times.",
        "The default run is of a text model with small eyes and ears, which are trained from nothing and hear one second.",
        "The data of the paper, and how its contexts were written, are not there.",
    ),
    grade="B",
)
FORM = (
    "First write what you see and hear in <context></context>, then reason in <think></think>, then write the answer "
    "in <answer></answer>."
)
SENSES = ("eyes", "ears")


def build(
    judge: pl.Source | None = None,
    spans: Spans = "own",
    gated: bool = False,
    shuffled: bool = False,
    samples: int = 8,
    kl: float = 0.04,
    decay: int = 25,
    frozen: bool | None = None,
    pool: int = 0,
    media: pl.tasks.Media = "kept",
    question: bool = True,
    start: Literal["as-is", "shown"] = "as-is",
    shown: int = 200,
    finish: bool = False,
    exam: int = 64,
) -> pl.Recipe | pl.Pipeline:
    """`kl` falls to a quarter over `decay` steps, half of a run of 50: write decay=N/2 with --steps N. `frozen` keeps eyes
    and ears as they are in RL; None = after a cold start, as without one they may know nothing. `pool` tasks are tried by
    the start, and those kept
    that it solves at times; 0 = all are drawn. `exam` held-out questions are asked in each way of `pl.run.MediaExam`;
    0 = none.
    """
    judges = {} if judge else {"judge": "policy"}
    reward = OmniReward(judge or pl.LocalModel("judge"), gated, shuffled)
    draw = pl.tasks.ControlledDraw(pl.Shuffled(), pl.tasks.MediaControl(media, question))
    weight: Any = pl.Linear(kl, kl / 4, decay)  # a number at each step
    learned = pl.vary(
        pl.recipe("grpo", kl=kl),
        draw=HalfKnown(draw, pool) if pool else draw,
        collect=pl.links(
            pl.Sample(n=samples),
            pl.Score(reward=reward),
            pl.rollout.MarkSpans(("context", "think")),
        ),
        credit=pl.chain(pl.Center("group"), span_credit(spans)),
        objective=pl.Clipped(reduce="tokens") + weight * pl.KL("k3", reduce="tokens"),
        references={"ref": "policy", **judges},
        heads=SENSES,
        rates={"tower": 0.0} if (start == "shown" if frozen is None else frozen) else {},
        instruction=FORM,
        evaluate={"media": pl.run.MediaExam(exam, reward=plainly(reward))} if exam else {},
    )
    parts: dict[str, pl.Part] = {}
    if start == "shown":
        parts["shown"] = pl.warm(imitation(shown))
    if not parts and not finish:
        return learned
    parts["rl"] = pl.Part(learned, model=pl.Output("shown") if parts else None)
    if finish:
        parts["finish"] = pl.Part(plain(learned, reward, samples), model=pl.Output("rl"))
    return pl.Pipeline(parts=parts)


def plainly(reward: OmniReward) -> OmniReward:
    """Form and accuracy alone, by the type of a problem; a judge is asked for free answers."""
    return replace(reward, gated=False, shuffled=False, partly=False)


def plain(learned: pl.Recipe, reward: OmniReward, samples: int) -> pl.Recipe:
    """The last stage: form and accuracy alone, two updates on each batch."""
    return pl.vary(
        learned,
        collect=pl.links(pl.Sample(n=samples), pl.Score(reward=plainly(reward))),
        credit=pl.Center("group"),
        update=pl.Plain(epochs=2),
    )


def imitation(steps: int) -> pl.Recipe:
    """The cold start: demonstrations in the form are imitated."""
    return pl.vary(
        pl.recipe("sft"),
        heads=SENSES,
        schedule=pl.Schedule(prompts=16, steps=steps),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
        instruction=FORM,
    )


def embedded(
    judge: pl.Source | None = None,
    start: Literal["as-is", "shown"] = "shown",
    shown: int = 60,
    decay: int = 12,
    exam: int = 48,
    **options: Any,
) -> pl.Recipe | pl.Pipeline:
    """On faces and voices, with a program for the judge that knows the scene. The small model first imitates the form."""
    from .oracle import SceneJudge

    program = judge or pl.Scripted(SceneJudge(), name="scene")
    made = build(judge=program, start=start, shown=shown, decay=decay, exam=exam, **options)
    size = pl.Schedule(prompts=8, steps=24)
    if isinstance(made, pl.Recipe):
        return pl.vary(made, schedule=size)
    small = {
        name: part
        if name == "shown"
        else replace(part, runnable=pl.vary(part.runnable, schedule=size))
        for name, part in made.parts.items()
    }
    return pl.Pipeline(parts=small)
