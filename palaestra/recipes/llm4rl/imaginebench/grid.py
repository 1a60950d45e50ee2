"""The benchmark's own simulator, four coloured marks on a grid with instructions in words, its expert,
and the rule that imagines rollouts where no language model is asked.

n games, M = 4 marks, O = 14 numbers of an observation. Actions: 0 left, 1 right, 2 up, 3 down.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import palaestra as pl

COLOURS = ("red", "green", "blue", "yellow")
WAYS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
RECORDED = 300  # rollouts of the expert
SLIPS = (
    0.25  # share of imagined rollouts with an impossible step, and of those that take a wrong mark
)


def instructions() -> dict[str, str]:
    """Every instruction with its level. Rollouts are recorded of the level "train" alone; "rephrase" is
    the same in other words, "easy" a variation, "hard" a composition of two.
    """
    levels: dict[str, str] = {}
    for colour in COLOURS:
        levels[f"go to the {colour} mark"] = "train"
        levels[f"please walk over to where {colour} is"] = "rephrase"
        levels[f"stop just left of the {colour} mark"] = "easy"
    for one in COLOURS:
        for other in COLOURS:
            if one != other:
                levels[f"go to the {one} mark then to the {other} mark"] = "hard"
    return levels


def goals_of(instruction: str) -> tuple[tuple[int, ...], bool]:
    """The marks that an instruction names, in order, and whether the cell left of the last is meant."""
    named = [COLOURS.index(w) for w in re.findall(r"\w+", instruction) if w in COLOURS]
    return tuple(named), "left of" in instruction


@pl.value_class
class ColourGridState:
    at_n2: np.ndarray
    mark_nM2: np.ndarray
    reached_nM: np.ndarray  # bool, since the start
    steps: int


@pl.stage
class ColourGrid:
    """A grid of `size` x `size` cells under one instruction. A game is over when it is carried out, and
    pays 1 - 0.9 t / horizon then (as BabyAI does), t the steps that it took; every other step pays 0.

    An observation is the agent's column and row, and for each mark how far it lies to the right and
    down, and whether it was reached. Who walks into a wall stays.
    """

    instruction: str = "go to the red mark"
    size: int = 6
    horizon: int = 30

    agents = 1
    actions = len(WAYS)
    observation = 2 + 3 * len(COLOURS)

    @property
    def about(self) -> str:
        return (
            f"An agent walks on a grid of {self.size} x {self.size} cells with a red, a green, a blue and a "
            "yellow mark; column 0 is left and row 0 is up. An observation is [column, row, then for red, "
            "green, blue and yellow: cells to the right, cells down, and 1 if the mark was reached since the "
            "start, else 0]. Actions: 0 = one cell left, 1 = right, 2 = up, 3 = down; at a wall the agent stays."
        )

    def reset(self, rng: np.random.Generator, n: int) -> ColourGridState:
        """Agent and marks are on different cells; no mark is in the first column."""
        cells = np.argsort(rng.random((n, self.size * (self.size - 1))), 1)[:, : len(COLOURS) + 1]
        place = np.stack([1 + cells % (self.size - 1), cells // (self.size - 1)], -1)
        none = np.zeros((n, len(COLOURS)), bool)
        return ColourGridState(at_n2=place[:, 0], mark_nM2=place[:, 1:], reached_nM=none, steps=0)

    def observe(self, state: ColourGridState) -> np.ndarray:
        away = state.mark_nM2 - state.at_n2[:, None]
        marks = np.concatenate([away, state.reached_nM[..., None]], -1).reshape(len(away), -1)
        return np.concatenate([state.at_n2, marks], 1)[:, None].astype(float)

    def legal(self, state: ColourGridState) -> None:
        return None

    def step(
        self, state: ColourGridState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[ColourGridState, np.ndarray, np.ndarray]:
        at_n2 = np.clip(state.at_n2 + WAYS[act_nA[:, 0]], 0, self.size - 1)
        on_nM = (state.mark_nM2 == at_n2[:, None]).all(-1)
        marks, left = goals_of(self.instruction)
        before = state.reached_nM[:, list(marks[:-1])].all(1)
        goal_n2 = state.mark_nM2[:, marks[-1]] - np.array([int(left), 0])
        over_n = before & (at_n2 == goal_n2).all(1)
        after = ColourGridState(
            at_n2=at_n2,
            mark_nM2=state.mark_nM2,
            reached_nM=state.reached_nM | on_nM,
            steps=state.steps + 1,
        )
        paid = 1 - 0.9 * after.steps / self.horizon
        return after, (over_n * paid)[:, None], over_n

    def expert(
        self, obs: np.ndarray, legal: np.ndarray | None, rng: np.random.Generator
    ) -> Mapping[str, np.ndarray]:
        """A shortest way to what is to be reached next; it plays as `Acting` says."""
        return {"act": np.array([[next_way(o, self.instruction, rng)] for o in obs[:, 0]])}

    def follows(self, obs: np.ndarray, act: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
        """[N] whether the second observation is what a step leads to: what imagined rollouts are
        measured by, and never chosen.
        """
        at = obs[:, :2]
        moved = np.clip(at + WAYS[act], 0, self.size - 1) - at
        marks, after = (x[:, 2:].reshape(len(x), -1, 3) for x in (obs, next_obs))
        away = marks[..., :2] - moved[:, None]
        reached = (marks[..., 2] > 0) | (away == 0).all(-1)
        return (
            (next_obs[:, :2] == at + moved).all(1)
            & (after[..., :2] == away).all((1, 2))
            & (after[..., 2] == reached).all(1)
        )


def next_way(obs: np.ndarray, instruction: str, rng: np.random.Generator) -> int:
    """An action towards what an instruction wants next, by an observation [O]."""
    marks, left = goals_of(instruction)
    seen = obs[2:].reshape(-1, 3)
    open_marks = [m for m in marks[:-1] if not seen[m, 2]]
    right, down = map(int, seen[open_marks[0] if open_marks else marks[-1], :2])
    right -= int(left and not open_marks)
    ways = [0 if right < 0 else 1] * (right != 0) + [2 if down < 0 else 3] * (down != 0)
    return int(rng.choice(ways)) if ways else 0


# ---- what is imagined without a model


def written_rollout(request: pl.ChatRequest) -> dict[str, Any]:
    """A rollout by a rule that was written by hand, in the place of a language model. It reads the
    question alone, and knows the grid. One in four of its rollouts takes a wrong mark, and one in
    four has a step that cannot be: the agent is two cells further, and the marks stay where they were.
    """
    text, rng = request.messages[0].content, pl.rng_of(("imaginebench", "rule", request.seed))
    task = re.findall(r"^Instruction: (.*)$", text, re.MULTILINE)[-1]
    obs = np.array(json.loads(re.findall(r"^Start: (\[.*\])$", text, re.MULTILINE)[-1]), float)
    wrong, slips = rng.random(2) < SLIPS
    if wrong:
        named = [COLOURS[m] for m in goals_of(task)[0]]
        task = task.replace(named[-1], str(rng.choice([c for c in COLOURS if c not in named])))
    steps = walk_of(obs, task, rng)
    if slips:
        broken = steps[int(rng.integers(len(steps)))]
        broken["observation"][:2] = [x + 2 for x in broken["observation"][:2]]
    return {"steps": steps}


def walk_of(obs: np.ndarray, task: str, rng: np.random.Generator) -> Sequence[dict[str, Any]]:
    """The steps of a game from an observation [O] to the end, at most 30."""
    grid, seen = ColourGrid(task), obs[2:].reshape(-1, 3)
    state = ColourGridState(
        at_n2=obs[None, :2].astype(int),
        mark_nM2=(obs[:2] + seen[:, :2])[None].astype(int),
        reached_nM=seen[None, :, 2] > 0,
        steps=0,
    )
    steps: list[dict[str, Any]] = []
    for _ in range(grid.horizon):
        act = next_way(grid.observe(state)[0, 0], task, rng)
        state, _, over = grid.step(state, np.array([[act]]), rng)
        steps.append({"action": act, "observation": grid.observe(state)[0, 0].tolist()})
        if over[0]:
            break
    return steps
