"""UI-R1: which action on a screen, and where, by rules that anyone can check.

One step on a screenshot, <think>...</think><answer>action and point</answer>; three rewards of 0 or 1
are added (arXiv:2503.21620; lll6gg/UI-R1, grpo_trainer.py):

    r = type + point + format,    A_i = (r_i - mean r) / (std r + 1e-4), ddof 1,    clip 0.2, 0.04 KL (k3)

`point` needs the right type, and of a click that its point lies in the widget's box. The loss is the
mean over each answer's tokens, then over answers. The training set is small: `items` tasks that the
start gets wrong, the kinds of action in turn (the paper's third criterion, that the boxes are right,
holds for all of ours); "first" takes the first ones instead. What the choice samples is in the budget.

`length` is UI-R1-E's first stage: longer answers are paid less where a group is mostly right. Its
second is the same RL without thoughts: `thinking=False`, on a task whose answers have none.

The policy is a vision-language model, or a text model with eyes of its own that was trained with
them; another text model gets untrained eyes, and so does its reference. In a file of yours the screen
is a path in the column `image`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="UI-R1: GUI action prediction",
    paper="arXiv:2503.21620",
    claim="RL with rules on 136 chosen screens predicts actions on screens of another kind better "
    "than imitation of the same ones.",
    source="released code (lll6gg/UI-R1: rewards, length term, scripts, trainer defaults) and the "
    "abstract; how items are chosen from memory",
    size=pl.Size(
        setting="Qwen2.5-VL-3B, 136 items of AndroidControl and ScreenSpot, G = 8, lr 1e-6, beta 0.04, "
        "8 epochs, 8 GPUs",
        model="qwen2.5-3b",
        prompts=16,
        samples=8,
        lr=1e-6,
    ),
    task="screen",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "action", "text", ("click", "scroll", "open_app"), "the action that is right"
            ),
            pl.needs.NeededColumn(
                "box",
                "numbers",
                ([10, 20, 40, 60], [0, 0, 16, 16], [5, 5, 30, 12]),
                "left, top, right and bottom of the widget, in pixels of the screen",
            ),
            pl.needs.NeededColumn(
                "scale",
                "numbers",
                ([1.0, 1.0],),
                "of the screen to what points are said in",
                otherwise="1, 1",
            ),
        ),
        own={"items": 4, "schedule.prompts": 2, "collect.links.0.n": 2},
    ),
    use="It helps where few screens with known boxes are at hand and the model already sees; eyes are "
    "not trained by so few.",
    lacks=(
        "The built-in model sees pictures of 32 x 32 pixels with one small layer, which is trained "
        "first; screenshots of phones are read by a vision-language model of yours, of which random "
        "small ones were tried and no trained one.",
        "Boxes are not moved where `--max-pixels`, or the limit of a million pixels, makes a picture "
        "smaller, or where the model's processor does: give the ratio in `scale`.",
        "The exams of the paper, AndroidControl and ScreenSpot-Pro, are not there.",
    ),
    grade="C",
)
THINK = "Reason in <think></think>, then write the action in <answer></answer>"
ANSWER = "Write the action in <answer></answer>"
FORM = (
    " as [{'action': NAME, 'coordinate': [x, y]}], where NAME is click, open_app, scroll, "
    "navigate_back or input_text."
)
PARTS = ("type", "point", "format")


@pl.stage
class ActionReward:
    """UI-R1's reward: the sum of `parts`; the others are told beside. An answer is right where its
    action and its point are.

    Tasks have in their `meta` the `action`, the `box` in pixels of the screen, and the `scale` of
    the screen to what points are said in, (1, 1) where there is none.
    """

    parts: tuple[str, ...] = PARTS
    thinking: bool = True

    def __post_init__(self) -> None:
        if not self.parts or not set(self.parts) <= set(PARTS):
            raise pl.UserError(f"parts are some of {', '.join(PARTS)}, not {self.parts}")

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, float(len(self.parts))

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward]:
        return [self.judge(pl.response_text(e), group.task) for e in group.episodes]

    def judge(self, text: str, task: pl.Task) -> pl.Reward:
        if not {"action", "box"} <= task.meta.keys():
            raise pl.UserError(
                f"task {task.id!r} is no action on a screen: it has no `action` and `box`; "
                "the task `screen` has them"
            )
        action, box = task.meta["action"], task.meta["box"]
        scale = task.meta.get("scale") or (1.0, 1.0)
        parts = pl.toys.action_parts(text, action, box, scale, thinking=self.thinking)
        total = sum(parts[name] for name in self.parts)
        return pl.Reward(total=total, parts=parts, solved=bool(parts["point"]))


@pl.stage
class FewScreens:
    """`items` tasks, each once an epoch in a fresh order. "hard": those of the first `pool` that a
    greedy answer of the start gets wrong, the kinds of action in turn, and filled up with others
    where they are too few; "first": the first ones.
    """

    items: int = 136
    choice: Literal["hard", "first"] = "hard"
    pool: int = 408

    def __post_init__(self) -> None:
        if not 1 <= self.items <= self.pool:
            raise pl.UserError(f"{self.items} items cannot be chosen from {self.pool} tasks")

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        if "chosen" not in state:
            state = {**state, "chosen": await self._choose(ctx, key), "cursor": 0}
        chosen, at = state["chosen"], state["cursor"]
        places = [divmod(at + i, len(chosen)) for i in range(n)]
        order = {e: pl.rng_of((ctx.seed, "epoch", e)).permutation(len(chosen)) for e, _ in places}
        found = [ctx.bench.tasks.task("train", chosen[int(order[e][i])]) for e, i in places]
        return found, {**state, "cursor": at + n}

    async def _choose(self, ctx: pl.Context, key: pl.Key) -> list[int]:
        first = pl.curriculum.first_number(ctx)
        if self.choice == "first":
            return [first + i for i in pl.run.chosen_tasks(ctx.bench, self.items, "train")]
        pool = [first + i for i in pl.run.chosen_tasks(ctx.bench, self.pool, "train")]
        tasks = [ctx.bench.tasks.task("train", i) for i in pool]
        if ctx.bench.reward is None:  # a file of actions has no reward of its own
            ctx = ctx.with_bench(replace(ctx.bench, reward=ActionReward()))
        rate_N = await pl.pass_rates(ctx, key, tasks, pl.Sample(n=1, temperature=0.0))
        kinds = [str(t.meta.get("action")) for t in tasks]
        return [first + i for i in choose_by_kind(kinds, rate_N, self.items)]


def choose_by_kind(kinds: Sequence[str], rate_N: np.ndarray, items: int) -> list[int]:
    """Which of N tasks: those never solved, the kinds in turn; then the others in order."""
    wrong = defaultdict[str, list[int]](list)
    for i in np.flatnonzero(rate_N == 0).tolist():
        wrong[kinds[i]].append(i)
    turns = chain.from_iterable(zip_longest(*(wrong[k] for k in sorted(wrong))))
    others = np.flatnonzero(rate_N != 0).tolist()
    return [*(i for i in turns if i is not None), *others][:items]


def build(
    kl: float = 0.04,
    items: int = 136,
    choice: Literal["hard", "first"] = "hard",
    parts: tuple[str, ...] = PARTS,
    thinking: bool = True,
    length: bool = False,
) -> pl.Recipe:
    """`items` = 0 draws from all tasks. `parts` are those of the reward that count."""
    term = (pl.credit.AdaptiveLength(full=float(len(parts))),) if length else ()
    loss = pl.Clipped(reduce="sequences")
    return pl.vary(
        pl.recipe("grpo"),
        draw=FewScreens(items, choice) if items else pl.Shuffled(),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=ActionReward(parts, thinking))),
        credit=pl.chain(*term, pl.Center("group"), pl.Scale("group", eps=1e-4)),
        objective=loss + kl * pl.KL("k3") if kl else loss,
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
        instruction=(THINK if thinking else ANSWER) + FORM,
        heads=("eyes",),
    )
