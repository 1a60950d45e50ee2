"""A text game in arrays: a key, a door, sounds that mean nothing, and forty phrases, of which few do
something.

n games, C cells, K phrases.
"""

import numpy as np

import palaestra as pl

WAYS = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}
STEPS = ("go", "walk", "run", "head")
KEY = ("take the key", "look at the key", "polish the key", "talk to the key")
DOOR = ("unlock the door", "open the door", "push the door", "knock on the door")
IDLE = (
    "wait", "sing", "sit down", "look around", "jump", "sleep", "whistle", "read the sign",
    "kick the wall", "touch the wall", "count the tiles", "open the window", "eat the bread",
    "drink the water", "light the lamp", "call for help",
)  # fmt: skip
PHRASES = tuple(f"{step} {way}" for way in WAYS for step in STEPS) + KEY + DOOR + IDLE
SOUNDS = (
    "A bird sings.", "Water drips.", "It smells of soup.", "A clock ticks.", "The wind blows.",
    "Somebody laughs.", "A dog barks.", "It is quiet.",
)  # fmt: skip
TAKE, UNLOCK = PHRASES.index(KEY[0]), PHRASES.index(DOOR[0])
ABOUT = """You are in a game that is played with phrases. Take the key, bring it to the door and unlock the \
door, in as few phrases as you can: a phrase costs 0.01, the unlocked door pays 1 and ends the game. A \
phrase that does not fit does nothing."""


@pl.value_class
class PhraseState:
    cell_n: np.ndarray
    key_n: np.ndarray  # -1 = it is carried
    door_n: np.ndarray
    sound_n: np.ndarray


@pl.stage
class PhraseGrid:
    """A grid of `size` by `size` cells. An observation has a one for the agent's cell, one for the
    key's (the last of C + 1 where it is carried), one for the door's, and one for what is heard or
    smelled, which changes in every step.
    """

    size: int = 3
    horizon: int = 40
    cost: float = 0.01
    about: str = ABOUT

    def __post_init__(self) -> None:
        if self.size < 2 or self.horizon < 1:
            raise pl.UserError("PhraseGrid: size is 2 or more, horizon 1 or more")

    @property
    def agents(self) -> int:
        return 1

    @property
    def actions(self) -> int:
        return len(PHRASES)

    @property
    def action_names(self) -> tuple[str, ...]:
        return PHRASES

    @property
    def observation(self) -> int:
        return 3 * self.size**2 + 1 + len(SOUNDS)

    def reset(self, rng: np.random.Generator, n: int) -> PhraseState:
        """Agent, key and door are in three cells."""
        cells = rng.random((n, self.size**2)).argsort(1)
        return PhraseState(
            cell_n=cells[:, 0],
            key_n=cells[:, 1],
            door_n=cells[:, 2],
            sound_n=rng.integers(len(SOUNDS), size=n),
        )

    def observe(self, state: PhraseState) -> np.ndarray:
        n, C = len(state.cell_n), self.size**2
        obs, games = np.zeros((n, self.observation)), np.arange(n)
        obs[games, state.cell_n] = 1
        obs[games, C + np.where(state.key_n < 0, C, state.key_n)] = 1
        obs[games, 2 * C + 1 + state.door_n] = 1
        obs[games, 3 * C + 1 + state.sound_n] = 1
        return obs[:, None]

    def legal(self, state: PhraseState) -> None:
        return None

    def step(
        self, state: PhraseState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[PhraseState, np.ndarray, np.ndarray]:
        act_n = act_nA[:, 0]
        row_n, column_n = np.divmod(state.cell_n, self.size)
        move_K2 = np.zeros((len(PHRASES), 2), int)
        move_K2[: len(WAYS) * len(STEPS)] = np.repeat(list(WAYS.values()), len(STEPS), 0)
        row_n = np.clip(row_n + move_K2[act_n, 0], 0, self.size - 1)
        column_n = np.clip(column_n + move_K2[act_n, 1], 0, self.size - 1)
        takes_n = (act_n == TAKE) & (state.cell_n == state.key_n)
        over_n = (act_n == UNLOCK) & (state.key_n < 0) & (state.cell_n == state.door_n)
        after = PhraseState(
            cell_n=row_n * self.size + column_n,
            key_n=np.where(takes_n, -1, state.key_n),
            door_n=state.door_n,
            sound_n=rng.integers(len(SOUNDS), size=len(act_n)),
        )
        return after, (over_n - self.cost)[:, None], over_n

    def places(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The cells of agent, key (C where it is carried) and door in observations [..., O]."""
        C = self.size**2
        parts = obs[..., :C], obs[..., C : 2 * C + 1], obs[..., 2 * C + 1 : 3 * C + 1]
        cell, key, door = (x.argmax(-1) for x in parts)
        return cell, key, door

    def spell_view(self, obs: np.ndarray) -> str:
        cell, key, door = map(int, self.places(obs))
        place = lambda c: f"row {c // self.size}, column {c % self.size}"
        held = "You carry the key." if key == self.size**2 else f"The key lies at {place(key)}."
        sound = SOUNDS[int(obs[-len(SOUNDS) :].argmax())]
        return f"You stand at {place(cell)}. {held} The door is at {place(door)}. {sound}"

    def best_actions(self, obs: np.ndarray) -> np.ndarray:
        """[..., K] whether a phrase is on a shortest way to the end."""
        cell, key, door = self.places(obs)
        carried = key == self.size**2
        target = np.where(carried, door, key)
        best = np.zeros((*cell.shape, len(PHRASES)), bool)
        row, column = np.divmod(target, self.size)
        own_row, own_column = np.divmod(cell, self.size)
        nearer = (row < own_row, row > own_row, column < own_column, column > own_column)
        for w, wanted in enumerate(nearer):
            best[..., len(STEPS) * w : len(STEPS) * (w + 1)] = wanted[..., None]
        there = cell == target
        best[..., TAKE], best[..., UNLOCK] = there & ~carried, there & carried
        return best
