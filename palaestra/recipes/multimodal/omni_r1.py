"""Omni-R1: GRPO on multiple-choice questions about sounds, answered at once, and how much of the gain needs the sound.

    r_i = 1 if the answer contains the text of the right option, else 0
    A_i = (r_i - mean r) / std r over the answers of a question,    clipped ratio, 0.04 KL (k3) to the start

(arXiv:2505.09439: no chain of thought, no reward for a form, all weights trained.) The paper's finding is that
training on the questions in text alone, without their sounds, helps on questions with sounds nearly as much. So
the media of training and of the exam are arguments, and what is measured is the grid of both:

    benefit = (kept after - kept before) - (removed after - removed before)

`kept` and `removed` are accuracies on held-out questions with and without their sounds. A gain without sounds is
better reading, or a better guess. The exam also swaps sounds among questions, and leaves out the question.

    palaestra train omni-r1 --data clips.jsonl --model DIR
    palaestra train omni-r1 --data clips.jsonl --model DIR media=removed

A row is {"audio": "clips/1.wav", "prompt": "What is it?", "options": ["dog", "rain"], "answer": "rain"}. Rows without
`audio` are questions in text. `media=swapped` gives each question another one's sound, and `question=False` leaves
the words out. DIR is Qwen2.5-Omni, whose thinker is trained, as the paper's is, or Qwen2-Audio; both are checked with small
random weights alone. Qwen2.5-Omni takes `image` and `video` beside `audio`. 'rates={tower=0}' keeps what hears as it is. A text
model gets ears of its own, which hear one second and know nothing at first.

Containment alone is earned by an answer that lists all options. `guard` pays the right option as whole words and
alone; `guard=False` is the paper's rule. "part/listed" counts answers that name several options.

The default run hears clips of tones, sweeps, noise and beeps (`--task clips`), in which one answer of each question
is right 45% of the time; `--task clips(bias=0.25)` is the balanced control, without which no gain in text may be
called one in hearing. A model that imitated 40 batches, then 30 steps of 8 questions, on 128 held-out clips, from one
seed (accuracy with and without the sounds, from -> to):

                      bias 0.45                                  balanced
    kept       0.74 -> 0.81   0.18 -> 0.27   benefit -0.02      0.76 -> 0.88   0.19 -> 0.19   benefit  0.13
    removed    0.74 -> 0.66   0.18 -> 0.48   benefit -0.38      0.76 -> 0.57   0.19 -> 0.19   benefit -0.19
    swapped    0.74 -> 0.60   0.18 -> 0.27   benefit -0.23

So training in text alone learns the bias and nothing else: what it gains without sounds is gone where options are
balanced. It does not help with sounds here, as the paper says of a large model that reasons; this one forgets to listen.
"""

from typing import Any, Literal

import numpy as np

import palaestra as pl

TONES = tuple(
    pl.tasks.write_sound(0.5 * np.sin(np.arange(80) * hertz * 2 * np.pi / 8000), 8000)
    for hertz in (300, 1200, 2400)
)
CARD = pl.Card(
    title="Omni-R1: audio question answering GRPO",
    paper="arXiv:2505.09439",
    claim="GRPO on questions about sounds beats the start, and training on the questions in text alone does nearly as well.",
    source="abstract and introduction of arXiv v2 (prompt, reward, GRPO, numbers) and two overviews; group size, learning "
    "rate and KL weight are those of similar work",
    size=pl.Size(
        setting="Qwen2.5-Omni-7B; AVQA, and 40k clips with questions written by a language model; MMAU 65.9 to 68.6 "
        "on test-mini",
        model="qwen2.5-7b",
        samples=8,
        lr=1e-6,
    ),
    task="clips",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "audio",
                "any",
                TONES,
                "a WAV file, or several in `audios`",
                otherwise="the question is one in text",
            ),
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("Which number is it?", "Which is larger?", "How many beeps?"),
                "the question, or `messages`, a chat",
            ),
            pl.needs.NeededColumn(
                "options",
                "texts",
                (["4", "5", "13", "9"], ["1", "2", "40", "7"], ["2", "3", "8", "6"]),
                "the answers to choose from",
            ),
            pl.needs.NeededColumn(
                "answer",
                "any",
                ("4", "2", "3"),
                "the right option: its text, letter or place from 0",
            ),
        ),
        shows="groups_mixed",
        off={"samples": 1},
        own={
            "samples": 6,
            "exam": 0,
            "start": "shown",
            "shown": 8,
            "steps": 10,
            "rl.schedule.prompts": 4,
            "shown.schedule.prompts": 8,
            "shown.optimiser.lr": 0.003,
            "shown.optimiser.warmup": 0,
            "max_tokens": 4,
        },
    ),
    use="It helps where a model that hears answers some questions right and others wrong; look at `benefit` before "
    "a gain is called one in hearing.",
    lacks=(
        "AVQA, MMAU and the questions that ChatGPT wrote from captions are not there, nor is the writing of such "
        "questions.",
        "Qwen2.5-Omni and Qwen2-Audio are trained and checked with small random weights; with the weights of the hub nothing "
        "was run, so the paper's numbers are not measured. The default run is of a text model with ears of one second, which "
        "are trained from nothing.",
    ),
    grade="B",
)
CHOOSE = "Please choose the answer from the options, and write its text."


