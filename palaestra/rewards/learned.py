"""Rewards from heads of a model: a trained reward model, several labels of one, or an ensemble and
its doubts.

    Score(reward=Learned("reward"))                                             # after BradleyTerry()
    Score(reward=Learned("reward", heads=("polite", "safe"), squash=True))      # after Regression(...)
    Score(reward=Ensemble("reward", heads=("prior0", "prior1"), combine=lowest))

One forward pass scores all groups of a step. The model shares the policy's tokenizer, but that of
`RewardModel`, which reads texts: `--reward FOLDER`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch

from palaestra.chat.template import REFUSALS, render
from palaestra.errors import Fault, UserError
from palaestra.models.eyes import picture_columns
from palaestra.models.forward import forward
from palaestra.models.load import find, load
from palaestra.models.model import Model
from palaestra.models.score import score_texts as read_heads
from palaestra.models.vocabulary import check_vocabulary
from palaestra.objective.reward_model import LEAST_SD
from palaestra.pictures import FIRST_PLACE
from palaestra.rewards.together import judge_together
from palaestra.rewards.verify import response_text
from palaestra.types import Batch, Episode, Group, Reward, Row, Task, stage

if TYPE_CHECKING:
    from palaestra.context import Context, Models

PREFIXES = "value"  # the head of a model that was trained on beginnings of answers
Combine: TypeAlias = Callable[[np.ndarray], np.ndarray]  # [N, heads] to [N]


@stage
class Learned:
    """sum_h w_h * (s_h - shift) * scale, of the heads at the end of an episode's last row; weights
    default to 1 / heads.

    `squash` = sigmoid of every head. Parts: MODEL/HEAD.
    """

    model: str = "reward"
    heads: tuple[str, ...] = ("score",)
    weights: tuple[float, ...] = ()
    squash: bool = False
    shift: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.weights and len(self.weights) != len(self.heads):
            raise UserError(
                f"{len(self.weights)} weights for {len(self.heads)} heads of {self.model}; give "
                "one for each"
            )

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        async def rewards(groups: list[Group]) -> list[Reward | Fault]:
            s_NH = scores(ctx, self.model, self.heads, [e for g in groups for e in g.episodes])
            s_NH = 1 / (1 + np.exp(-s_NH)) if self.squash else (s_NH - self.shift) * self.scale
            total_N = s_NH @ np.array(self.weights or [1 / len(self.heads)] * len(self.heads))
            return make_rewards(self.model, self.heads, s_NH, total_N)

        return await judge_together(ctx, self, group, rewards)


def scores(
    ctx: Models, model: str, heads: Sequence[str], episodes: Sequence[Episode]
) -> np.ndarray:
    """[N, heads] at the end of each episode's last row; NaN for an episode without a token."""
    scores_NH, scorer = np.full((len(episodes), len(heads)), np.nan), ctx.model(model)
    need_heads(model, scorer, heads)
    ids = [[int(i) for i in e.rows[-1].view().ids_T] if e.rows else [] for e in episodes]
    there = [i for i, each in enumerate(ids) if each]
    if any(scorer.vocabulary <= token < FIRST_PLACE for i in there for token in ids[i]):
        raise UserError(
            f"the model {model!r} has another vocabulary than the policy; train it from the same "
            "model"
        )
    with ctx.phase("forward"):
        scores_NH[there] = read_rows(scorer, [episodes[i].rows[-1] for i in there], heads)
    return scores_NH


def read_rows(scorer: Model, rows: Sequence[Row], heads: Sequence[str]) -> np.ndarray:
    """[rows, heads] at the end of rows of at least a token; of those with pictures or sounds see
    `read_seeing`.
    """
    ids = [[int(i) for i in row.view().ids_T] for row in rows]
    plain = [i for i, each in enumerate(ids) if max(each) < FIRST_PLACE]
    read_NH = np.zeros((len(rows), len(heads)))
    read_NH[plain] = read_heads(scorer, [ids[i] for i in plain], heads)
    for i in set(range(len(rows))) - set(plain):
        read_NH[i] = read_seeing(scorer, rows[i], heads)
    return read_NH


