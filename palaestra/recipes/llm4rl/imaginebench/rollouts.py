"""Recorded and imagined rollouts of instructions: a file of yours, words as numbers, and rollouts as the
paths that a learner takes.

A rollout has T steps, O numbers of an observation, D dimensions of a continuous action; E numbers of an
instruction; N rollouts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np

import palaestra as pl

TRAIN = "train"  # the level of instructions whose rollouts are recorded
SourceFlag = Literal["real", "imagined"]
WORD = 32  # numbers of a word
Embed = Callable[[str], np.ndarray]


@pl.value_class
class TaskRollout:
    """One rollout of an instruction, with where it comes from.

    `obs` and `next_obs` [T, O]; `act` [T], or [T, D] of continuous actions; `reward` [T]. `over`: it ended,
    and was not cut at a limit of time.
    """

    instruction: str
    obs: np.ndarray
    act: np.ndarray
    next_obs: np.ndarray
    reward: np.ndarray
    over: bool
    source: SourceFlag = "real"

    def __len__(self) -> int:
        return len(self.reward)


@pl.value_class
class OfflineTasks:
    """What a benchmark is made of.

    `levels`: every instruction with its level. `real`: rollouts of the level "train", `other` real ones of
    other levels, for the oracle alone, `imagined` those that were imagined before.
    """

    levels: Mapping[str, str]
    real: Sequence[TaskRollout]
    other: Sequence[TaskRollout] = ()
    imagined: Sequence[TaskRollout] = ()

    def of_level(self, *levels: str) -> list[str]:
        """The instructions of some levels."""
        return [i for i, level in self.levels.items() if level in levels]

    @property
    def unseen(self) -> list[str]:
        """Instructions of which nothing is recorded for training."""
        return [i for i, level in self.levels.items() if level != TRAIN]


def read_tasks(path: str) -> tuple[OfflineTasks, int]:
    """The rollouts and instructions of a file, and how many steps were left out: the last one of a rollout
    that was cut, where the observation after it is not in the file.

    A row is a rollout, {"instruction": TEXT, "observations": [T or T + 1 of O numbers], "actions": [T],
    "rewards": [T], "over": true} with "level" and "imagined": true where they are so, or an instruction
    that has none, {"instruction": TEXT, "level": "hard"}. Imagined ones may lack rewards, see `pay_success`.

    Raises UserError for a row that is neither, and for a file without recorded rollouts to train on.
    """
    levels, rollouts, cut = dict[str, str](), list[tuple[str, TaskRollout]](), 0
    rows = [row for records in pl.tasks.open_records(path).values() for row in records]
    for number, row in enumerate(rows, start=1):
        where = f"{path}, row {number}"
        text = row.get("instruction")
        if not isinstance(text, str) or not text.strip():
            raise pl.UserError(f'{where}: it has no "instruction", a text')
        text, imagined = text.strip(), read_flag(row, "imagined", False, where)
        given = row.get("level")
        if given is not None or not imagined:
            level = str(given or TRAIN)
            if levels.setdefault(text, level) != level:
                raise pl.UserError(f"{where}: {text!r} has the level {level} and {levels[text]}")
        if row.get("observations") is not None:
            rollout, left = read_rollout(row, text, where)
            cut += left
            rollouts.append((text, rollout))
        elif imagined or levels.get(text) == TRAIN:
            raise pl.UserError(
                f'{where}: a row without "observations" is an instruction of another level than '
                f'"{TRAIN}", such as "level": "hard"'
            )
    for text, _ in rollouts:
        levels.setdefault(text, "imagined")  # no row says of which level it is
    check_widths(rollouts, path)
    rollouts = [(t, r) for t, r in rollouts if len(r)]
    real = [r for t, r in rollouts if r.source == "real" and levels[t] == TRAIN]
    if not real:
        raise pl.UserError(
            f'{path}: no recorded rollout of the level "{TRAIN}"; a row is {{"instruction": ..., '
            '"observations": ..., "actions": ..., "rewards": ..., "over": ...}'
        )
    return OfflineTasks(
        levels=levels,
        real=real,
        other=[r for t, r in rollouts if r.source == "real" and levels[t] != TRAIN],
        imagined=[pay_success(r, real) for _, r in rollouts if r.source == "imagined"],
    ), cut


def pay_success(rollout: TaskRollout, real: Sequence[TaskRollout]) -> TaskRollout:
    """A rollout that says nothing of rewards, taken for a success: its last step pays what a recorded
    rollout pays on average, and the others nothing. Another one is left as it is.
    """
    if not np.isnan(rollout.reward).any():
        return rollout
    paid = float(np.mean([r.reward.sum() for r in real]))
    return replace(rollout, reward=np.eye(len(rollout))[-1] * paid)


def read_flag(row: Mapping[str, Any], name: str, otherwise: bool, where: str) -> bool:
    """True or false, also as 1 or 0; `otherwise` where a row has none. Raises UserError for anything else."""
    value = row.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, (bool, int, float)) or value not in (0, 1):
        raise pl.UserError(
            f'{where}: "{name}" is {value!r}; it is true or false (1 or 0) for the whole rollout'
        )
    return bool(value)


def read_rollout(row: Mapping[str, Any], text: str, where: str) -> tuple[TaskRollout, int]:
    """A row's rollout, and how many steps of it are left out (0 or 1)."""
    imagined = read_flag(row, "imagined", False, where)
    try:
        obs = np.array(row["observations"], float)
        act = np.array(row["actions"], float)
        given = (
            np.full(len(act), np.nan) if imagined and row.get("rewards") is None else row["rewards"]
        )
        reward = np.array(given, float)
    except (KeyError, TypeError, ValueError) as error:
        raise pl.UserError(f"{where}: not a rollout of numbers: {error}") from None
    T = len(act) if act.ndim else 0
    if not T or obs.ndim != 2 or len(obs) not in (T, T + 1) or reward.shape != (T,):
        raise pl.UserError(
            f"{where}: {T} actions need as many rewards, and {T} or {T + 1} observations (the last one "
            f"after the last action), each a list of numbers; they have the shapes {act.shape}, "
            f"{reward.shape} and {obs.shape}"
        )
    unpaid = imagined and row.get("rewards") is None
    if not all(np.isfinite(x).all() for x in (obs, act, *(() if unpaid else (reward,)))):
        raise pl.UserError(f"{where}: it has numbers that are not finite")
    over = read_flag(row, "over", imagined, where)
    after = obs[1:] if len(obs) == T + 1 else np.concatenate([obs[1:], obs[-1:]])
    kept = T if over or len(obs) == T + 1 else T - 1
    rollout = TaskRollout(
        instruction=text,
        obs=obs[:kept],
        act=act[:kept],
        next_obs=after[:kept],
        reward=reward[:kept],
        over=over,
        source="imagined" if imagined else "real",
    )
    return rollout, T - kept