@pl.stage
class OptionReward:
    """1 for an answer that contains the right option; parts "contained", without the guard, and "listed", 1 where
    several options are named.

    Tasks have `options` in their data, and the right one as `answer`.
    """

    guard: bool = True

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward]:
        return [self.judge(pl.response_text(e), group.task) for e in group.episodes]

    async def check_start(self, ctx: pl.Context) -> None:
        """Raises UserError where one of the first records has no options, or an answer that is none of them."""
        for i in range(min(ctx.bench.tasks.size or 0, 64)):
            self.judge("", ctx.bench.tasks.task("train", i))

    def judge(self, text: str, task: pl.Task) -> pl.Reward:
        options = task.meta.get("options")
        if not isinstance(options, list | tuple) or len(options) < 2:
            raise pl.UserError(
                f"task {task.id!r} has no `options`; omni-r1 asks for one of several, so write a list of them, or "
                "give --task clips"
            )
        guarded, contained = (
            pl.verifiers.ContainedOption(guard)(text, task.answer, options=options).score
            for guard in (True, False)
        )
        named = pl.verifiers.contained_options(text, [str(o) for o in options])
        total = guarded if self.guard else contained
        parts = {"contained": contained, "listed": float(len(named) > 1)}
        return pl.Reward(total=total, parts=parts, solved=bool(total))


def build(
    media: pl.tasks.Media = "kept",
    question: bool = True,
    guard: bool = True,
    samples: int = 8,
    kl: float = 0.04,
    start: Literal["as-is", "shown"] = "as-is",
    shown: int = 100,
    exam: int = 128,
) -> pl.Recipe | pl.Pipeline:
    """`media` and `question` are those of training: see `pl.tasks.MediaControl`. `exam` held-out questions are asked in
    each way where a run is measured; 0 = none. `start=shown` first imitates answers for `shown` steps.
    """
    learned = pl.vary(
        pl.recipe("grpo", kl=kl),
        draw=pl.tasks.ControlledDraw(pl.Shuffled(), pl.tasks.MediaControl(media, question)),
        collect=pl.links(pl.Sample(n=samples), pl.Score(reward=OptionReward(guard))),
        heads=("ears",),
        instruction=CHOOSE,
        evaluate={"media": pl.run.MediaExam(n=exam)} if exam else {},
    )
    if start == "as-is":
        return learned
    return pl.imitate_first(
        learned,
        shown,
        heads=("ears",),
        instruction=CHOOSE,
    )


def embedded(
    start: Literal["as-is", "shown"] = "shown", shown: int = 40, exam: int = 64, **options: Any
) -> pl.Recipe | pl.Pipeline:
    """On clips. The small model never heard anything, so it is first shown answers, until it is right on about two
    thirds.
    """
    made = build(start=start, shown=shown, exam=exam, **options)
    size = pl.Schedule(prompts=8, steps=30)
    if isinstance(made, pl.Recipe):
        return pl.vary(made, schedule=size)
    parts = dict(made.parts)
    parts["rl"] = pl.Part(pl.vary(parts["rl"].runnable, schedule=size), model=pl.Output("shown"))
    return pl.Pipeline(parts=parts)
