"""The reward of agents that search: how much of the answer is right, if the form was kept."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.rewards.verify import response_text
from palaestra.types import Episode, Group, Key, Task, stage
from palaestra.verifiers.answers.boxes import boxed_answer
from palaestra.verifiers.answers.short import answer_f1

if TYPE_CHECKING:
    from palaestra.context import Context

# what a model is told whose form has thoughts
THINK_FIRST = "Begin every message with your reasoning in <think></think>."
THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


@stage
class AnswerF1:
    """A link after `Score`. With f the F1 of the words of the fact "answer" and of the task's
    answer, the best of several:

        f where the form was kept and f > 0,    `floor` where f = 0,    0 where the form is broken.

    The form is kept where the episode answered and no turn was "malformed". With tools, whose world
    has no fact "answer", the last message without its thought is the answer, and calls that could
    not be read break the form. An episode without either keeps its reward, and whether an episode
    is solved stays as it was.

    Args:
        floor: of a wrong answer in the right form: 0.1 in ReSearch (arXiv:2503.19470), 0 in
            ASearcher (arXiv:2508.07976).
        think: every turn must begin with a thought in <think>...</think>.
        boxed: the answer must stand in \\boxed{}, and what stands there is read.
    """

    floor: float = 0.0
    think: bool = False
    boxed: bool = False

    async def __call__(self, ctx: Context | None, key: Key, group: Group) -> Group:
        return replace(group, episodes=tuple(self._paid(e, group.task) for e in group.episodes))

    def _paid(self, e: Episode, task: Task) -> Episode:
        uses_tools = "tool_calls" in e.facts and task.answer is not None
        if not e.ok or e.reward is None or not (uses_tools or "answer" in e.facts):
            return e
        answer = e.facts["answer"] if "answer" in e.facts else last_answer(e)
        boxed = None if answer is None else boxed_answer(answer)
        read = boxed if self.boxed or boxed is not None else answer
        thinks = not self.think or begins_with_thoughts(e)
        formed = read is not None and not self._malformed(e) and thinks
        golds = task.answer if isinstance(task.answer, list | tuple) else [task.answer]
        f1 = answer_f1(read or "", [str(g) for g in golds])
        total = (f1 or self.floor) if formed else 0.0
        parts = {**e.reward.parts, "right": float(e.solved), "formed": float(formed), "f1": f1}
        return replace(e, reward=replace(e.reward, total=total, parts=parts, solved=e.solved))

    def _malformed(self, e: Episode) -> bool:
        return bool(e.facts.get("malformed") or e.facts.get("tool_malformed"))


def begins_with_thoughts(e: Episode) -> bool:
    """Whether every turn of the policy begins with <think>."""
    return all(t.lstrip().startswith("<think>") for t in turns_of(e))


def turns_of(e: Episode) -> list[str]:
    """What was said in each turn of the policy, with what the chat template opened it with."""
    texts = dict[tuple[int, int], str]()
    for r, row in enumerate(e.rows):
        sampled_turns = {s.turn for s in row.segments if s.logp is not None}
        for s in row.segments:
            if s.replies and s.turn in sampled_turns:
                texts[r, s.turn] = texts.get((r, s.turn), "") + s.text
    return list(texts.values())


def last_answer(e: Episode) -> str | None:
    """The last message of an episode with tools, without its thought; None where it has not
    answered.
    """
    text = THOUGHT.sub("", response_text(e)).strip()
    return text or None
