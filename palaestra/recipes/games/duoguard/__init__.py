"""DuoGuard: a generator rewrites labelled texts so that a guard misreads them, and the guard learns from
what it misread. Two players: C minimises, G maximises E[-log p_C(y | x')], less a KL to its start.

    palaestra train duoguard --data texts.jsonl --model DIR classes="refund,complaint" languages="French,German"

A row is {"prompt": "a text", "labels": ["complaint"]}; no labels = harmless. For `alone` steps the
guard C learns from the texts as they are; then, for a text x with labels y and one of the `languages` in turn:

    1. x'_1 .. x'_n ~ G(x, language), at temperature 0.9
    2. a rater says from 1 to 5 whether x' still has y; kept are those of at least `floor` (unreadable: 5)
       whose length differs by at most `length` times that of x, and that are not x itself
    3. C reads them. Flagged = some s_k > 0, that is sigmoid(s_k) > 0.5; a misread x' is better than one that is
       read rightly, and the two are a pair. `pairs=loss`: the largest loss of C against the least
    4. G: DPO + 0.4 x the negative log-likelihood of the chosen, beta 0.01
    5. C: x and all kept x', each with y, by
           L = ln(1 + sum over classes not in y of e^s_k) + ln(1 + sum over classes in y of e^-s_k)

(arXiv:2502.05163; yihedeng9/DuoGuard.) `adversarial=False` leaves G as it starts: random rewriting. Use it on
texts and classes of yours that may be multiplied: a generator that misleads a guard is no artifact to pass
on, so delete the folder "policy" of the checkpoints when the guard is trained. The result is the model "guard", a sequence
classifier with a head for each class.

Long because two models of different kinds learn from one collect step: it asks for rewrites, has them rated and
filtered, reads them with the guard, and hands pairs to the generator and labelled texts to the guard.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.games.duoguard.guard import (
    GUARD,
    GuardExam,
    guard_learner,
    guard_scores,
    labels_of,
    pairwise_loss,
    text_episode,
)
from palaestra.recipes.games.duoguard.toy import RateByRule, ShowRewriting, ToyExam, ToyTexts

CARD = pl.Card(
    title="DuoGuard: two-player guardrail training",
    paper="arXiv:2502.05163",
    claim="A generator that is trained against a guard makes the synthetic texts from which a small guard learns "
    "other languages, better than the larger guards of its time.",
    source="abstract and released code (yihedeng9/DuoGuard: training_model.py, configurations, scripts of the data); "
    "thresholds of the filter inferred",
    size=pl.Size(
        setting="guard Qwen2.5-0.5B, lr 5e-5, 2 epochs, batch 160; generator of 8B, 8 candidates a text, lr 5e-7; "
        "English, French, Spanish, German; 12 classes",
        model="llama-3.1-8b",
        lr=5e-7,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("The soup was cold.", "Thank you, it was lovely.", "I want my money back."),
                "a text that the guard reads",
            ),
            pl.needs.NeededColumn(
                "labels",
                "any",
                (["flagged"], [], ["flagged"]),
                "the class it is of, or a list of them, named in `classes`; [] = none",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "rater",
                "rater",
                "says whether a rewritten text still has its labels",
                inert=None,
                otherwise="the generator itself rates",
            ),
        ),
        shows="part/harder",
        off={"adversarial": False},
        own={
            "pairs": "loss",
            "alone": 0,
            "samples": 3,
            "schedule.prompts": 4,
            "max_tokens": 8,
        },
    ),
    use="It helps where labelled texts are many in one language or style and few in others; a generator that loses "
    "the labels spoils the guard, so look at part/kept and at some of its texts.",
    lacks=(
        "One step is a round over its texts: the guard goes on from its weights and is not trained anew on all "
        "texts of a round.",
        "The KL of the generator is DPO's, to its start and not to the round before.",
        "The paper's data, its 12 classes of harm and its comparison with other guards are not there, and no "
        "convergence to an equilibrium is tested.",
        "On the built-in texts the game is not shown to beat random rewriting: F1 over both languages in three seeds "
        "82%, 93% and 89% against 79%, 94% and 93% (`adversarial=False`). The texts alone gave 77% and 78% in two "
        "seeds, and without the filter it was 75% and 1%.",
        "The rater's question and the thresholds of the filter are ours.",
    ),
    grade="B",
)
REWRITE = (
    "Rewrite the text in {language}. Keep its meaning, and what makes it {labels}; change words and style. Write "
    "the rewritten text alone.\n\nText:\n{text}"
)
RATE = (
    "Original:\n{text}\n\nRewritten:\n{candidate}\n\nThe original is {labels}. Is the rewritten text {labels} just "
    "as much? Write a number from 1 (no) to 5 (yes) alone."
)
RATING = re.compile(r"(?<![\d.])[1-5](?![\d.]*\d)")
NAMED_RATING = re.compile(
    r"\b(?:rating|score)\b\D{0,20}(?<![\d.])([1-5])(?![\d.]*\d)", re.IGNORECASE
)
SCALE = re.compile(r"\b1\s*(?:\([^)]*\))?\s*(?:to|-|–)\s*5\b(?:\s*\([^)]*\))?")
PLAIN = "harmless"  # as the generator is told of texts without labels


class Rater(Protocol):
    async def __call__(
        self, ctx: pl.Context, text: str, candidate: str, labels: Sequence[str]
    ) -> float: ...


def read_rating(reply: str) -> float:
    """The number from 1 to 5 behind the word "rating" or "score", else the first one of a reply that is no
    end of the scale; without one 1 where it begins with "no", else 5, as in the released code.
    """
    bare = SCALE.sub(" ", pl.verifiers.strip_thinking(reply))
    named = NAMED_RATING.findall(bare) or RATING.findall(bare)
    if named:
        return float(named[0])
    return 1.0 if re.match(r"\W*no\b(?! number)", bare, re.IGNORECASE) else 5.0


@pl.stage
class RateByModel:
    """Asks a model."""

    source: pl.Source

    async def __call__(
        self, ctx: pl.Context, text: str, candidate: str, labels: Sequence[str]
    ) -> float:
        named = ", ".join(labels) or PLAIN
        fields = {"text": text, "candidate": candidate, "labels": named}
        asked = fill(RATE, {k: pl.judges.defuse(v) for k, v in fields.items()})
        return read_rating(await ctx.ask(self.source, asked))


def fill(template: str, values: dict[str, str]) -> str:
    """A template with values, whose own braces stay."""
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m[1], m[0]), template)


def fits(text: str, candidate: str, length: float) -> bool:
    """Whether a candidate is a text of about the length, and not the text itself."""
    rewrite = candidate.strip()
    return (
        bool(rewrite)
        and rewrite != text.strip()
        and abs(len(rewrite) - len(text)) <= length * len(text)
    )


@pl.declare(columns=(("language", str, "the language or style to rewrite in"),))
@pl.stage
class EachLanguage:
    """Texts of `draw`, each with one of the languages, in turn by step and place."""

    languages: tuple[str, ...]
    draw: pl.Draw = pl.Shuffled()

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        tasks, after = self.draw(ctx, key, n, state)
        given = [self.languages[(ctx.step + i) % len(self.languages)] for i in range(len(tasks))]
        return [
            replace(t, meta={**t.meta, "language": x}) for t, x in zip(tasks, given, strict=True)
        ], after


@pl.declare(reads_columns=("language",))
@pl.stage
class PlayDuo:
    """Candidates of a text, filtered and read by the guard, and what the guard then learns from. Parts:
    "kept", whether a candidate passes the filter; "misread", whether the guard misreads it; "harder", by how
    much more the guard loses on the chosen candidate than on a kept one, in nats. For the first `alone` steps
    nothing is rewritten.
    """

    classes: tuple[str, ...]
    rater: Rater
    n: int = 8
    temperature: float = 0.9
    template: str = REWRITE
    floor: float = 4.0
    length: float = 1.0
    filtered: bool = True
    adversarial: bool = True
    pairs: Literal["outcome", "loss"] = "outcome"
    alone: int = 40
    brings_reward: ClassVar[bool] = True  # rows need labels, and no answers

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task, labels = group.task, labels_of(group.task, self.classes)
        if ctx.step < self.alone:
            seed = text_episode(ctx, pl.tasks.plain_question(task), labels, self.classes)
            return replace(group, episodes=(*group.episodes, seed))
        named = [c for c, y in zip(self.classes, labels, strict=True) if y]
        text = pl.tasks.plain_question(task)
        values = {
            "text": text,
            "language": str(task.meta["language"]),
            "labels": ", ".join(named) or PLAIN,
        }
        asked_task = replace(
            task,
            prompt=(pl.Message(role="user", content=fill(self.template, values)),),
        )
        sample = pl.Sample(n=self.n, temperature=self.temperature)
        made = (await sample(ctx, (*key, "rewrite"), pl.Group(task=asked_task))).episodes
        rewrites = [pl.verifiers.strip_thinking(e.text).strip() if e.ok else "" for e in made]
        kept = await asyncio.gather(*(self._keep(ctx, text, x, named) for x in rewrites))
        scores = await guard_scores(
            ctx, [x for x, k in zip(rewrites, kept, strict=True) if k], self.classes
        )
        paid = self._paid(made, kept, scores, labels)
        seeds = [text, *(x for x, k in zip(rewrites, kept, strict=True) if k)]
        learned = [text_episode(ctx, x, labels, self.classes) for x in seeds]
        return replace(group, episodes=(*group.episodes, *paid, *learned))

    def first_step_note(self, groups: pl.Groups) -> str:
        tried = [e for g in groups for e in g.valid if e.reward and "kept" in e.reward.parts]
        if not tried or any(e.reward.parts["kept"] for e in tried if e.reward):
            return ""
        return (
            f"none of the {len(tried)} rewritten texts of the first step passed the filter, so the guard learns from "
            "the texts alone; look at them, and at the rater's numbers, or lower floor or raise length"
        )

    async def _keep(
        self, ctx: pl.Context, text: str, candidate: str, labels: Sequence[str]
    ) -> bool:
        if not fits(text, candidate, self.length):
            return False
        if not self.filtered:
            return True
        try:
            return await self.rater(ctx, text, candidate, labels) >= self.floor
        except pl.Fatal:
            raise
        except pl.Fault:  # its client has counted it; an unrated text is not learned from
            return False

    def _paid(
        self,
        made: Sequence[pl.Episode],
        kept: Sequence[bool],
        scores_NK: np.ndarray,
        labels: Sequence[float],
    ) -> list[pl.Episode]:
        losses_N, wrong_N = guard_losses(scores_NK, labels)
        worth_N = losses_N if self.pairs == "loss" else wrong_N
        chosen = bool(len(worth_N)) and worth_N.max() - worth_N.min() > 1e-9 and self.adversarial
        harder = float(losses_N[worth_N.argmax()] - losses_N.mean()) if chosen else 0.0
        episodes, at = list[pl.Episode](), 0
        for e, k in zip(made, kept, strict=True):
            if not e.ok:
                episodes.append(e)
                continue
            parts = {"kept": float(k), "harder": harder}
            total = 0.0
            if k:
                parts["misread"] = float(wrong_N[at])
                total, at = float(worth_N[at]) if self.adversarial else 0.0, at + 1
            silent = () if k else ("misread",)
            reward = pl.Reward(total=total, parts=parts, silent=silent, solved=None)
            episodes.append(replace(e, reward=reward, muted=not k))
        return episodes


def guard_losses(scores_NK: np.ndarray, labels: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """[N] the guard's loss on each text, and whether it misreads it (1 or 0)."""
    scores = torch.tensor(scores_NK, dtype=torch.float64)
    losses = pairwise_loss(scores, torch.tensor(labels, dtype=torch.float64).expand_as(scores))
    wrong = (scores_NK > 0).any(1) != any(labels)
    return losses.numpy(), wrong.astype(float)


