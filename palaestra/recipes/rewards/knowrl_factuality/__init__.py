"""KnowRL (factuality): the model is rewarded for right answers, less for saying that it does not
know, and a wrong answer costs less where its thoughts state facts that are true.

    r = format + combined,    format = +1 | -1,    combined = -1 + s if wrong, else c                (arXiv:2506.19807)

on `<think></think><answer></answer>`; c = 2 right, 1 refused, -1 wrong. s is the share of the
thoughts' statements that the knowledge supports, times exp(1 - 10 / N) for N <= 10 of them; or
min(supported / 15, 1) (`score="count15"`, in comments of the code). Facts add nothing to a right
answer or a refusal. Answering pays, in good form, from p > (2 - s) / (3 - s) on: 2/3 without facts,
1/2 with all. GRPO, ten samples, KL 0.001.

As released (`variant="released"`) an answer that is missing still earns s, a fact counts as often
as it is said, and a judge's prose is searched for a letter A that stands alone, so that "B because
A ..." is right. By default none of these is paid. A judge that fails leaves the episode unscored; a
verdict that is none of A, B, C is worth 0.

Knowledge is the user's: documents (`documents`), in which each statement is looked up by its words
and `entails`, a model, is asked whether a passage supports it; or the column `facts`, which states
the facts word for word:

    palaestra train knowrl-factuality --data F documents=KNOWLEDGE.jsonl entails=DIR judge=DIR

Deviations: statements are sentences, where the paper has a model split them; the model says yes or
no, where the paper asks an entailment model for a probability of 0.3. Fine-tuning before the first
step (the paper's cold start) is a run of sft.

Long because the reward has two sources of truth, answers by a judge or a match and facts by documents or a column,
and verdicts, repeated facts and missing answers are each read as in the paper or as released.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Literal

import palaestra as pl
from palaestra.recipes.rewards.knowrl_factuality.library import Library, read_library

ENDPOINT = "endpoint(url='http://HOST:PORT/v1',model='NAME')"
CARD = pl.Card(
    title="KnowRL: knowledge-verified factuality reward",
    paper="arXiv:2506.19807",
    claim="Paying refusals above errors, and facts in the reasoning, lowers hallucination and "
    "keeps the reasoning.",
    source="released code (zjunlp/KnowRL: train/reward_function, FActScore/factscorer.py, "
    "grpo.yaml); exact match for entailment",
    size=pl.Size(
        setting="DeepSeek-R1-Distill-Qwen-7B, Skywork-OR1-7B; LoRA r 128, 8 prompts x 10, KL "
        "0.001, lr 1e-5, 150 steps, 1,024 tokens",
        model="qwen2.5-7b",
        prompts=8,
        samples=10,
        tokens=1024,
        lr=1e-5,
        lora=128,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "answer",
                "any",
                ("42", "39", "49"),
                "the right answer, or a list of those that are, which a reply is compared with",
            ),
            pl.needs.NeededColumn(
                "facts",
                "texts",
                (["17 + 25 is 42"], ["8 + 31 is 39"], ["40 + 9 is 49"]),
                "true statements, one of which a sentence of the thoughts must be",
                when={"documents": ("",)},
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "judge",
                "judge",
                "says whether an answer is right, wrong or none",
                inert=None,
                example=ENDPOINT,
                otherwise="words of the answer are compared",
            ),
            pl.needs.NeededModel(
                "entailment model",
                "entails",
                "says whether a document supports a statement",
                inert=None,
                example=ENDPOINT,
                otherwise="a statement must stand in a document word for word",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "documents",
                "a file or folder of records with `text`, in which statements are looked up",
                flag="documents=FILE",
                otherwise="the column facts",
            ),
        ),
        shows="part/stated",
        off={"facts": 0.0},
        own={"n": 4, "schedule.prompts": 4},
    ),
    use="It helps where questions ask for facts that some documents hold and the model should rather "
    "say that it does not know than guess; a model that is right less than two times in three learns "
    "to refuse.",
    lacks=(
        "Statements are sentences; no model splits the thoughts into atomic facts.",
        "Without `entails` a sentence counts as a fact only where it stands in the knowledge word "
        "for word, which free thoughts hardly do.",
        "The cold start is a run of sft before it, on data of one's own.",
        "The three hallucination benchmarks are not there.",
    ),
    grade="A",
)
Variant = Literal["paper", "released"]
GRADES = {"A": 2.0, "B": -1.0, "C": 1.0}
GRADING = """Grade the answer to the question against the reference: A if it is right, B if it is wrong, C if it does not answer.
<question>{question}</question>
<reference>{reference}</reference>
<response>{response}</response>
Say only the letter."""


def grade(text: str, variant: Variant = "paper") -> float:
    """What a judge's verdict is worth; 0 for one that is none."""
    match = (
        re.search(r"\b(A|B|C)\b", text)
        if variant == "paper"
        else re.search(r"\bA\b", text) or re.search(r"\b(B|C)\b", text)
    )
    if variant == "paper" and (match is None or text.strip().rstrip(".") != match[0]):
        return 0.0
    return GRADES[match[0]] if match else 0.0


def combine_worth(worth: float, facts: float) -> float:
    """-1 + facts for what is wrong; a right answer and a refusal have their own worth."""
    return worth + facts if worth == -1 else worth


