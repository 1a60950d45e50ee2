"""CEC-Zero: spelling correction without labels. A correct sentence is corrupted by a program, and
the policy is paid for restoring it.

    r = a R1 + g R2,   R(c) = max(0, (c - theta) / (1 - theta)),  theta = 0.8                         (arXiv:2505.09082)

R1 = R(cos(e(y), e(gold))), e a sentence embedding. R2 = R(cos(e(y), centre)) for members of the
largest cluster of the group's embeddings (connected within `radius`), 0 outside it and where two
clusters are largest. a = g = 1/2 where the sentence was corrupted here; `supervised=0, agreed=1` is
test-time RL on text without a reference. An empty reply earns nothing and is in no cluster.

Embeddings hardly see one wrong character: handing back the corrupted sentence (cosine 0.95) earns
0.75 of R1. `exact` adds a bonus for the sentence itself. Where nothing was wrong, the copy is the
answer. `Corrupted` makes the task of every clean `sentence` that the data has; other tasks, such as
an erroneous sentence with its correction, stay as they are.
Held-out accuracy is that of the tasks as they are in the data. Of sentences that are corrupted here the
evaluation `correction` tells precision, recall and F1 of detection and correction, by character and by
sentence, on `measured` held-out ones. Character n-grams stand in for a sentence encoder.

`confusions` is a file with the confusion set of a language: a line `字:子自` says what a character is
mistaken for, a line without a colon, such as `的地得`, lists characters that are mistaken for each other:

    palaestra train cec-zero --data sentences.jsonl confusions=FILE

Long because the method is three parts: the program that corrupts clean sentences, with its small tables of
look-alikes, the draw that makes tasks of the results, and the reward of similarity, consensus and exact matches.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="CEC-Zero: Chinese spelling correction by self-generated errors",
    paper="arXiv:2505.09082",
    claim="RL on errors that the trainer makes itself, and on the consensus of candidates, "
    "corrects spelling without labels.",
    source="two second-hand summaries agree on cosine, theta and clusters; weights, radius, R2's "
    "scale and GRPO are ours",
    size=pl.Size(
        setting="Qwen3-14B and 32B; CSCD-NS, LEMON and customer-service data; average F1 52 to 65 "
        "and 55 to 68; weights of the two rewards are not known",
        model="qwen3-14b",
    ),
    task="bool",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("我们明天再去那里。", "The moon is bright.", "他做的饭很好吃。"),
                "the sentence; what is asked of a record without `sentence`",
            ),
            pl.needs.NeededColumn(
                "sentence",
                "text",
                ("我们明天再去那里。", "The moon is bright.", "他做的饭很好吃。"),
                "a correct sentence, of which a corrupted copy is asked about",
                otherwise="the prompt is asked as it is, and the reply compared with `answer`",
            ),
        ),
        shows="part/corrupted",
        off={"draw.edits": [0, 0]},
        own={"schedule.prompts": 2, "collect.links.0.n": 2},
    ),
    use="It helps where correct text is plenty and labelled errors are not, and errors resemble "
    "those that the tables make; wrong characters that leave the meaning alone are paid for in part.",
    lacks=(
        "No confusion set of a language comes along: without `confusions` errors come from small "
        "tables, and most characters of a Chinese sentence can only get a stray mark.",
        "The benchmarks of the paper, such as CSCD-NS and LEMON, are not evaluated.",
        "Sentences are compared by their character n-grams in place of a sentence encoder; no "
        "argument names an encoder of your own.",
    ),
    grade="B",
)

Embed: TypeAlias = Callable[[Sequence[str]], np.ndarray]
LOOKALIKES = (
    "的地得",
    "在再",
    "他她它",
    "做作坐座",
    "已己巳",
    "未末",
    "象像",
    "那哪",
    "和合",
    "清青情请",
    "以已",
    "bdpq",
    "mn",
    "ec",
    "il1",
)
APART: Mapping[str, str] = {
    "好": "女子",
    "明": "日月",
    "林": "木木",
    "他": "亻也",
    "你": "亻尔",
    "w": "vv",
    "d": "cl",
    "m": "rn",
}
MARKS = "，。·*#"


Confusions: TypeAlias = Mapping[str, Sequence[str]]


def confusions_of(groups: Sequence[str]) -> dict[str, list[str]]:
    """What each character is mistaken for, from groups: `a:bc`, or `abc` of characters that are
    mistaken for each other.
    """
    known: dict[str, list[str]] = {}
    for group in groups:
        head, colon, rest = group.partition(":")
        for c in head if colon else group:
            known.setdefault(c, []).extend(x for x in (rest if colon else group) if x != c)
    return known


SMALL_CONFUSIONS = confusions_of(LOOKALIKES)


@lru_cache(maxsize=4)
def read_confusions(path: str) -> Confusions:
    """The confusion set of a file. Raises UserError where it cannot be read, or holds none."""
    if not path:
        return SMALL_CONFUSIONS
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise pl.UserError(f"confusions={path}: {error}; give a text file in UTF-8") from None
    known = confusions_of(["".join(line.replace("\t", ":").split()) for line in lines])
    if not any(known.values()):
        raise pl.UserError(f"confusions={path}: no line has two characters; write e.g. 字:子自")
    return known


def corrupt(
    sentence: str,
    rng: np.random.Generator,
    edits: tuple[int, int] = (1, 3),
    confusions: Confusions = SMALL_CONFUSIONS,
) -> str:
    """The sentence with one to three errors: a character exchanged, split, merged, or a mark put
    in.
    """
    text = sentence
    for _ in range(int(rng.integers(edits[0], edits[1] + 1))):
        ways = [(text.replace(b, a, 1)) for a, b in APART.items() if b in text]
        ways += [text.replace(a, b, 1) for a, b in APART.items() if a in text]
        ways += [
            text[:i] + other + text[i + 1 :]
            for i, c in enumerate(text)
            for other in confusions.get(c, ())
        ]
        at = int(rng.integers(len(text) + 1))
        ways += [text[:at] + str(rng.choice(list(MARKS))) + text[at:]]
        text = ways[int(rng.integers(len(ways)))]
    return text


@pl.declare(columns=(("source", str, "the sentence with its errors"),))
@pl.stage
class Corrupted:
    """Tasks with a column `sentence` become: restore it from a corrupted copy, the field `source`.
    Others stay as they are.
    """

    draw: pl.Draw = pl.Shuffled()
    edits: tuple[int, int] = (1, 3)
    instruction: str = "Correct the spelling. Answer with the sentence alone.\n"
    confusions: str = ""  # a file; "" = small tables

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        tasks, state = self.draw(ctx, key, n, state)
        return [self.corrupt_task(t, (*key, i)) for i, t in enumerate(tasks)], state

    def corrupt_task(self, task: pl.Task, key: pl.Key) -> pl.Task:
        clean = task.meta.get("sentence")
        if not isinstance(clean, str):
            return task
        confusions = read_confusions(self.confusions)
        source = corrupt(clean, pl.rng_of(("corrupt", *key)), self.edits, confusions)
        prompt = (pl.Message(role="user", content=self.instruction + source),)
        return replace(task, prompt=prompt, answer=clean, meta={**task.meta, "source": source})


def embed_characters(texts: Sequence[str]) -> np.ndarray:
    """[N, D] unit vectors of the counts of character 1- to 3-grams; no text gives 0."""
    counts = [pl.verifiers.count_character_ngrams(t, 3) for t in texts]
    columns = {k: i for i, k in enumerate(dict.fromkeys(k for c in counts for k in c))}
    x_ND = np.zeros((len(texts), max(1, len(columns))))
    for n, c in enumerate(counts):
        x_ND[n, [columns[k] for k in c]] = list(c.values())
    return x_ND / np.maximum(np.linalg.norm(x_ND, axis=1, keepdims=True), 1e-12)


def correction(text: str) -> str:
    """What a reply gives as the sentence."""
    stated = next(
        (x for x in (pl.tasks.final_answer(text), pl.stated_answer(text)) if x is not None),
        pl.verifiers.strip_thinking(text),
    )
    return pl.verifiers.normalise_characters(stated)


@pl.stage
class Restored:
    """supervised * R1 + agreed * R2 + exact * [the sentence itself]; see the module."""

    supervised: float = 0.5
    agreed: float = 0.5
    exact: float = 0.0
    theta: float = 0.8
    radius: float = 0.5  # unknown in the paper; a cosine of 0.875
    embed: Embed = embed_characters

    async def __call__(self, ctx: pl.Context | None, group: pl.Group) -> list[pl.Reward]:
        texts = [correction(pl.response_text(e)) for e in group.episodes]
        if group.task.answer is None and (self.supervised or self.exact):
            raise pl.UserError(
                f"task {group.task.id!r} has no clean sentence; use supervised=0 agreed=1, or add "
                "an answer"
            )
        gold = (
            pl.verifiers.normalise_characters(str(group.task.answer))
            if self.supervised or self.exact
            else ""
        )
        *x_ND, gold_D = self.embed([*texts, gold])
        filled = [i for i, t in enumerate(texts) if t]
        r2 = (
            dict(
                zip(
                    filled,
                    pl.verifiers.cluster_consensus(
                        [x_ND[i] for i in filled], self.radius, self.theta
                    ),
                    strict=True,
                )
            )
            if filled
            else {}
        )
        cosines = [float(x_D @ gold_D) for x_D in x_ND]
        meta = group.task.meta
        corrupted = float("source" in meta and meta["source"] != group.task.answer)
        return [
            self.reward(t, gold, c, r2.get(i, 0.0), corrupted)
            for i, (t, c) in enumerate(zip(texts, cosines, strict=True))
        ]

    def reward(
        self, text: str, gold: str, cosine: float, r2: float, corrupted: float = 0.0
    ) -> pl.Reward:
        """The part "corrupted" is the share of answers to sentences with errors of ours."""
        r1, right = (
            pl.verifiers.rescale_similarity(cosine, self.theta),
            float(bool(text) and text == gold),
        )
        total = self.supervised * r1 + self.agreed * r2 + self.exact * right
        return pl.Reward(
            total=total, parts={"similarity": r1, "consensus": r2, "corrupted": corrupted}
        )


def harmonic_scores(shared: int, made: int, wanted: int) -> dict[str, float]:
    """Precision, recall and F1; 0 where there is nothing to divide by."""
    precision, recall = shared / max(1, made), shared / max(1, wanted)
    f1 = 2 * shared / max(1, made + wanted)
    return {"precision": precision, "recall": recall, "f1": f1}


def correction_scores(triples: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    """How well texts (source, correction, gold) are corrected: precision, recall and F1 over all
    their edits, whether in the right place ("detection") or the right ones ("characters"), and
    over sentences that are right as a whole ("sentences"); "overcorrected" is the share of changed
    texts among those in which nothing was wrong.
    """
    pairs = [(pl.verifiers.edits(s, y), pl.verifiers.edits(s, gold)) for s, y, gold in triples]
    places = [tuple({(i, j) for i, j, _ in made} for made in pair) for pair in pairs]

    def over(sets: Sequence[Sequence[set[Any]]]) -> dict[str, float]:
        shared, made, wanted = (
            sum(len(f(a, b)) for a, b in sets)
            for f in (lambda a, b: a & b, lambda a, b: a, lambda a, b: b)
        )
        return harmonic_scores(shared, made, wanted)

    changed = sum(y != source for source, y, _ in triples)
    wrong = sum(gold != source for source, _, gold in triples)
    right = sum(y == gold != source for source, y, gold in triples)
    clean = [y != source for source, y, gold in triples if source == gold]
    return {
        "detection": over(places),
        "characters": over(pairs),
        "sentences": harmonic_scores(right, changed, wrong),
        **({"overcorrected": float(np.mean(clean))} if clean else {}),
    }


@pl.stage
class CorrectionExam:
    """An evaluator: `correction_scores` of greedy corrections of held-out sentences, as they are
    corrupted in training or, with a column `source`, as they are in the data.
    """

    tasks: int = 128
    corrupted: Corrupted = Corrupted()

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        held_out = [ctx.bench.tasks.task("test", i) for i in numbers]
        asked = [self.corrupted.corrupt_task(t, ("exam", t.id)) for t in held_out]
        asked = [t for t in asked if "source" in t.meta and t.answer is not None]
        sample = pl.Sample(n=1, temperature=0.0)
        groups = await asyncio.gather(
            *(
                sample(ctx, (ctx.seed, "corrections", i), pl.Group(task=t))
                for i, t in enumerate(asked)
            )
        )
        plain = pl.verifiers.normalise_characters
        triples = [
            (plain(g.task.meta["source"]), correction(pl.response_text(e)), plain(g.task.answer))
            for g in groups
            for e in g.valid
        ]
        return correction_scores(triples) if triples else {}


def build(
    supervised: float = 0.5,
    agreed: float = 0.5,
    exact: float = 0.0,
    theta: float = 0.8,
    radius: float = 0.5,
    confusions: str = "",
    measured: int = 128,
) -> pl.Recipe:
    """`confusions` is a file of look-alikes; `measured` held-out sentences are corrected in evaluations."""
    reward = Restored(supervised, agreed, exact, theta, radius)
    draw = Corrupted(confusions=confusions)
    return pl.vary(
        pl.recipe("grpo"),
        draw=draw,
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True)),
        evaluate={"correction": CorrectionExam(measured, draw)} if measured else {},
    )