def names_in(text: str, what: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(x.strip() for x in text.split(",") if x.strip()))
    if not names:
        raise pl.UserError(f'duoguard: {what} is empty; name some, such as {what}="a,b"')
    return names


def build(
    classes: str = "flagged",
    languages: str = "French,Spanish,German",
    rater: pl.Source | None = None,
    adversarial: bool = True,
    filtered: bool = True,
    pairs: Literal["outcome", "loss"] = "outcome",
    samples: int = 8,
    floor: float = 4.0,
    length: float = 1.0,
    alone: int = 40,
    lr: float = 5e-5,
    exam: int = 256,
) -> pl.Recipe:
    """`classes` and `languages` are separated by commas; a language may be a style. `rater` None is the generator.
    `alone` are the steps of the guard before the game, `lr` its rate. `exam` held-out texts measure it.
    """
    pl.check_bounds("duoguard: samples", samples, least=2)
    pl.check_bounds("duoguard: length", length, least=0)
    named = names_in(classes, "classes")
    duo = PlayDuo(
        named,
        RateByModel(rater or pl.LocalModel()),
        n=samples,
        floor=floor,
        length=length,
        filtered=filtered,
        adversarial=adversarial,
        pairs=pairs,
        alone=alone,
    )
    draw = EachLanguage(names_in(languages, "languages"))
    return game(duo, draw, GuardExam(named, exam) if exam else None, lr)