@torch.no_grad()
def read_seeing(scorer: Model, row: Row, heads: Sequence[str]) -> list[float]:
    """What the heads say at the end of a row with pictures or sounds, by the forward pass of
    training. Raises UserError where the model cannot see or hear them.
    """
    ids = [int(i) for i in row.view().ids_T]
    ids.append(ids[-1])  # one more token, at which the row is over; it is never seen
    pictures = row.pictures
    for medium in pictures:
        scorer.places(medium)
    ids_BT = torch.tensor([ids])
    trained_BT = torch.zeros_like(ids_BT)
    trained_BT[0, -1] = 1
    columns = {"ids": ids_BT, "trained": trained_BT, "length": torch.tensor([len(ids)])}
    batch = Batch(
        columns={**columns, **picture_columns([pictures])},
        unit_B=torch.zeros(1, dtype=torch.long),
        n_tokens=1,
        n_rows=1,
        n_units=1,
    ).to(scorer.device)
    out = forward(scorer, batch, heads)
    return [float(out[h][0, -1]) for h in heads]


def need_heads(name: str, model: Model, heads: Sequence[str]) -> None:
    """Raises UserError where a model has not the heads that are to be read."""
    if missing := [h for h in heads if h not in model.heads]:
        own = ", ".join(model.heads)
        raise UserError(
            f"the model {name!r} has no head {missing[0]!r}; "
            + (f"name one of {own}" if own else "it has none, so it is no reward model")
        )


def make_rewards(
    model: str, heads: Sequence[str], s_NH: np.ndarray, total_N: np.ndarray
) -> list[Reward | Fault]:
    """A number that is not finite is a fault, never a zero."""
    return [
        Reward(
            total=float(x), parts={f"{model}/{h}": float(v) for h, v in zip(heads, s, strict=True)}
        )
        if np.isfinite(x)
        else Fault("reward-model", f"{model} gave {x}")
        for x, s in zip(total_N, s_NH, strict=True)
    ]


# ---- reward models of their own tokenizer


@stage
class RewardModel:
    """A saved reward model, trained here or a sequence classifier of the hub, as the reward: the
    score at the end of prompt and reply, as the model's own chat template writes them; without a
    template, of the text of both.

    A model whose only head is "value" was trained on beginnings of answers (rest-rl, pav): it reads
    the tokens that the policy was shown and has said so far, so it needs the policy's vocabulary.

    Args:
        name: a folder, or an id of the hub.
        head: the label that is read; "" = the only one.
    """

    name: str
    head: str = ""

    def __post_init__(self) -> None:
        find(self.name)

    async def __call__(self, ctx: Context | None, group: Group) -> list[Reward | Fault]:
        async def rewards(groups: list[Group]) -> list[Reward | Fault]:
            model = scorer_of(self.name, self._device(ctx))
            if ctx is not None and self._head_of(model) == PREFIXES:
                return self._of_beginnings(ctx, model, [e for g in groups for e in g.episodes])
            pairs = [(g.task, response_text(e)) for g in groups for e in g.episodes]
            return [Reward(total=float(x)) for x in self.scores(model, pairs)]

        return await judge_together(ctx, self, group, rewards)

    def _head_of(self, model: Model) -> str:
        return self.head or (next(iter(model.heads)) if len(model.heads) == 1 else "score")

    def _of_beginnings(
        self, ctx: Context, model: Model, episodes: Sequence[Episode]
    ) -> list[Reward | Fault]:
        check_vocabulary(
            ctx.model("policy"), model, "it values what the policy has said so far, token by token"
        )
        rows = [e.rows[-1] for e in episodes if e.rows]
        read = iter(read_rows(model, rows, (PREFIXES,))[:, 0])
        return [
            Reward(total=float(next(read))) if e.rows else Fault("reward-model", "nothing was said")
            for e in episodes
        ]

    def scores(self, model: Model, pairs: Sequence[tuple[Task, str]]) -> np.ndarray:
        """[pairs] what the model scores these replies. Raises UserError where it has no such head,
        or a text does not fit into it.
        """
        head = self._head_of(model)
        texts = [whole_text(model, task, reply) for task, reply in pairs]
        if any(len(ids) > model.context for ids in texts):
            longest = max(map(len, texts))
            raise UserError(
                f"a prompt with its reply has {longest} tokens, and the reward model {self.name} "
                f"reads {model.context}; take shorter prompts, or lower --max-tokens"
            )
        need_heads(self.name, model, (head,))
        return read_heads(model, texts, [head])[:, 0]

    @staticmethod
    def _device(ctx: Context | None) -> str:
        return "cpu" if ctx is None else str(ctx.model("policy").device)


@lru_cache(maxsize=4)
def scorer_of(name: str, device: str) -> Model:
    return load(name, device=device)


