"""Traversal of hierarchical knowledge: did training add knowledge, or a better way through what was there
(arXiv:2511.05933)? A study: nothing is trained. Rows are places in a hierarchy, and three things are
measured of the model, of what it was before training, and of any further ones:

    prompting  the same questions asked directly, step by step, and with the instruction to go through the
               levels and to rule out options at each. Of the gap between the model and the start, the
               levels recover 1 - gap_levels / gap_direct (told only where gap_direct is seen to be above 0)
    path       the model lists the nodes from the root to what is asked about. Its score is the harmonic mean of
               F1 over nodes and of the longest common subsequence with the right path, over the length of
               that; by the number of ancestors: light is fewer than 3, heavy 5 and more
    layers     the hidden state at the last token of a question about a node and of a statement about it:
               at each layer the cosine between the start and the model, and within each model between the
               two forms; as it is, without the mean over all nodes, and of pairs by chance. The claim is
               that statements stay alike where questions move

    palaestra study hierarchical-knowledge --model AFTER --base BEFORE --data codes.jsonl
    palaestra study hierarchical-knowledge --model AFTER --data icd.csv --columns description=answer samples=5 \
        temperature=0.7 flat=trivia.jsonl

Rows have `prompt`, `answer` and `path`, a list or "A > A01 > A01B"; or `node` and `parent`, by which paths are
followed through all rows. A question without `options` gets `choices` of them: its answer and those of the
nearest other nodes. With several `samples` the answer is that of most of them. The path score of open
questions and their right answers are told of all samples. `flat` names problems without a hierarchy, which
show what training cost there.

On the built-in model (no argument, 32 held-out leaves of a made-up tree), 14 steps of RL on the other leaves took
right answers from 16% to 44% asked directly, and from 50% to 47% along the levels: the prompt recovers the
whole gap. Paths became no better (a score of 0.41 against 0.44), and hidden states of questions moved hardly more
than those of statements (cosines of 0.997 and 0.998). Imitation of bare answers reached 31% and lost the paths.

Long because the study joins three measurements of the same models and questions: answers in each form of prompt,
listed paths, and hidden states by layer; a part of it is the texts of these prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.hierarchical_knowledge.findings import (
    AskedHierarchy,
    HierarchyAnswers,
    report,
)
from palaestra.recipes.analysis.hierarchical_knowledge.layers import Form, Read, states_by_layer
from palaestra.recipes.analysis.hierarchical_knowledge.questions import (
    AskedQuestions,
    HierarchyQuestion,
    read_questions,
    vote,
)

CODES = (("A", "A01", "A01B"), ("A", "A01", "A01D"), ("B", "B02", "B02C"), ("B", "B05", "B05B"))
CARD = pl.Card(
    title="RL improves traversal of hierarchical knowledge",
    paper="arXiv:2511.05933",
    claim="Models after RL recall hierarchical knowledge better than their start because they find their way through "
    "it better: a prompt that spells out the levels recovers most of the gap, paths to deep places are recalled "
    "better, and hidden states of questions change where those of statements do not.",
    source="abstract; prompts, path score and layers as the catalogue has them from reading notes; the denominator "
    "of the common subsequence is the catalogue's choice",
    size=pl.Size(
        setting="DeepSeek-V3 and R1, Qwen2.5-32B and its descendants; MedConceptsQA and patent classes, five "
        "vocabularies with 100 probes each",
    ),
    task="taxonomy",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                tuple(f"What is code {p[-1]}?" for p in CODES),
                "a question about a place in the hierarchy",
            ),
            pl.needs.NeededColumn(
                "answer",
                "text",
                ("tilling soil", "mowing grass", "cleaning grain", "spraying paint"),
                "the right answer, as text; or the letter of one of the `options`",
            ),
            pl.needs.NeededColumn(
                "path",
                "texts",
                tuple(list(p) for p in CODES),
                "its place: the nodes from the root to what is asked about",
                otherwise="`node` and `parent` of the rows say it",
            ),
            pl.needs.NeededColumn(
                "node",
                "text",
                tuple(p[-1] for p in CODES),
                "what the row is about, where it has no `path`",
                otherwise="`path` says it",
            ),
            pl.needs.NeededColumn(
                "parent",
                "text",
                tuple(p[-2] for p in CODES),
                "the node above it",
                otherwise="`path` says it, or the node is at the top",
            ),
        ),
        models=(replace(pl.studies.BASE, otherwise="the model is measured alone"),),
        shows="moved",
        off={"base": "policy"},
        own={"base": "tiny-agent", "problems": 4},
    ),
    use="It helps to see whether training taught facts or a way to them, for a taxonomy of yours (codes, classes, "
    "organisations); where the path stands in the name of a place, a path score says little.",
    lacks=(
        "MedConceptsQA and the patents are not shipped: bring them with --data.",
        "Models that are compared by layer have one width, depth and tokenizer; others are compared by answers.",
        "The arms (supervised, distilled, RL) are runs of yours: name them with beside=NAME=DIR.",
        "On the built-in tree paths become no better by RL: that part of the claim needs a model that can be better.",
    ),
    grade="B",
)

DIRECT = "Give the answer alone, without an explanation."
STEP = "Think step by step, then give the answer on the last line."
LEVELS = (
    "First write the levels of the hierarchy that lead there, from the most general one down, a line each, and at "
    "every level rule out the answers that do not belong below it. Then give the answer on the last line."
)
PATH = (
    "Where in its hierarchy is {node}? Write the path from the most general level down to {node} on one line, with "
    "> between the levels."
)


@dataclass(frozen=True, slots=True)
class HierarchyPrompts:
    """What stands behind a question asked directly, step by step ("" = it is not asked so) and along the levels;
    and texts about a node with {node}, {parent}, {top} and {answer} in them: the question for the path, and
    the question and the statement whose hidden states are compared.
    """

    direct: str = DIRECT
    step: str = STEP
    levels: str = LEVELS
    path: str = PATH
    ask: str = "What is {node}?"
    statement: str = "{node} is {answer}."

    @property
    def forms(self) -> dict[str, str]:
        some = {"direct": self.direct, "step": self.step, "levels": self.levels}
        return {k: x for k, x in some.items() if x or k != "step"}


@pl.stage
class HierarchicalKnowledge:
    """The study; see the module.

    Args:
        base: the model before training; "" = what the run of the model began with, or none.
        beside: further models as NAME=MODEL, with commas between them.
        flat: problems without a hierarchy: a file or a built-in task; "" = none.
        tasks: rows that are asked about.
        n: answers to each, of which the most frequent one counts.
        temperature: of the answers; 0 = greedy.
        choices: options of a question whose row has none; 0 = it is open, and the reward judges.
        prompts: what is asked.
        read: hidden states of bare texts, or of prompts of a chat.
        present: further models that the run has by these names.
    """

    base: str = ""
    beside: str = ""
    flat: str = ""
    tasks: int = 100
    n: int = 1
    temperature: float = 0.0
    choices: int = 4
    prompts: HierarchyPrompts = HierarchyPrompts()
    read: Read = "text"
    present: tuple[str, ...] = ()
    question: ClassVar[str] = "Did training add knowledge, or a better way through what was there?"
    check_up: ClassVar[bool] = False

    def __post_init__(self) -> None:
        pl.check_bounds("problems", self.tasks, least=2)
        pl.check_bounds("samples", self.n, least=1)
        if self.choices == 1 or not 0 <= self.choices <= 26:
            raise pl.UserError(f"choices={self.choices}: 2 to 26 options, or 0 for open questions")
        if "{node}" not in self.prompts.path or "{node}" not in self.prompts.ask:
            raise pl.UserError("path and ask are about a place: write {node} where its name stands")
        if wrong := [x for x in pl.studies.listed(self.beside) if "=" not in x]:
            raise pl.UserError(f"beside={wrong[0]}: write NAME=MODEL, such as beside=sft=DIR")

    async def run(self, ctx: pl.Context) -> pl.Result:
        names = self._bring(ctx)
        power = pl.studies.tell_power(ctx, self.tasks)
        questions = read_questions(ctx, self.tasks, self.choices)
        answers = {name: await self._answers(ctx, name, questions) for name in names}
        templates: dict[Form, str] = {
            "question": self.prompts.ask,
            "statement": self.prompts.statement,
        }
        models = {name: ctx.model(name) for name in names}
        states = await ctx.once(
            "states", lambda: states_by_layer(models, questions, templates, self.read)
        )
        if states["why"]:
            ctx.say(f"{states['why']}: hidden states are not compared between them")
        flat = await self._flat(ctx, names) if self.flat else {}
        whole = report(AskedHierarchy(questions, answers, states, flat))
        protocol = {
            "answers": f"{self.n} to each of {len(questions)} questions in each form, at temperature "
            f"{self.temperature:g}" + (", of which most decide" if self.n > 1 else ""),
            "options": f"{self.choices}, those of the nearest places" if self.choices else "none",
            **{f"asked {k}": x for k, x in self.prompts.forms.items() if x},
            "hidden states": f'of "{self.prompts.ask}" and "{self.prompts.statement}", '
            + ("as prompts of a chat" if self.read == "prompt" else "as bare text"),
            "power": power,
        }
        return pl.studies.publish(ctx, replace(whole, question=self.question, protocol=protocol))

    def _bring(self, ctx: Any) -> list[str]:
        """The models by name: the one under study, its start if that is known, and the others."""
        others = {k: v for k, _, v in (x.partition("=") for x in pl.studies.listed(self.beside))}
        if taken := sorted({*others} & {"policy", "base", *self.present}):
            raise pl.UserError(f"beside={taken[0]}=...: the name is taken; choose another one")
        if pl.studies.knows_base(ctx, self.base):
            pl.studies.bring_models(ctx, self.base, others)
        for name, source in others.items():
            if name not in ctx.models:
                ctx.reference(name, source)
        start = ["base"] if "base" in ctx.models else []
        return ["policy", *start, *others, *self.present]

    async def _answers(
        self, ctx: Any, name: str, questions: Sequence[HierarchyQuestion]
    ) -> HierarchyAnswers:
        """What a model says in each form, and the paths that it lists."""
        opened = any(not q.options for q in questions)
        by_form = {
            form: await self._ask(ctx, name, form, [q.asked(end) for q in questions], opened)
            for form, end in self.prompts.forms.items()
        }
        tasks = [q.asks_path(self.prompts.path) for q in questions]
        paths = await self._ask(ctx, name, "path", tasks, False)
        right = {form: rights(questions, items) for form, items in by_form.items()}
        scores = [
            float(np.mean([pl.toys.path_score(pl.toys.path_said(t, q.path), q.path) for t in each]))
            for q, each in zip(questions, map(texts_of_item, paths), strict=True)
        ]
        return HierarchyAnswers({**by_form, "path": paths}, right, scores)

    async def _ask(
        self, ctx: Any, model: str, form: str, tasks: Sequence[pl.Task], judged: bool
    ) -> list[pl.studies.Item]:
        source = AskedQuestions(tuple(tasks), ctx.bench.tasks)
        there = ctx.with_bench(replace(ctx.bench, tasks=source))
        return await pl.studies.answers(
            there, model, len(tasks), self.n, temperature=self.temperature, draw=form, judged=judged
        )

    async def _flat(self, ctx: Any, names: Sequence[str]) -> dict[str, list[float]]:
        """How often each model is right on problems without a hierarchy."""
        there = pl.studies.on_problem(ctx, self.flat)
        items = {
            name: await pl.studies.answers(
                there, name, self.tasks, self.n, temperature=self.temperature, draw="flat"
            )
            for name in names
        }
        return {name: pl.studies.right_shares(each) for name, each in items.items()}


def texts_of_item(item: pl.studies.Item) -> Sequence[str]:
    """The answers to a question. Raises UserError where all samples failed, which says nothing of the model."""
    if not item["texts"]:
        raise pl.UserError(
            f"question {item['id']!r}: all its samples failed, {item['failed']}; run it again"
        )
    return item["texts"]


def rights(questions: Sequence[HierarchyQuestion], items: Sequence[pl.studies.Item]) -> list[float]:
    """Of each question, whether the option of most samples is right; of an open one the share of right
    samples.
    """
    return [
        float(vote([q.chosen(t) for t in texts_of_item(x)]) == q.right)
        if q.options
        else pl.studies.right_shares([x])[0]
        for q, x in zip(questions, items, strict=True)
    ]


def build(
    base: str = "",
    beside: str = "",
    flat: str = "",
    problems: int = 100,
    samples: int = 1,
    temperature: float = 0.0,
    choices: int = 4,
    direct: str = DIRECT,
    step: str = STEP,
    levels: str = LEVELS,
    path: str = PATH,
    ask: str = "What is {node}?",
    statement: str = "{node} is {answer}.",
    read: Read = "text",
) -> HierarchicalKnowledge:
    """`base` is the model before training, "" = what the run of the model began with, if that is known;
    `beside` names further ones, NAME=DIR. `problems` rows are asked about, with `choices` options where a row
    has none, 0 = openly. Behind a question stands `direct`, `step` ("" leaves that form out) or `levels`;
    `path`, `ask` and `statement` have {node} in them. `flat` is a file or task without a hierarchy."""
    prompts = HierarchyPrompts(direct, step, levels, path, ask, statement)
    return HierarchicalKnowledge(
        base, beside, flat, problems, samples, temperature, choices, prompts, read
    )


TREE = "leaves=64,width=6"
# facts of the whole tree, ways from the leaves that are trained on, and answers at once for half of these
FACTS = (
    f"taxonomy(ask='parent',{TREE})*5+taxonomy(few=True,at_once=0.7,{TREE})*2"
    f"+taxonomy(levels=True,{TREE})*2+taxonomy(ask='path',{TREE})"
)


def embedded(steps: int = 220, rl_steps: int = 14, problems: int = 32) -> pl.Pipeline:
    """The built-in model learns the parents of a made-up tree, and to answer mostly at once unless it is
    asked for the levels. From there one copy imitates the answers for one half of the leaves, the other
    has RL on them; both are asked about the other half."""
    imitate = lambda lr, steps: pl.vary(
        pl.recipe("sft"),
        optimiser=pl.AdamW(lr=lr, warmup=5),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )
    short = HierarchyPrompts(
        "", "", "levels", "path {node}?", "top {node}?", "up {node}?\n{node} {parent}"
    )
    study = HierarchicalKnowledge(
        flat=f"taxonomy(ask='parent',{TREE})",
        tasks=problems,
        choices=0,
        prompts=short,
        present=("sft",),
    )
    facts = pl.Output("facts")
    return pl.Pipeline(
        parts={
            "facts": pl.warm(imitate(2e-3, steps), task=FACTS),
            "sft": pl.Part(imitate(3e-4, 20), model=facts, task=f"taxonomy(at_once=1.0,{TREE})"),
            "rl": pl.Part(
                pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=16, steps=rl_steps)),
                model=facts,
                task=f"taxonomy({TREE})",
            ),
            "study": pl.Part(
                study,
                model=pl.Output("rl"),
                models={"base": facts, "sft": pl.Output("sft")},
                task=f"taxonomy({TREE})",
            ),
        }
    )
