"""RLPGR: what an answer about a molecule earns, in three layers behind a gate."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

import palaestra as pl
from palaestra.recipes.domains.mppreasoner import claims, released

Checks: TypeAlias = Literal["sound", "strict", "released"]
MALFORMED, WRONG = -1.5, -1.0
TERMS: tuple[str, ...] = ("answer", "format", "consistent", "compared", "principle", "structure")
SPOKEN = re.compile(
    r"(?P<thought>.*)<answer>\s*(?P<said>true|false)\s*</answer>\s*", re.DOTALL | re.IGNORECASE
)
TAG = re.compile(r"</?(?:think|answer)>", re.IGNORECASE)
WEIGHING = re.compile(
    r"\b(?:weighing|balancing|overall|dominant|outweighs?|on balance|considering|based on the above|therefore|"
    r"in conclusion|ultimately|net effect|consequently|taking all (?:of this )?into account)\b",
    re.IGNORECASE,
)
VERDICTS = re.compile(
    r"\b(?P<yes>supports the property|has the property|(?:likely|predicted to be|judged as|judged) true)\b|"
    r"\b(?P<no>lacks the property|(?:likely|predicted to be|judged as|judged) false)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class MoleculeAnswer:
    """What an answer says: its chain of thought, None where there is none, and True or False, None where that
    cannot be read.
    """

    thought: str | None
    verdict: bool | None

    @property
    def readable(self) -> bool:
        return self.thought is not None and self.verdict is not None


def read_answer(text: str) -> MoleculeAnswer:
    """<think>...</think><answer>True|False</answer> and nothing else, each tag once, with a thought that is not
    empty. A <think> that the prompt ended with may be missing.
    """
    text = text if re.match(r"\s*<think>", text, re.IGNORECASE) else f"<think>{text}"
    tags = [m.group().casefold() for m in TAG.finditer(text)]
    if tags != ["<think>", "</think>", "<answer>", "</answer>"]:
        return MoleculeAnswer(None, None)
    thought, _, rest = re.split(r"(</think>)", text, maxsplit=1, flags=re.IGNORECASE)
    thought = re.sub(r"^\s*<think>", "", thought, flags=re.IGNORECASE).strip()
    spoken = SPOKEN.fullmatch(rest)
    verdict = (
        spoken["said"].casefold() == "true" if spoken and not spoken["thought"].strip() else None
    )
    return MoleculeAnswer(thought or None, verdict)


def verdict(thought: str) -> bool | None:
    """Which property a chain of thought concludes: the last phrase that says so; None = none does."""
    last = None
    for sentence in claims.SENTENCE.split(thought):
        for m in VERDICTS.finditer(sentence):
            last = (m["yes"] is not None) != claims.is_negated(sentence, m.start())
    return last


def sound_terms(
    answer: MoleculeAnswer, smiles: str, neighbours: Sequence[str], *, every: bool = False
) -> dict[str, float]:
    """The terms of the layers of reasoning and chemistry, by what is said; `every`: one wrong claim is enough."""
    thought = answer.thought or ""
    of_principles = claims.principle_claims(thought, smiles, neighbours)
    of_structure = claims.structure_claims(thought, smiles, neighbours)
    return {
        "consistent": float(bool(WEIGHING.search(thought)) and verdict(thought) is answer.verdict),
        "compared": float(bool({*neighbours} & claims.tokens(thought))),
        "principle": float(claims.is_sound(of_principles, every=every)),
        "structure": float(claims.is_sound(of_structure, positive=True, every=every)),
    }


def released_terms(
    answer: MoleculeAnswer, smiles: str, neighbours: Sequence[str]
) -> dict[str, float]:
    """The same by the released checks."""
    thought = answer.thought or ""
    return {
        "consistent": float(released.is_consistent(thought, bool(answer.verdict))),
        "compared": float(released.quotes(thought, tuple(neighbours))),
        "principle": float(released.names_principle(thought, smiles)),
        "structure": float(released.names_structure(thought, smiles)),
    }


def confirmed(text: str, smiles: str, neighbours: Sequence[str]) -> tuple[int, int]:
    """Claims about the molecule that RDKit confirms, and all claims, of the thought where there is one."""
    thought = read_answer(text).thought or text
    every = [
        *claims.principle_claims(thought, smiles, neighbours),
        *claims.structure_claims(thought, smiles, neighbours),
    ]
    return sum(c.true for c in every), len(every)


def neighbours_of(task: pl.Task) -> tuple[str, ...]:
    """The molecules that the task's prompt shows."""
    return tuple(map(str, task.meta.get("neighbours") or ()))


