"""DynamicRAG: the policy chooses which retrieved passages a generator reads, and in which order; how good
the generator's answer is, is its reward.

    cloned    imitates lists of an expert: the relevant passages in the retriever's order, then 0 to `pad`
              irrelevant ones, so that lengths vary
    learned   8 lists a question at temperature 0.4; the generator answers each greedily; DPO, the best
              list against the worst (`update=grpo`: GRPO on all of them)

    r = mean over right answers of 0.2 (EM + similarity + ROUGE-L + 1 / (1 + passages) + judge)

EM is 1 where the answer contains the right one or the other way round (arXiv:2505.07233; released code
GasolSun36/DynamicRAG: reward_trajectories.py, utils.py, constrcut_dpo.py). Where all answers to a question
are the same, r is 0 for all. A message that is no list has r = 0, and nothing is asked. Where no answer has
a word of the right one, r is the length alone, and "None" is best; the run says so after its first step.

Deviations: EM is of whole words, for which the code takes characters ("190" is in "1900"); similarity is
the F1 of words, for which the paper has BERTScore; the released length term counts the lists of a
question, which is a constant, and its judge's grade is text: here passages of the list are counted, and
a grade is 0 to 1. The paper's expert is monoT5, and its lists are shuffled.

    palaestra train dynamicrag --docs FOLDER --data questions.jsonl --model DIR [generator=DIR] [judge=DIR]

Without `generator` the policy answers too, untrained for that in between, as one model plays both roles in the
paper. Relevant passages are those of the column `gold`, else those with a right answer's words.

Long because the reward is that of another model's answer: the recipe asks the generator and perhaps a judge,
reads their replies strictly, and mixes five terms; the demonstrations of an expert's lists come on top.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="DynamicRAG: dynamic reranking from LLM feedback",
    paper="arXiv:2505.07233",
    claim="A reranker that decides order and number of passages, trained on the quality of the generator's "
    "answers, answers better than any fixed number.",
    source="released code (GasolSun36/DynamicRAG: reward_trajectories.py, utils.py, sampling_dpo_trajectories.py, "
    "constrcut_dpo.py) and the abstract",
    size=pl.Size(
        setting="Llama2-7B and Llama3-8B; NQ, TriviaQA, HotpotQA, 2Wiki, ASQA, FEVER and ELI5; 40 passages, 30,000 "
        "cloned lists of 0 to 14, 8 lists a question, lr 1e-5 and 5e-6",
        model="llama-3.1-8b",
        samples=8,
        lr=5e-6,
    ),
    model="tiny-agent",
    task="reading",
    world="rerank",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.QUESTION,
            pl.needs.GOLD_ANSWER,
            pl.needs.NeededColumn(
                "gold",
                "any",
                (["lions.md"], ["lions.md"]),
                "the documents that answer the question: ids of records, or names of files in the folder",
                otherwise="passages with a right answer's words are relevant",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "generator",
                "generator",
                "answers questions from the chosen passages",
                inert=None,
                otherwise="the policy answers too",
            ),
            pl.needs.NeededModel(
                "judge",
                "judge",
                "grades answers from 0 to 100",
                inert=None,
                otherwise="answers are compared with the right ones by words alone",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "documents", "which the retriever finds", also=("tools",), built_in=("reading",)
            ),
        ),
        shows="part/feedback",
        off={"exact": 0.0, "similarity": 0.0, "rouge": 0.0, "judged": 0.0},
        own={
            "model": "tiny-agent",
            "env": "rerank(told=0,k=2)",
            "same_is_zero": False,
            "samples": 2,
            "steps": 12,
            "learned.schedule.prompts": 1,
            "cloned.schedule.prompts": 6,
            "cloned.optimiser.lr": 0.01,
            "cloned.optimiser.warmup": 0,
            "max_tokens": 16,
            "endpoint": "tiru is the boss. Score: 70",
        },
    ),
    use="It helps where a generator is misled by passages that it does not need; where it reads twenty as well as "
    "three, only their cost is saved.",
    lacks=(
        "BERTScore is not there: the F1 of words stands for it.",
        "The generator is not trained: neither on answers and general instructions first nor by pairs of a right "
        "and a wrong answer.",
        "The expert of the cloned lists is the retriever with the relevant passages, no trained ranker.",
        "Held-out questions are measured by the relevant passages that a list has, not by answers.",
        "Lists are sampled anew each step, where the paper samples once before DPO.",
        "The benchmarks of the paper are not there.",
    ),
    grade="B",
)

ANSWER_FROM = "Answer the question from the passages, as briefly as you can. Where there is none, answer from what you know."
GRADE = (
    "Grade the answer from 0 to 100 against the right one: relevance, right facts, sound reasoning, clarity, and "
    "that it does not mislead, 20 points each. End with the line Score: and the number.\n\n"
)
NUMBER = r"score\s*(?:\([^()\n]*\))?[\s:=*_]*(\d+(?:\.\d+)?)(?:\s*(?:/|out of)\s*(\d+))?"
SCORE = re.compile(rf"^\W*{NUMBER}|[.!?]\W+{NUMBER}\W*\Z", re.IGNORECASE | re.MULTILINE)


def generator_question(question: str, passages: Sequence[str], tokens: int) -> pl.ChatRequest:
    """What the generator reads, and how many tokens it may write."""
    listing = "\n".join(f"{i}. {' '.join(p.split())}" for i, p in enumerate(passages, 1)) or "None"
    return pl.ChatRequest(
        messages=(
            pl.Message(role="system", content=ANSWER_FROM),
            pl.Message(role="user", content=f"Passages:\n{listing}\n\nQuestion: {question}"),
        ),
        max_tokens=tokens,
    )


def read_answer(text: str) -> str:
    """A generator's answer, behind its thoughts. Raises Fault where thoughts are all that it wrote."""
    answer = pl.verifiers.strip_thinking(text).strip()
    if text.strip() and not answer:
        raise pl.Fault(
            "generator",
            "the generator's reply is all thought; answer_tokens=1000 gives it room to answer",
        )
    return answer


