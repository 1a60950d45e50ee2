"""Reasoning in prompt blocks: a frozen model solves a question block by block, and grades what it has
after each, so that a small navigator can choose the next block (arXiv:2505.14140).

    reason       one further step
    decompose    what remains, in sub-tasks; these are solved and put together
    debate       several plans; they are compared, and the best is gone on with
    refine       the last step, reviewed and written anew
    terminate    the final answer

The state is seven grades 1..3 that the model gives its own partial solution; as numbers they are
grade - 2. Before the first step there is nothing to refine or to debate, so these are not legal;
where the limit of blocks is reached, or nothing more could be said, `terminate` alone is.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from palaestra.control.networks import LOGIT_OF_ILLEGAL, ActionValues, load_policy
from palaestra.errors import UserError
from palaestra.rewards.verify import response_text
from palaestra.types import Episode, Message, stage, value_class
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.again import behind_question

BLOCKS = ("reason", "decompose", "debate", "refine", "terminate")
REASON, DECOMPOSE, DEBATE, REFINE, TERMINATE = range(len(BLOCKS))
GRADED = (
    "modelling",
    "clarity",
    "calculation",
    "complexity",
    "alternatives",
    "completeness",
    "consistency",
)
FAIR = 2  # the grade of an item that could not be read

# (prompt, name of the random stream, temperature) to a reply; None = the prompt left no room for one
AskModel: TypeAlias = Callable[[tuple[Message, ...], str, float], Awaitable[Episode | None]]


@stage
class BlockPrompts:
    """What stands behind the question and the solution so far; `so_far` is put above that.

    `decompose` and `debate` are two requests each: sub-tasks or plans, then what is made of them,
    with {ideas} in the place of what was said first.
    """

    so_far: str = "\nSolution so far:\n"
    reason: str = "\nWrite only the next step of the solution."
    decompose: str = "\nList the sub-tasks that remain. Do not solve them."
    merge: str = "\nSub-tasks:\n{ideas}\nSolve each, and put the results together."
    debate: str = "\nPropose one plan for what remains."
    compare: str = "\nPlans:\n{ideas}\nCompare them, and write the next step by the best one."
    refine: str = "\nThe last step may be wrong. Review it, and write only that step, corrected."
    terminate: str = "\nGive the final answer."
    grade: str = (
        "\nGrade this solution. Behind each item write 1 (bad), 2 (fair) or 3 (good):\n"
        + "\n".join(f"{item}:" for item in GRADED)
    )


@value_class
class PartialSolution:
    """A solution after some blocks: its steps, the blocks that were run, and its grades.

    Args:
        grades: 1..3, in the order of `GRADED`.
        stuck: the last block said nothing, or left no room.
    """

    steps: tuple[str, ...] = ()
    blocks: tuple[int, ...] = ()
    grades: tuple[int, ...] = (FAIR,) * len(GRADED)
    stuck: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.steps)


@stage
class BlockSpaces:
    """What a navigator observes and does: seven grades, five blocks."""

    observation: int = len(GRADED)
    actions: int = len(BLOCKS)


@dataclass
class BlockRunner:
    """Solves one question in blocks.

    Args:
        prompt: the question.
        ask: what replies.
        limit: blocks, the last one included.
        plans: of a debate.
        grades: whether the model grades; without, all grades are 2 and nothing is asked for them.
        stream: of the random streams: equal blocks of another stream say something else.
        replies: what was said, by prompt and name: runners of one question that share them ask once.
    """

    prompt: tuple[Message, ...]
    ask: AskModel
    prompts: BlockPrompts = BlockPrompts()
    limit: int = 6
    plans: int = 2
    temperature: float = 1.0
    grades: bool = True
    stream: int = 0
    replies: dict[tuple[tuple[Message, ...], str], Episode | None] = field(
        default_factory=dict[tuple[tuple[Message, ...], str], Episode | None], repr=False
    )
    calls: int = 0  # requests, those that `replies` answers included
    graded: int = 0  # items that were to be graded
    unread: int = 0  # of these, whose grade could not be read and is 2
    last: Episode | None = field(default=None, repr=False)  # the last reply

    async def start(self) -> PartialSolution:
        """Before the first block, graded."""
        return await self._grade(PartialSolution())

    def legal(self, state: PartialSolution) -> np.ndarray:
        """[K] which blocks may come next."""
        legal_K = np.ones(len(BLOCKS), bool)
        if not state.steps:
            legal_K[[DEBATE, REFINE]] = False
        if state.stuck or len(state.blocks) >= self.limit - 1:
            legal_K[:] = False
            legal_K[TERMINATE] = True
        return legal_K

    async def run(self, state: PartialSolution, block: int) -> PartialSolution:
        """The solution after a block other than `terminate`, graded."""
        begun = replace(state, blocks=(*state.blocks, block))
        if block == DECOMPOSE:
            text = await self._twice(begun, self.prompts.decompose, self.prompts.merge, 1)
        elif block == DEBATE:
            text = await self._twice(begun, self.prompts.debate, self.prompts.compare, self.plans)
        else:
            instruction = self.prompts.refine if block == REFINE else self.prompts.reason
            text = await self._say(begun, instruction, "step")
        if not text:
            return replace(begun, stuck=True)
        kept = state.steps[:-1] if block == REFINE else state.steps
        return await self._grade(replace(begun, steps=(*kept, text)))

    async def finish(self, state: PartialSolution) -> Episode | None:
        """The reply with the final answer. Where the solution leaves no room for it, only the last
        step is shown, and then none.
        """
        ended = replace(state, blocks=(*state.blocks, TERMINATE))
        for steps in dict.fromkeys((state.steps, state.steps[-1:], ())):
            shorter = replace(ended, steps=steps)
            episode = await self._reply(shorter, self.prompts.terminate, "end", self.temperature)
            if episode is not None:
                return episode
        return None

    async def _twice(self, state: PartialSolution, first: str, then: str, n: int) -> str:
        """What is said about `n` ideas that were said first."""
        ideas = [x for i in range(n) if (x := await self._say(state, first, f"idea {i}"))]
        return await self._say(state, then.format(ideas="\n".join(ideas)), "step") if ideas else ""

    async def _say(self, state: PartialSolution, instruction: str, name: str) -> str:
        episode = await self._reply(state, instruction, name, self.temperature)
        return strip_thinking(response_text(episode)).strip() if episode else ""

    async def _grade(self, state: PartialSolution) -> PartialSolution:
        """With the grades that the model gives it at temperature 0."""
        if not self.grades:
            return state
        episode = await self._reply(state, self.prompts.grade, "grade", 0.0)
        grades, unread = read_grades(strip_thinking(response_text(episode)) if episode else "")
        self.graded, self.unread = self.graded + len(GRADED), self.unread + unread
        return replace(state, grades=grades)

    async def _reply(
        self, state: PartialSolution, instruction: str, name: str, temperature: float
    ) -> Episode | None:
        above = self.prompts.so_far + state.text if state.steps else ""
        prompt = behind_question(self.prompt, above + instruction)
        path = " ".join(BLOCKS[b] for b in state.blocks)
        at = (prompt, f"{self.stream} {path} {name}")
        self.calls += 1
        if at not in self.replies:
            self.replies[at] = await self.ask(*at, temperature)
        self.last = self.replies[at] or self.last
        return self.replies[at]


def read_grades(text: str) -> tuple[tuple[int, ...], int]:
    """The seven grades in a reply, and how many could not be read, which are 2.

    A grade is the number 1, 2 or 3 behind the item's name in its line; a reply that names no item
    and has seven such numbers gives them in order.
    """
    named = [_grade_of(item, text) for item in GRADED]
    if not any(named):
        alone = [int(x) for x in re.findall(r"(?<![\d.])[123](?![\d.]\d|\d)", text)]
        run = re.fullmatch(r"\D*([123]{7})\D*", text)
        alone = [int(x) for x in run[1]] if run else alone
        named = list(alone) if len(alone) == len(GRADED) else named
    return tuple(g or FAIR for g in named), sum(g is None for g in named)


def _grade_of(item: str, text: str) -> int | None:
    """The number behind an item's name, None where there is none from 1 to 3."""
    match = re.search(rf"\b{item}\b[^\d\n]*(\d+(?:\.\d+)?)", text, re.IGNORECASE)
    return int(match[1]) if match and match[1] in ("1", "2", "3") else None


def state_of_grades(grades: Sequence[int]) -> np.ndarray:
    """[7] grade - 2, in float32."""
    return np.array(grades, np.float32) - FAIR


def choose_block(values: ActionValues, grades: Sequence[int], legal_K: np.ndarray) -> int:
    """The legal block of the highest value, the first of equals."""
    with torch.no_grad():
        values_K = values(torch.from_numpy(state_of_grades(grades))).numpy()
    return int(np.where(legal_K, values_K, LOGIT_OF_ILLEGAL).argmax())


def load_navigator(folder: Path | str) -> ActionValues:
    """A navigator as a run of rlot kept it. Raises UserError for a folder that holds none."""
    policy = load_policy(folder)
    if not isinstance(policy, ActionValues) or (policy.observation, policy.actions) != (
        len(GRADED),
        len(BLOCKS),
    ):
        raise UserError(
            f"{folder} holds a policy, but none that chooses between {len(BLOCKS)} blocks by "
            f"{len(GRADED)} grades; give the folder `navigator` of a run of `palaestra train rlot`"
        )
    return policy
