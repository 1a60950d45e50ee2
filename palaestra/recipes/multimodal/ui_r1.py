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
is a path in the column `image`, and `box` is in pixels of that file. A point of the model is in pixels of the
picture as the model is shown it, which its processor may have made smaller or larger (Qwen2.5-VL), or in
thousandths of its sides (`thousandths=True`); it is multiplied by screen / shown, as in the released code. A
file of more than a million pixels, or than --max-pixels, is made smaller when it is read, so there give
`screen_size`, its own width and height.

Long because points and boxes of users' screens come in several units: much of the recipe checks them and
finds the scale between screen and picture; the rest is the reward and the choice of a few hard tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Any, Literal

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
                "screen_size",
                "numbers",
                ([64, 64],),
                "width and height of the screen in the pixels of its box",
                otherwise="those of the picture, where it is not made smaller",
            ),
            pl.needs.NeededColumn(
                "scale",
                "numbers",
                ([1.0, 1.0],),
                "of the screen to what points are said in",
                otherwise="by the sizes of the screen and of the picture that the model is shown",
            ),
        ),
        shows="reward",
        off={"parts": ("format",)},  # of a reply without the form, that is right in type and point
        own={
            "taught_replies": ("<answer>[{'action': 'click', 'coordinate': [20, 40]}]</answer>",),
            "items": 4,
            "choice": "first",
            "schedule.prompts": 2,
            "collect.links.0.n": 2,
            "max_tokens": 96,
        },
    ),
    use="It helps where few screens with known boxes are at hand and the model already sees; eyes are "
    "not trained by so few.",
    lacks=(
        "The built-in model sees pictures of 32 x 32 pixels with one small layer, which is trained "
        "first; screenshots of phones are read by a vision-language model of yours, of which random "
        "small ones were tried and no trained one.",
        "Of models other than Qwen's a point is in pixels of the picture that their processor is given, or in "
        "thousandths: give `scale` where a model was taught another way to say points.",
        "The exams of the paper, AndroidControl and ScreenSpot-Pro, are not there.",
    ),
    grade="B",
)
THINK = "Reason in <think></think>, then write the action in <answer></answer>"
ANSWER = "Write the action in <answer></answer>"
FORM = (
    " as [{'action': NAME, 'coordinate': [x, y]}], where NAME is click, open_app, scroll, "
    "navigate_back or input_text."
)
UNIT = " x and y are in thousandths of the width and height of the screen."
ACTIONS = ("click", "open_app", "scroll", "navigate_back", "input_text")
PARTS = ("type", "point", "format")
MOST_PIXELS = 1_000_000  # of a picture of a file, without --max-pixels
CHECKED = 64  # problems that are looked at before the first step


@pl.stage
class ActionReward:
    """UI-R1's reward: the sum of `parts`; the others are told beside. An answer is right where its
    action and its point are.

    Tasks have in their `meta` the `action`, the `box` in pixels of the screen, and the `scale` of
    the screen to what points are said in. Without `scale` it is that of the screen, `screen_size` or
    the picture's own, to the picture as the model is shown it; (1, 1) where there is no picture.

    Args:
        parts: of the reward that count.
        thinking: whether an answer has the form with a thought.
        thousandths: points are in thousandths of the screen's width and height.
    """

    parts: tuple[str, ...] = PARTS
    thinking: bool = True
    thousandths: bool = False

    def __post_init__(self) -> None:
        if not self.parts or not set(self.parts) <= set(PARTS):
            raise pl.UserError(f"parts are some of {', '.join(PARTS)}, not {self.parts}")

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, float(len(self.parts))

    async def check_start(self, ctx: pl.Context) -> None:
        """Looks at the first problems. Raises UserError for one whose reward could not be told."""
        for i in pl.run.chosen_tasks(ctx.bench, CHECKED, "train"):
            self.scale_of(ctx.bench.tasks.task("train", i), ctx)

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward]:
        scale = self.scale_of(group.task, ctx)
        return [self.judge(pl.response_text(e), group.task, scale) for e in group.episodes]

    def scale_of(self, task: pl.Task, ctx: pl.Context) -> tuple[float, float]:
        """Pixels of the screen for one unit of what the model says, across and down."""
        check_action(task)
        if given := task.meta.get("scale"):
            return read_size(task, "scale", given)
        picture = next((p for m in task.prompt for p in m.pictures), None)
        size = task.meta.get("screen_size")
        pointless = task.meta["action"] != "click"
        if pointless or (picture is None and not (size and self.thousandths)):
            return 1.0, 1.0
        if size:
            width, height = read_size(task, "screen_size", size)
        else:
            assert picture is not None
            height, width = picture.shape[:2]
            check_whole(task, width, height, getattr(ctx.bench.tasks, "max_pixels", 0))
        if self.thousandths:
            return width / 1000, height / 1000
        assert picture is not None
        across, down = shown_size(ctx, picture)
        return width / across, height / down

    def judge(
        self, text: str, task: pl.Task, scale: tuple[float, float] | None = None
    ) -> pl.Reward:
        check_action(task)
        action, box = task.meta["action"], task.meta["box"]
        used: tuple[float, float] = scale or task.meta.get("scale") or (1.0, 1.0)
        parts = pl.toys.action_parts(text, action, box, used, thinking=self.thinking)
        total = sum(parts[name] for name in self.parts)
        return pl.Reward(total=total, parts=parts, solved=bool(parts["point"]))