def read_score(text: str) -> float:
    """A judge's grade in [0, 1]: the last "Score: N" of its reply, behind its thoughts, that begins a line,
    or a sentence that ends the reply; after "Score (0-100)" and before "/100" or "out of 100" too. Raises Fault where there
    is none, or where it is no number from 0 to 100, or a fraction of 1, such as 0.8.
    """
    reply = pl.verifiers.strip_thinking(text)
    matches = list(SCORE.finditer(reply))
    if not matches:
        raise pl.Fault("judge", f"no line 'Score: NUMBER' in a judge's reply: {reply[-60:]!r}")
    match = matches[-1]
    grade, most = match[1] or match[3], match[2] or match[4] or "100"
    fraction = "." in grade and 0 < float(grade) <= 1
    if float(grade) > 100 or most != "100" or fraction:
        raise pl.Fault("judge", f"a judge's grade is not from 0 to 100: {match[0].strip()!r}")
    return float(grade) / 100


@pl.declare(facts=(("generated", str, "the generator's answer from the chosen passages"), "error"))
@pl.stage
class AnswerQuality:
    """A link after `Score` in a world that chooses passages. Parts: "feedback", what the answer adds to r;
    "brevity", what the list's length adds; "exact", "f1", "rouge_l" and with a judge "judge", in [0, 1];
    "chosen", passages.

    Args:
        generator: that answers; the policy unless given.
        judge: that grades; None = none does.
        exact, similarity, rouge, length, judged: weights of the terms of r.
        same_is_zero: r is 0 where all answers to a question are the same.
        answer_tokens: that the generator may write, thoughts included.
    """

    generator: pl.Source = pl.LocalModel()
    judge: pl.Source | None = None
    exact: float = 0.2
    similarity: float = 0.2
    rouge: float = 0.2
    length: float = 0.2
    judged: float = 0.2
    same_is_zero: bool = True
    answer_tokens: int = 200

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        able = [i for i, e in enumerate(group.episodes) if e.ok and e.reward is not None]
        if any("chosen" not in group.episodes[i].facts for i in able):
            raise pl.UserError(
                "dynamicrag chooses passages, and this environment shows none; give --data, and --docs FOLDER or "
                "--tools FILE.py:search"
            )
        episodes = list(group.episodes)
        made = await asyncio.gather(
            *(self._answer(ctx, (*key, i), group.task, episodes[i]) for i in able)
        )
        for i, e in zip(able, made, strict=True):
            episodes[i] = e
        answers = [e.facts["generated"] for e in made if "generated" in e.facts]
        if self.same_is_zero and len(answers) > 1 and len(set(answers)) == 1:
            for i in able:
                episodes[i] = without_reward(episodes[i])
        return replace(group, episodes=tuple(episodes))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where lists are rewarded for their length alone, and why answers could not be judged."""
        every = [e for g in groups for e in g.episodes]
        rewards = [e.reward for e in every if e.ok and "generated" in e.facts and e.reward]
        paid = [r for r in rewards if r.parts["feedback"] + r.parts["brevity"]]
        notes = list[str]()
        if paid and not any(r.parts["feedback"] for r in paid):
            notes.append(
                "no answer from the chosen passages earned anything in the first step, so only the length of a "
                "list is learned, and None is the shortest; take another generator=DIR, or a judge=DIR that "
                "tells bad answers from worse, or length=0"
            )
        causes = Counter(e.facts["error"] for e in every if not e.ok and "error" in e.facts)
        for cause, n in causes.most_common(1):
            notes.append(
                f"{sum(causes.values())} of {len(every)} episodes of the first step have no reward, {n} of them "
                f"for this: {cause}"
            )
        return "; and ".join(notes)

    async def _answer(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, e: pl.Episode
    ) -> pl.Episode:
        """The episode with what the generator made of its list, and its reward."""
        if e.facts["malformed"]:
            return self._pay(e, {}, 0)
        question = pl.tasks.question_text(task)
        golds = task.answer if isinstance(task.answer, list | tuple) else [task.answer]
        try:
            with ctx.judging():
                asked = generator_question(question, e.facts["passages"], self.answer_tokens)
                answer = read_answer(await ctx.ask(self.generator, asked, seed=pl.seed_of(key)))
                each = [await self._terms(ctx, key, question, str(g), answer) for g in golds]
        except pl.Fault as fault:
            facts = {**e.facts, "error": str(fault)}
            return replace(e, status=f"error:{fault.cause}", facts=facts)
        terms = {name: sum(t[name] for t in each) / len(each) for name in each[0]}
        answered = replace(e, facts={**e.facts, "generated": answer})
        return self._pay(answered, terms, 1 / (1 + len(e.facts["chosen"])))

    async def _terms(
        self, ctx: pl.Context, key: pl.Key, question: str, gold: str, answer: str
    ) -> dict[str, float]:
        """How good an answer is against one that is right, in [0, 1] each."""
        terms = quality(answer, gold)
        if self.judge is not None:
            answer_text = pl.judges.defuse(answer)
            grading_prompt = (
                f"{GRADE}Question: {question}\nRight answer: {gold}\nAnswer: {answer_text}"
            )
            terms["judge"] = read_score(
                await ctx.ask(self.judge, grading_prompt, seed=pl.seed_of(key))
            )
        return terms

    def _pay(self, e: pl.Episode, terms: dict[str, float], short: float) -> pl.Episode:
        assert e.reward is not None
        weights = {
            "exact": self.exact,
            "f1": self.similarity,
            "rouge_l": self.rouge,
            "judge": self.judged,
        }
        feedback = sum(weights[name] * x for name, x in terms.items())
        named = ("exact", "f1", "rouge_l", *(("judge",) if self.judge else ()))
        parts = {
            **e.reward.parts,
            **{name: terms.get(name, 0.0) for name in named},
            "feedback": feedback,
            "brevity": self.length * short,
            "chosen": float(len(e.facts["chosen"])),
        }
        total = feedback + self.length * short
        return replace(e, reward=replace(e.reward, total=total, parts=parts, solved=e.solved))


def quality(answer: str, gold: str) -> dict[str, float]:
    """EM by containment of whole words, the F1 of the words and their ROUGE-L, of an answer against a right
    one.
    """
    a, b = answer.strip().casefold(), gold.strip().casefold()
    words, right = (re.findall(r"\w+", x) for x in (a, b))
    shared = sum(min(words.count(w), right.count(w)) for w in set(words))
    return {
        "exact": float(states(a, b) or states(b, a)),
        "f1": 2 * shared / (len(words) + len(right)) if words and right else 0.0,
        "rouge_l": pl.verifiers.rouge_l(words, right) if words and right else 0.0,
    }


def states(term: str, text: str) -> bool:
    """Whether a text is a term, or has it as whole words; articles alone are no term."""
    plain = pl.verifiers.normalise_text
    held = bool(plain(term)) and pl.verifiers.contains_term(term, plain(text))
    return bool(term) and (term == text or held)


def without_reward(e: pl.Episode) -> pl.Episode:
    """The episode with a reward of 0, whose answer taught nothing."""
    if not e.ok or e.reward is None:
        return e
    parts = {**e.reward.parts, "feedback": 0.0, "brevity": 0.0}
    return replace(e, reward=replace(e.reward, total=0.0, parts=parts, solved=e.solved))


@pl.stage
class ShowLists:
    """Demonstrates an expert's list, with 0 to `pad` irrelevant passages behind the relevant ones."""

    pad: int = 2

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = ctx.bench.world
        if not isinstance(world, pl.worlds.Rerank):
            raise pl.UserError(
                "dynamicrag imitates lists of passages, and this environment shows none; give --data, and --docs "
                "FOLDER or --tools FILE.py:search"
            )
        behind = int(pl.rng_of((*key, "pad")).integers(self.pad + 1))
        bench = replace(ctx.bench, world=replace(world, pad=behind))
        return await pl.Demonstrate()(ctx.with_bench(bench), key, group)


