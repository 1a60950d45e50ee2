"""Budget forcing: a model that wants to answer is told to think on, so often, and then has to
answer (s1, arXiv:2501.19393).
"""

from __future__ import annotations

from typing import Any, ClassVar

from palaestra.declared import declare
from palaestra.tasks.procedural import ANSWER_PREFIX, exact_match
from palaestra.types import Act, Ask, Frame, Key, Task, stage


@declare(facts=("answer",))
@stage
class Forced:
    """A question whose thinking goes on for `rounds` more turns; the answer behind the mark `end`
    is paid if it is exact.

    Thinking stops where the model says `end`. What was sampled is never taken back, so `cue`
    answers the mark instead of taking its place: "= ?" is how the built-in model says that it does
    not know. Cue and inserted mark are nobody's tokens: they carry no gradient. Where a turn's
    tokens run out, the mark is inserted and the answer is due. A reply that ends by itself, without
    the mark, has no answer. Fact `answer`: what was answered, None where nothing was.
    """

    rounds: int = 0
    cue: str = "?\n"
    end: str = ANSWER_PREFIX
    answer_tokens: int = 8
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0

    def reset(self, task: Task, key: Key) -> Frame:
        return Frame(state=(task, 0), asks=(Ask(seat="policy", say=task.prompt, stop=(self.end,)),))

    def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        (act,), (task, n) = acts, state
        if n > self.rounds or act.finish == "eos":
            answer = act.text.removeprefix(f"\n{self.end}").strip() if n > self.rounds else None
            paid = 0.0 if answer is None else exact_match(f"{ANSWER_PREFIX}{answer}", task)
            return Frame(state=state, pay={("policy", ""): paid}, facts={"answer": answer})
        if act.finish == "stop" and n < self.rounds:
            return Frame(
                state=(task, n + 1), asks=(Ask(seat="policy", stop=(self.end,), prefix=self.cue),)
            )
        mark = "" if act.finish == "stop" else f"\n{self.end}"
        ask = Ask(seat="policy", stop=("\n",), prefix=mark, max_tokens=self.answer_tokens)
        return Frame(state=(task, self.rounds + 1), asks=(ask,))