def check_widths(rollouts: Sequence[tuple[str, TaskRollout]], path: str) -> None:
    """Raises UserError where rollouts have observations or actions of several widths."""
    widths = {(r.obs.shape[1], r.act.shape[1:]) for _, r in rollouts}
    if len(widths) > 1:
        raise pl.UserError(
            f"{path}: observations and actions have several widths, {sorted(widths)}"
        )


def check_fits(tasks: OfflineTasks, sim: pl.control.Simulator) -> OfflineTasks:
    """The tasks with actions as the simulator takes them. Raises UserError where they do not fit it."""
    box = sim.actions if isinstance(sim.actions, pl.control.Box) else None
    count = 0 if isinstance(sim.actions, pl.control.Box) else sim.actions

    def fit(rollout: TaskRollout) -> TaskRollout:
        O, act = rollout.obs.shape[1], rollout.act
        if sim.observation != O:
            raise pl.UserError(
                f"rollouts have {O} numbers in an observation, and the simulator {sim.observation}"
            )
        if box is not None:
            act = act[:, None] if act.ndim == 1 else act
            if act.shape[1:] != (box.size,):
                raise pl.UserError(
                    f"the simulator's actions have {box.size} numbers, not {act.shape[1:]}"
                )
            return replace(rollout, act=act)
        act = act[:, 0] if act.shape[1:] == (1,) else act
        if act.ndim != 1 or (act != act.round()).any() or act.min() < 0 or act.max() >= count:
            raise pl.UserError(f"the simulator's actions are 0 to {count - 1}")
        return replace(rollout, act=act.astype(int))

    return replace(
        tasks,
        real=[fit(r) for r in tasks.real],
        other=[fit(r) for r in tasks.other],
        imagined=[fit(r) for r in tasks.imagined],
    )


# ---- words as numbers


@cache
def word_vectors(word: str) -> np.ndarray:
    """[2, WORD] two vectors of a word, the same on every machine."""
    return pl.rng_of(("imaginebench", "word", word)).normal(size=(2, WORD))


def embed_words(text: str) -> np.ndarray:
    """[2 WORD] the sum of the first vectors of an instruction's words, and that of the second ones
    weighted by where a word stands, -1 at the start to 1 at the end; both over the root of their number.
    """
    words = re.findall(r"\w+", text.lower()) or [""]
    vectors_W2D = np.stack([word_vectors(w) for w in words])
    place_W = np.linspace(-1, 1, len(words)) if len(words) > 1 else np.zeros(1)
    which = vectors_W2D[:, 0].sum(0)
    where = (vectors_W2D[:, 1] * place_W[:, None]).sum(0)
    return np.concatenate([which, where]) / len(words) ** 0.5