def build(
    generator: pl.Source | None = None,
    judge: pl.Source | None = None,
    update: Literal["dpo", "grpo"] = "dpo",
    exact: float = 0.2,
    similarity: float = 0.2,
    rouge: float = 0.2,
    length: float = 0.2,
    judged: float = 0.2,
    same_is_zero: bool = True,
    pad: int = 2,
    clone_steps: int = 200,
    samples: int = 8,
    temperature: float = 0.4,
    answer_tokens: int = 200,
) -> pl.Pipeline:
    """`generator` None is the policy. `clone_steps` of imitation come first. The weights `exact` to `judged`
    are those of r; that of `judged` is unused without a judge. A generator that thinks needs more
    `answer_tokens`.
    """
    pl.check_bounds("dynamicrag: pad", pad, least=0)
    pl.check_bounds("dynamicrag: answer_tokens", answer_tokens, least=1)
    reward = AnswerQuality(
        generator or pl.LocalModel(),
        judge,
        exact,
        similarity,
        rouge,
        length,
        judged,
        same_is_zero,
        answer_tokens,
    )
    cloned = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowLists(pad)),
        schedule=pl.Schedule(prompts=16, steps=clone_steps),
        optimiser=pl.AdamW(lr=1e-3, warmup=10),
    )
    learned = pl.vary(
        pl.recipe(update),
        collect=pl.links(pl.Sample(n=samples, temperature=temperature), pl.Score(), reward),
    )
    return pl.Pipeline(
        parts={
            "cloned": pl.warm(cloned),
            "learned": pl.Part(learned, model=pl.Output("cloned")),
        }
    )


def embedded(
    generator: pl.Source | None = None,
    temperature: float = 1.0,
    clone_steps: int = 120,
    **options: Any,
) -> pl.Pipeline:
    """On questions after one to three facts of a small wiki. Unless a generator is given, it is a program that
    believes the first passage that fits: the small model reads too badly to show what a list is worth.
    """
    reader = pl.Scripted(pl.toys.read_facts, name="reader")
    made = build(generator or reader, temperature=temperature, clone_steps=clone_steps, **options)
    return pl.override(made, "learned.schedule", pl.Schedule(prompts=16, steps=24))