def fact_score(
    supported: int, n: int, score: Literal["ratio", "count15"] = "ratio", gamma: float = 10.0
) -> float:
    """s of the module's docstring; 0 where nothing is stated."""
    return (
        min(supported / 15, 1.0)
        if score == "count15"
        else pl.verifiers.fact_worth(supported, n, gamma)
    )


@pl.stage
class Knowledge:
    """The reward; `facts` = 0 leaves them out, `refusal` is what saying "I don't know" is worth.

    Knowledge is the `library`, else the column `facts` of a task, else the steps of its working.
    Without `judge`, words are compared. The part "stated" is the number of statements checked.
    """

    facts: float = 1.0
    refusal: float = 1.0
    score: Literal["ratio", "count15"] = "ratio"
    variant: Variant = "paper"
    judge: pl.Source | None = None
    library: Library | None = None

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        return list(
            await asyncio.gather(
                *(self._judged(ctx, group.task, pl.response_text(e)) for e in group.episodes)
            )
        )

    async def _judged(self, ctx: pl.Context, task: pl.Task, text: str) -> pl.Reward | pl.Fault:
        text = add_blocks(text)
        answer = (pl.verifiers.tagged_answer(text) or "").strip()
        stated = self.statements(text)
        try:
            worth = await self._worth(ctx, task, answer)
            supported = await self._supported(ctx, task, stated)
        except pl.Fault as fault:
            return fault
        return self.reward(text, worth, answer, task, supported)

    async def _worth(self, ctx: pl.Context, task: pl.Task, answer: str) -> float:
        """c: 2, 1 (`refusal`) or -1; -1 for no answer."""
        if not answer:
            return -1.0
        if self.judge is None:
            return 2.0 if is_right(answer, task) else self.refusal if is_refusal(answer) else -1.0
        question = GRADING.format(
            question=pl.tasks.question_text(task),
            reference=task.answer,
            response=pl.judges.defuse(answer),
        )
        reply = await ctx.client(self.judge).chat(
            pl.ChatRequest(messages=(pl.Message(role="user", content=question),))
        )
        score = grade(reply.text, self.variant)
        return self.refusal if score == 1.0 else score

    def statements(self, text: str) -> list[str]:
        """What the thoughts of a reply say, a sentence each."""
        thoughts = (
            text.partition("</think>")[0].removeprefix("<think>") if "</think>" in text else text
        )
        return pl.verifiers.split_statements(thoughts, repeated=self.variant == "released")

    async def _supported(
        self, ctx: pl.Context, task: pl.Task, stated: Sequence[str]
    ) -> Sequence[bool]:
        """Which statements the knowledge supports."""
        if self.library is not None:
            return await self.library.supported(ctx, task, stated) if self.facts else ()
        known = {
            pl.verifiers.normalise_text(str(f)).rstrip(".!? ")
            for f in task.meta.get("facts", task.meta.get("steps", ()))
        }
        return [x in known for x in stated]

    def reward(
        self, text: str, worth: float, answer: str, task: pl.Task, supported: Sequence[bool]
    ) -> pl.Reward:
        s = fact_score(sum(supported), len(supported), self.score)
        earns = self.facts * s if answer or self.variant == "released" else 0.0
        form = pl.verifiers.Tags()(text, None).score * 2 - 1
        shut = is_refusal(answer)
        parts = {
            "format": form,
            "facts": s,
            "stated": float(len(supported)) if self.facts else 0.0,
            "refused": float(shut),
            "hallucinated": float(not shut and not is_right(answer, task)),
        }
        # a refusal that is worth -1 is no error that facts could soften
        return pl.Reward(total=form + (worth if shut else combine_worth(worth, earns)), parts=parts)


def add_blocks(text: str) -> str:
    """A reply with the blocks it should have: the prompt's `<think>`, or those of an
    answer line.
    """
    answer = lambda stated: (
        "unknown" if stated == pl.tasks.UNSURE_ANSWER.removeprefix("= ") else stated
    )
    text = (
        pl.rewards.write_blocks(text, ("think", "answer"), answer)
        if "<answer>" not in text
        else text
    )
    return text if "<think>" in text else f"<think>{text}"


def is_right(answer: str, task: pl.Task) -> bool:
    golds = task.answer if isinstance(task.answer, list | tuple) else [task.answer]
    return pl.verifiers.matches_gold([str(g) for g in golds], answer)


def is_refusal(answer: str) -> bool:
    return any(pl.verifiers.matches_gold([r], answer) for r in pl.verifiers.REFUSAL_PHRASES)


ASK = "Reason in <think></think>, then give the answer in <answer></answer>."


def build(
    facts: float = 1.0,
    refusal: float = 1.0,
    score: Literal["ratio", "count15"] = "ratio",
    variant: Variant = "paper",
    judge: pl.Source | None = None,
    documents: str = "",
    entails: pl.Source | None = None,
    n: int = 10,
    kl: float = 0.001,
) -> pl.Recipe:
    """`documents` is a file or folder of the user's knowledge; `entails` reads it."""
    if entails is not None and not documents:
        raise pl.UserError("entails reads documents: give documents=FILE, records with `text`")
    library = Library(read_library(documents), entails) if documents else None
    reward = Knowledge(facts, refusal, score, variant, judge, library)
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(pl.Sample(n=n), pl.Score(reward=reward)),
        instruction=ASK,
    )