def game(
    duo: PlayDuo, draw: pl.Draw, exam: Any, lr: float, generator_lr: float = 5e-7
) -> pl.Recipe:
    """The two players as learners; both start as the run's model."""
    dpo = pl.recipe("dpo", beta=0.01, sft=0.4)
    generator = dpo.learners["policy"]
    policy = replace(
        generator,
        credit=pl.credit.Own("policy", generator.credit),
        optimiser=pl.AdamW(lr=generator_lr),
    )
    return pl.vary(
        dpo,
        draw=draw,
        collect=duo,
        learners={"policy": policy, GUARD: guard_learner(duo.classes, lr)},
        evaluate={"guard": exam} if exam else {},
        schedule=pl.Schedule(prompts=16, steps=duo.alone + 40),
    )


def embedded(
    adversarial: bool = True,
    filtered: bool = True,
    pairs: Literal["outcome", "loss"] = "outcome",
    samples: int = 6,
    alone: int = 40,
    shown: int = 15,
) -> pl.Pipeline:
    """On harmless texts of two made-up languages, of which the second has 4 labelled texts. The small model is first
    shown for `shown` steps how texts are rewritten; a rule rates.
    """
    classes = ("zorp",)
    duo = PlayDuo(
        classes,
        RateByRule(),
        n=samples,
        template="{text}>",
        filtered=filtered,
        adversarial=adversarial,
        pairs=pairs,
        alone=alone,
    )
    draw = EachLanguage(("second",), ToyTexts(share=0.1))
    played = game(duo, draw, ToyExam(classes), 1e-3, 1e-5)
    shows = pl.vary(
        pl.recipe("sft"),
        draw=ToyTexts(),
        collect=ShowRewriting("{text}>"),
        schedule=pl.Schedule(prompts=32, steps=shown),
        optimiser=pl.AdamW(lr=1e-3),
    )
    duo_part = pl.Part(played, model=pl.Output("generator"))
    return pl.Pipeline(parts={"generator": pl.warm(shows), "duo": duo_part})