def whole_text(model: Model, task: Task, reply: str) -> list[int]:
    """The tokens of a prompt with its reply. Raises UserError where the template refuses them."""
    tokenizer = model.tokenizer
    messages = [{"role": m.role, "content": m.content} for m in task.prompt]
    messages.append({"role": "assistant", "content": reply})
    if not tokenizer.chat_template:
        text = "\n".join(m["content"] for m in messages[:-1]) + reply
        return without_filling(model, [int(i) for i in tokenizer(text)["input_ids"]])  # type: ignore[union-attr]
    try:
        text = render(tokenizer, messages, speak=False)
    except REFUSALS as error:
        raise UserError(
            f"task {task.id!r}: the chat template of the reward model refuses the conversation: "
            f"{error}"
        ) from None
    ids = [int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]  # type: ignore[union-attr]
    return without_filling(model, ids)


def without_filling(model: Model, ids: list[int]) -> list[int]:
    """The tokens up to the last one that does not fill batches: there transformers' classifiers
    read their score, also where the filling token is the one that ends a reply.
    """
    config: Any = model.module.config
    end = len(ids)
    while end > 1 and ids[end - 1] == config.pad_token_id:
        end -= 1
    return ids[:end]


# ---- ensembles


def min_over_heads(s_NH: np.ndarray) -> np.ndarray:
    """The worst case of the ensemble."""
    return s_NH.min(1)


def mean_over_heads(s_NH: np.ndarray) -> np.ndarray:
    """[N] the mean of a reward model's heads.

    Args:
        s_NH: a score for each of N answers by each of H heads.
    """
    return s_NH.mean(1)


@stage
class Below:
    """mean - k * standard deviation over the heads (ddof 0): what they agree on at least."""

    k: float = 1.0

    def __call__(self, s_NH: np.ndarray) -> np.ndarray:
        return s_NH.mean(1) - self.k * s_NH.std(1)


@stage
class Ensemble:
    """`combine` of the heads' scores. The part MODEL/doubt is their standard deviation."""

    model: str = "reward"
    heads: tuple[str, ...] = ("prior0", "prior1", "prior2", "prior3", "prior4")
    combine: Combine = min_over_heads

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        async def rewards(groups: list[Group]) -> list[Reward | Fault]:
            s_NH = scores(ctx, self.model, self.heads, [e for g in groups for e in g.episodes])
            parts_NP = np.column_stack([s_NH, s_NH.std(1)])
            return make_rewards(self.model, (*self.heads, "doubt"), parts_NP, self.combine(s_NH))

        return await judge_together(ctx, self, group, rewards)


@stage
class Robust:
    """w * nominal + (1 - w) * worst case, w = `nominal_weight` (arXiv:2409.15360 eq. 4 and 7);
    heads HEAD and HEAD_sd.

    The nominal reward is the mean of the most certain head. The worst case is the least head of
    each sample, or, with over="batch", the head whose mean over all episodes of the step is least.
    """

    model: str = "reward"
    heads: tuple[str, ...] = ("prior0", "prior1", "prior2", "prior3", "prior4")
    nominal_weight: float = 0.4
    over: Literal["sample", "batch"] = "sample"

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        async def rewards(groups: list[Group]) -> list[Reward | Fault]:
            names = (*self.heads, *(f"{h}_sd" for h in self.heads))
            raw = scores(ctx, self.model, names, [e for g in groups for e in g.episodes])
            mean_NH, sd_NH = (
                raw[:, : len(self.heads)],
                np.logaddexp(0, raw[:, len(self.heads) :]) + LEAST_SD,
            )
            parts_NP = np.column_stack([mean_NH, sd_NH])
            total_N = robust(mean_NH, sd_NH, self.nominal_weight, self.over)
            return make_rewards(
                self.model, names, parts_NP, np.where(np.isfinite(parts_NP).all(1), total_N, np.nan)
            )

        return await judge_together(ctx, self, group, rewards)


def robust(
    mean_NH: np.ndarray, sd_NH: np.ndarray, nominal_weight: float, over: str = "sample"
) -> np.ndarray:
    """[N] rewards of `Robust` from the heads' means and standard deviations."""
    nominal_N = np.take_along_axis(mean_NH, sd_NH.argmin(1)[:, None], 1)[:, 0]
    worst_N = mean_NH.min(1) if over == "sample" else mean_NH[:, np.nanmean(mean_NH, 0).argmin()]
    return nominal_weight * nominal_N + (1 - nominal_weight) * worst_N