class InstructionEncoder:
    """Observations with the instruction behind them: [.., O + E]. Numbers of an observation are less
    their mean and over their deviation in the recorded rollouts, 1 where they never differ.

    Raises UserError where `embed` gives no vector of one width.
    """

    def __init__(self, real: Sequence[TaskRollout], embed: Embed = embed_words):
        seen = np.concatenate([r.obs for r in real])
        self.mean, self.deviation = seen.mean(0), seen.std(0)
        self.deviation[self.deviation < 1e-6] = 1.0
        self._embed, self._known = embed, dict[str, np.ndarray]()
        self.width = len(self.mean) + len(self.vector(real[0].instruction))

    def vector(self, instruction: str) -> np.ndarray:
        """[E]"""
        if instruction not in self._known:
            x = np.asarray(self._embed(instruction), float)
            sizes = {len(v) for v in self._known.values()}
            if x.ndim != 1 or not np.isfinite(x).all() or (sizes and len(x) not in sizes):
                raise pl.UserError(
                    f"embed gave no list of numbers of one length for {instruction!r}: {x.shape}"
                )
            self._known[instruction] = x
        return self._known[instruction]

    def __call__(self, obs: np.ndarray, instruction: str) -> np.ndarray:
        scaled = (obs - self.mean) / self.deviation
        vector = self.vector(instruction)
        return np.concatenate([scaled, np.broadcast_to(vector, (*obs.shape[:-1], len(vector)))], -1)


class InstructedSimulator:
    """A simulator whose agent sees its instruction too, as a policy of `InstructionEncoder` needs it."""

    def __init__(self, sim: pl.control.Simulator, instruction: str, encoder: InstructionEncoder):
        self.sim, self.instruction, self.encoder = sim, instruction, encoder
        self.agents, self.horizon, self.actions = sim.agents, sim.horizon, sim.actions
        self.observation = encoder.width

    def reset(self, rng: np.random.Generator, n: int) -> Any:
        return self.sim.reset(rng, n)

    def observe(self, state: Any) -> np.ndarray:
        return self.encoder(self.sim.observe(state), self.instruction)

    def legal(self, state: Any) -> np.ndarray | None:
        return self.sim.legal(state)

    def step(
        self, state: Any, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        return self.sim.step(state, act_nA, rng)

    def facts(self, state: Any) -> Mapping[str, np.ndarray]:
        return self.sim.facts(state) if isinstance(self.sim, pl.control.TellsFacts) else {}


# ---- rollouts as paths


def paths_of(
    rollouts: Sequence[TaskRollout],
    encoder: InstructionEncoder,
    keeps: Callable[[TaskRollout], np.ndarray] | None = None,
) -> pl.control.Paths:
    """Rollouts as games of one agent, [N, 1, T]; what is behind a rollout's end is not alive.

    Args:
        keeps: which steps of an imagined rollout count, [T]; None = all.
    """
    N, T = len(rollouts), max(map(len, rollouts))

    def stacked(rows: Sequence[np.ndarray]) -> np.ndarray:
        out = np.zeros((N, T, *rows[0].shape[1:]), rows[0].dtype)
        for i, x in enumerate(rows):
            out[i, : len(x)] = x
        return out

    checked = lambda r: np.ones(len(r), bool) if keeps is None else keeps(r)
    alive = [checked(r) if r.source == "imagined" else np.ones(len(r), bool) for r in rollouts]
    ends = [(np.arange(1, len(r) + 1) == len(r)) & r.over for r in rollouts]
    columns = {
        "obs": stacked([encoder(r.obs, r.instruction) for r in rollouts]),
        "next_obs": stacked([encoder(r.next_obs, r.instruction) for r in rollouts]),
        "act": stacked([r.act for r in rollouts]),
        "reward": stacked([r.reward for r in rollouts]),
    }
    return {k: v[:, None] for k, v in columns.items()} | {
        "alive": stacked(alive),
        "over": stacked(ends),
    }


def repeat_smaller(real: Sequence[TaskRollout], other: Sequence[TaskRollout]) -> list[TaskRollout]:
    """Both sets, the one with fewer steps repeated as often as makes both about equal, so that half of
    what is learned from is of each.
    """
    if not other:
        return list(real)
    steps = [max(1, sum(map(len, rollouts))) for rollouts in (real, other)]
    times = [max(1, round(max(steps) / n)) for n in steps]
    return list(real) * times[0] + list(other) * times[1]


def exchange_instructions(
    rollouts: Sequence[TaskRollout], rng: np.random.Generator
) -> list[TaskRollout]:
    """The same rollouts, those of an instruction under another one of theirs.

    Raises UserError where they are of fewer than two.
    """
    names = sorted({r.instruction for r in rollouts})
    order = pl.control.shuffle_rows(np.arange(len(names))[:, None], rng)[:, 0]
    other = {name: names[int(i)] for name, i in zip(names, order, strict=True)}
    return [replace(r, instruction=other[r.instruction]) for r in rollouts]