def check_action(task: pl.Task) -> None:
    """Raises UserError for a problem that is no action on a screen, or whose action or box no answer
    can match.
    """
    if not {"action", "box"} <= task.meta.keys():
        raise pl.UserError(
            f"task {task.id!r} is no action on a screen: it has no `action` and `box`; "
            "the task `screen` has them"
        )
    action, box = task.meta["action"], task.meta["box"]
    if action not in ACTIONS:
        raise pl.UserError(
            f"task {task.id!r}: the action is {action!r}, which the model is not told of; use one of "
            f"{', '.join(ACTIONS)}"
        )
    if action == "click" and not (is_numbers(box, 4) and box[0] <= box[2] and box[1] <= box[3]):
        raise pl.UserError(
            f"task {task.id!r}: the box is {box!r}; write [left, top, right, bottom], in pixels of the "
            "screen"
        )
    if action == "click" and max(box) <= 1:
        raise pl.UserError(
            f"task {task.id!r}: the box is {box!r}, which are shares of the screen; multiply them by its "
            "width and height in pixels"
        )


def is_numbers(given: Any, n: int) -> bool:
    """Whether it is a list of n numbers."""
    some = isinstance(given, list | tuple) and len(given) == n
    return some and all(isinstance(x, int | float) and not isinstance(x, bool) for x in given)


def read_size(task: pl.Task, column: str, given: Any) -> tuple[float, float]:
    """Two numbers above 0. Raises UserError for anything else."""
    if not is_numbers(given, 2) or min(given) <= 0:
        raise pl.UserError(
            f"task {task.id!r}: {column} is {given!r}; write two numbers above 0, across and down"
        )
    return float(given[0]), float(given[1])


def check_whole(task: pl.Task, width: int, height: int, most: int) -> None:
    """Raises UserError where a picture was, or may have been, made smaller when it was read, so that
    its box is in other pixels.
    """
    box = task.meta["box"]
    beyond = is_numbers(box, 4) and (box[2] > width or box[3] > height)
    if beyond or (width + 1) * (height + 1) > (most or MOST_PIXELS):
        why = f"the box {list(box)} reaches beyond it" if beyond else "it may have been larger"
        raise pl.UserError(
            f"task {task.id!r}: the picture has {width} x {height} pixels, and {why}; give the screen's own "
            "width and height in the column screen_size"
        )


def shown_size(ctx: pl.Context, picture: Any) -> tuple[int, int]:
    """Width and height of a picture as the policy is shown it: of what its processor makes, where
    positions are grids; else as it is.
    """
    height, width = picture.shape[:2]
    sight: Any = ctx.model("policy").sight
    if sight is None or not sight.has_grid:
        return width, height
    rows, columns = sight.grid(picture)
    vision = sight.causal.config.vision_config
    side = int(vision.patch_size) * int(vision.spatial_merge_size)
    return columns * side, rows * side


@pl.stage
class FewScreens:
    """`items` tasks, each once an epoch in a fresh order. "hard": those of the first `pool` that a
    greedy answer of the start gets wrong, the kinds of action in turn, and filled up with others
    where they are too few; "first": the first ones.
    """

    items: int = 136
    choice: Literal["hard", "first"] = "hard"
    pool: int = 408
    thousandths: bool = False  # points are said so, see `ActionReward`

    def __post_init__(self) -> None:
        if not 1 <= self.items <= self.pool:
            raise pl.UserError(f"{self.items} items cannot be chosen from {self.pool} tasks")

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        if "chosen" not in state:
            state = {**state, "chosen": await self._choose(ctx, key)}
        return pl.curriculum.draw_in_epochs(ctx, state["chosen"], n, state)

    async def _choose(self, ctx: pl.Context, key: pl.Key) -> list[int]:
        first = pl.curriculum.first_number(ctx)
        if self.choice == "first":
            return [first + i for i in pl.run.chosen_tasks(ctx.bench, self.items, "train")]
        pool = [first + i for i in pl.run.chosen_tasks(ctx.bench, self.pool, "train")]
        tasks = [ctx.bench.tasks.task("train", i) for i in pool]
        if ctx.bench.reward is None:  # a file of actions has no reward of its own
            reward = ActionReward(thousandths=self.thousandths)
            ctx = ctx.with_bench(replace(ctx.bench, reward=reward))
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
    thousandths: bool = False,
) -> pl.Recipe:
    """`items` = 0 draws from all tasks. `parts` are those of the reward that count. `thousandths`:
    the model says points in thousandths of the screen's width and height, not in pixels.
    """
    term = (pl.credit.AdaptiveLength(full=float(len(parts))),) if length else ()
    loss = pl.Clipped(reduce="sequences")
    reward = ActionReward(parts, thinking, thousandths)
    return pl.vary(
        pl.recipe("grpo"),
        draw=FewScreens(items, choice, thousandths=thousandths) if items else pl.Shuffled(),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward)),
        credit=pl.chain(*term, pl.Center("group"), pl.Scale("group", eps=1e-4)),
        objective=loss + kl * pl.KL("k3") if kl else loss,
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
        instruction=(THINK if thinking else ANSWER) + FORM + (UNIT if thousandths else ""),
        heads=("eyes",),
    )