@pl.stage
class PrincipleReward:
    """RLPGR's reward of an answer about the molecule in the task's column `smiles`, whose prompt shows the
    molecules in `neighbours`; the answer is "True" or "False".

    Args:
        reasoning: what consistency and comparison are worth each; 0 = the layer is off.
        chemistry: what a confirmed principle and a confirmed structure are worth each; 0 = the layer is off.
        gated: a wrong or malformed answer earns none of the layers, but -1 and -1.5; else the terms are added
            whatever the answer is, as in the paper's first code.
        checks: "sound" reads claims and their denials, and right ones must outnumber wrong ones; of "strict" none
            may be wrong; "released" is the authors' code, by substrings.
    """

    reasoning: float = 0.25
    chemistry: float = 0.25
    gated: bool = True
    checks: Checks = "sound"

    def __post_init__(self) -> None:
        pl.check_bounds("reasoning", self.reasoning, least=0)
        pl.check_bounds("chemistry", self.chemistry, least=0)

    @property
    def bounds(self) -> tuple[float, float]:
        least = MALFORMED if self.gated else 0.0
        return least, 2 + 2 * self.reasoning + 2 * self.chemistry

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward]:
        return [self.judge(pl.response_text(e), group.task) for e in group.episodes]

    def judge(self, text: str, task: pl.Task) -> pl.Reward:
        smiles, gold = pl.tasks.molecule_of(task), str(task.answer)
        if gold not in ("True", "False"):
            raise pl.UserError(f"task {task.id!r}: its answer is {gold[:40]!r}, not True or False")
        as_released = self.checks == "released"
        answer = (
            MoleculeAnswer(*released.thought_and_answer(text)) if as_released else read_answer(text)
        )
        right = answer.verdict is not None and str(answer.verdict) == gold
        terms = dict.fromkeys(TERMS, 0.0)
        total = MALFORMED if not answer.readable else WRONG
        if answer.readable and (right or not self.gated):
            others = neighbours_of(task)
            terms |= (
                released_terms(answer, smiles, others)
                if as_released
                else sound_terms(answer, smiles, others, every=self.checks == "strict")
            )
        terms["answer"], terms["format"] = float(right), float(answer.readable)
        terms["chemistry"] = self.chemistry * (terms["principle"] + terms["structure"])
        if not self.gated or (right and answer.readable):
            total = terms["answer"] + terms["format"] + terms["chemistry"]
            total += self.reasoning * (terms["consistent"] + terms["compared"])
        return pl.Reward(total=total, parts=terms, solved=right and answer.readable)


@pl.stage
class ChemistryShare:
    """Leaves the column "chemistry": what the layer of principles and structure pays an answer."""

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        paid = [
            0.0 if e.reward is None else e.reward.parts.get("chemistry", 0.0)
            for e in table.episodes
        ]
        table.track("chemistry", pl.Values(level="episode", x_N=np.array(paid)))
        return x


@pl.stage
class CheckTrajectories:
    """Scores demonstrations as answers are scored. One that the gate refuses, as its answer is wrong or cannot
    be read, is not imitated.
    """

    reward: PrincipleReward

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        episodes = list[Any]()
        for e in group.episodes:
            reward = self.reward.judge(pl.response_text(e), group.task)
            episodes.append(replace(e, reward=reward, muted=e.muted or not reward.solved))
        return replace(group, episodes=tuple(episodes))
