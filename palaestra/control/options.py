"""Options: ways of acting that last several steps, played in n games at a time.

An option o = (I, pi, beta) may begin where its initiation set I is, acts by its policy pi, and ends where
its termination condition beta holds or after `timeout` steps (Sutton, Precup and Singh 1999). Whoever
chooses options is asked at decisions alone, and may be a plan, a value function or a language model.
n games, m of them, A agents, O numbers of an observation, G of a goal, K options, T steps, D decisions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from palaestra.control.simulators import Acting, Box, Paths, Simulator, TellsFacts
from palaestra.errors import Fault, UserError
from palaestra.types import Key, rng_of, value_class

# observations [m, A, O] to [m] bool
Condition: TypeAlias = Callable[[np.ndarray], np.ndarray]

STOP = -1  # in the place of an option: the game ends for its player
# how an option ended: it runs, reached its end, ran out of time, the game was over or cut, was
# interrupted, could not begin
RUNNING, REACHED, TIMEOUT, CUT, INTERRUPTED, REFUSED = range(6)
ENDS = ("running", "reached", "timeout", "cut", "interrupted", "refused")
MOST_REFUSED = 1000  # choices of a game, one after another, without a step


def anywhere(obs: np.ndarray) -> np.ndarray:
    """[m] True: the initiation set of an option that may begin in every state."""
    return np.ones(len(obs), bool)


def nowhere(obs: np.ndarray) -> np.ndarray:
    """[m] False: the termination condition of an option that lasts until its timeout."""
    return np.zeros(len(obs), bool)


@value_class
class Option:
    """A way of acting that begins where `can_begin`, and ends where `reached` or after `timeout` steps.

    Args:
        act: the policy. It sees observations [m, A, O + G], with `goal` behind them.
        goal: G numbers that tell a policy that several options share where to go.
    """

    name: str
    act: Acting
    timeout: int
    reached: Condition = nowhere
    can_begin: Condition = anywhere
    goal: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.timeout < 1:
            raise UserError(f"option {self.name}: timeout is 1 step or more, not {self.timeout}")


def primitive_option(name: str, action: int) -> Option:
    """One action for one step, for those who choose between options and single actions."""

    def act(obs: np.ndarray, legal: Any, rng: Any) -> dict[str, np.ndarray]:
        return {"act": np.full(obs.shape[:-1], action)}

    return Option(name=name, act=act, timeout=1)


@value_class
class OptionCall:
    """An option as it was used in a game: from which step, for how many, and how it ended."""

    game: int
    option: int
    start: int
    steps: int
    end: int


# games and the rows of those without an option, to an option for each row, or STOP
Chooser: TypeAlias = Callable[["OptionGames", np.ndarray], Awaitable[np.ndarray]]


def with_goal(obs: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """[m, A, O + G] observations [m, A, O] with the goal of each game [m, G] behind them."""
    goal_of_each = np.broadcast_to(goal[:, None], (*obs.shape[:-1], goal.shape[-1]))
    return np.concatenate([obs, goal_of_each], -1)


class OptionGames:
    """n games in which options act. `options` may grow while they are played.

    A game is alive until it is over, cut by the horizon, or stopped by who chooses. Every step of a
    game that is alive counts as one environment step, whichever option takes it.
    """

    def __init__(self, sim: Simulator, options: Sequence[Option], n: int, key: Key):
        self.sim, self.options = sim, list(options)
        self.rng = rng_of((*key, "play"))
        self.state = sim.reset(self.rng, n)
        self.obs, self.legal = sim.observe(self.state), sim.legal(self.state)
        self.alive_n, self.option_n = np.ones(n, bool), np.full(n, STOP)
        self.spent_n, self.begun_n = np.zeros(n, int), np.zeros(n, int)
        self.end_n = np.full(n, RUNNING)  # how the last option of a game ended
        self.last_n = np.full(n, STOP)  # which that was
        self.steps = 0
        self.calls: list[OptionCall] = []
        self._refused_n = np.zeros(n, int)
        self._kept: list[dict[str, np.ndarray]] = []

    @property
    def idle(self) -> np.ndarray:
        """Rows of games that are alive and have no option."""
        return np.flatnonzero(self.alive_n & (self.option_n == STOP))

    @property
    def env_steps(self) -> int:
        """Steps of all games, each counted once."""
        return sum(int(k["alive"].sum()) for k in self._kept)

    def available(self, rows: np.ndarray) -> np.ndarray:
        """[m, K] which options can begin in games: in their initiation set, and not at their end."""
        return available_options(self.options, self.obs[rows])

    def begin(self, rows: np.ndarray, option_m: np.ndarray) -> None:
        """Gives idle games an option. One that is at its end already is reached without a step; one
        outside of its initiation set is refused; the game stays idle in both cases. STOP ends a game.
        """
        for number in np.unique(option_m):
            games = rows[option_m == number]
            if number == STOP:
                self.alive_n[games] = False
                continue
            option, obs = self.options[number], self.obs[games]
            reached, free = option.reached(obs), option.can_begin(obs)
            self.last_n[games], self.begun_n[games], self.spent_n[games] = number, self.steps, 0
            for end, which in ((REACHED, reached), (REFUSED, ~reached & ~free)):
                self._end(games[which], end, number)
            starts = games[~reached & free]
            self.option_n[starts], self.end_n[starts] = number, RUNNING
            self._refused_n[starts] = 0

    def advance(self) -> None:
        """One step of every game that is alive. Raises Fault where one of them is idle."""
        if len(self.idle):
            raise Fault("options", f"{len(self.idle)} games have no option to take a step with")
        alive_n, option_n = self.alive_n.copy(), self.option_n.copy()
        act = self._actions()
        bounded = self.sim.actions.clip(act) if isinstance(self.sim.actions, Box) else act
        state, reward, over_n = self.sim.step(self.state, bounded, self.rng)
        after, legal_after = self.sim.observe(state), self.sim.legal(state)
        seen = {"obs": self.obs, "next_obs": after, "act": act}
        seen |= {"reward": reward * alive_n[:, None]}
        if isinstance(self.sim, TellsFacts):
            seen |= self.sim.facts(state)
        if self.legal is not None and legal_after is not None:
            seen |= {"legal": self.legal, "next_legal": legal_after}
        self._kept.append(seen | {"alive": alive_n, "over": over_n & alive_n, "option": option_n})
        self.state, self.obs, self.legal = state, after, legal_after
        self.steps += 1
        self.spent_n += alive_n
        self._finish(over_n)

    def interrupt(self, which_n: np.ndarray) -> None:
        """Ends the running option of some games [n], which are idle then."""
        for number in np.unique(self.option_n[which_n & (self.option_n != STOP)]):
            self._end(np.flatnonzero(which_n & (self.option_n == number)), INTERRUPTED, number)

    def paths(self) -> Paths:
        """The steps as `play_games` gives them, with "option" [n, T], STOP where a game is not alive.

        Raises Fault where no game took a step.
        """
        if not self._kept:
            raise Fault("options", "no game took a step: each was stopped before it began")
        stacked = {name: np.stack([k[name] for k in self._kept]) for name in self._kept[0]}
        by_step = ("alive", "over", "option")
        return {k: np.moveaxis(v, 0, 1 if k in by_step else 2) for k, v in stacked.items()}

    def numbers(self) -> dict[str, dict[str, int]]:
        """By name of an option: its calls, its steps, and how often it ended in which way."""
        counts: dict[str, dict[str, int]] = {}
        for call in self.calls:
            name = self.options[call.option].name
            own = counts.setdefault(name, {"calls": 0, "steps": 0, **dict.fromkeys(ENDS[1:], 0)})
            own["calls"], own["steps"] = own["calls"] + 1, own["steps"] + call.steps
            own[ENDS[call.end]] += 1
        return counts

    async def choose(self, chooser: Chooser) -> None:
        """Asks for options until every game that is alive has one. Raises Fault "options" where a game
        is given one after another that cannot begin.
        """
        while len(rows := self.idle):
            self._refused_n[rows] += 1
            if self._refused_n.max() > MOST_REFUSED:
                raise Fault("options", f"{MOST_REFUSED} choices in a row took no step")
            self.begin(rows, np.asarray(await chooser(self, rows)))

    def _actions(self) -> np.ndarray:
        """[n, A] or [n, A, D] by the policies, each of which acts once for all of its games."""
        by_policy: dict[tuple[int, int, int], list[int]] = {}
        for number in np.unique(self.option_n[self.alive_n]):
            option = self.options[number]
            bound = getattr(option.act, "__self__", option.act)
            same = (id(bound), id(getattr(option.act, "__func__", None)), len(option.goal))
            by_policy.setdefault(same, []).append(int(number))
        act = resting_actions(self.sim, self.legal, len(self.alive_n))
        for numbers in by_policy.values():
            rows = np.flatnonzero(self.alive_n & np.isin(self.option_n, numbers))
            goal = np.array([self.options[k].goal for k in self.option_n[rows]])
            legal = None if self.legal is None else self.legal[rows]
            policy = self.options[numbers[0]].act
            act[rows] = policy(with_goal(self.obs[rows], goal), legal, self.rng)["act"]
        return act

    def _finish(self, over_n: np.ndarray) -> None:
        """Ends the options that are at their end after a step, and the games that are over."""
        last = self.steps >= self.sim.horizon
        for number in np.unique(self.option_n[self.alive_n]):
            option = self.options[number]
            rows = np.flatnonzero(self.alive_n & (self.option_n == number))
            cut = over_n[rows] | last
            late = self.spent_n[rows] >= option.timeout
            end = np.where(cut, CUT, np.where(late, TIMEOUT, RUNNING))
            end = np.where(option.reached(self.obs[rows]), REACHED, end)
            for way in (REACHED, TIMEOUT, CUT):
                self._end(rows[end == way], way, number)
        self.alive_n = self.alive_n & ~over_n & (not last)

    def _end(self, rows: np.ndarray, end: int, number: Any) -> None:
        for game in rows:
            self.calls.append(
                OptionCall(
                    game=int(game),
                    option=int(number),
                    start=int(self.begun_n[game]),
                    steps=int(self.spent_n[game]),
                    end=end,
                )
            )
        self.end_n[rows], self.option_n[rows] = end, STOP


def available_options(options: Sequence[Option], obs: np.ndarray) -> np.ndarray:
    """[m, K] which options can begin at observations [m, A, O]."""
    if not options:
        return np.zeros((len(obs), 0), bool)
    return np.stack([o.can_begin(obs) & ~o.reached(obs) for o in options], 1)


def available_at(options: Sequence[Option], obs: np.ndarray) -> np.ndarray:
    """[n, T, K] which options can begin at every step, of observations [n, A, T, O]."""
    n, A, T, width = obs.shape
    flat = np.moveaxis(obs, 2, 1).reshape(n * T, A, width)
    return available_options(options, flat).reshape(n, T, -1)


def resting_actions(sim: Simulator, legal: np.ndarray | None, n: int) -> np.ndarray:
    """[n, A] or [n, A, D] for games that are no longer alive: the first legal action, or no force."""
    if isinstance(sim.actions, Box):
        return sim.actions.clip(np.zeros((n, sim.agents, sim.actions.size)))
    return np.zeros((n, sim.agents), int) if legal is None else legal.argmax(-1)


async def play_options(
    sim: Simulator,
    options: Sequence[Option],
    chooser: Chooser,
    n: int,
    key: Key,
    interrupt: Callable[[OptionGames], np.ndarray] | None = None,
) -> OptionGames:
    """`n` games from their start to their end, by the random stream of `key`.

    Args:
        interrupt: is asked after every step which games [n] are to choose anew.
    """
    games = OptionGames(sim, options, n, key)
    await games.choose(chooser)
    while games.alive_n.any():
        games.advance()
        if interrupt is not None:
            games.interrupt(interrupt(games))
        await games.choose(chooser)
    return games


def choose_by(acting: Acting) -> Chooser:
    """Chooses by a policy over options, whose actions are their numbers: of those that can begin,
    and STOP where none can.
    """

    async def choose(games: OptionGames, rows: np.ndarray) -> np.ndarray:
        free = games.available(rows)[:, None]
        chosen = acting(games.obs[rows][:, :1], free, games.rng)["act"][:, 0]
        return np.where(free[:, 0].any(1), chosen, STOP)

    return choose


# ---- what is learned from


@value_class
class OptionSpaces:
    """What a policy over options sees and chooses, for a learner of values (`DoubleQ.learner`)."""

    observation: int
    actions: int  # options


def decision_paths(games: OptionGames, gamma: float) -> Paths:
    """The games with a decision in the place of a time step: a semi-Markov decision process.

    With an option of k steps from step t, "reward" is sum_{i<k} gamma^i r_{t+i}, "discount" is gamma^k,
    so the target of its value is reward + discount max_o' Q(s', o') (Sutton, Precup and Singh 1999,
    section 3). "act" is the option, "legal" and "next_legal" [n, 1, D, K] say which can begin, "steps"
    [n, D] is k. "over" is where the game was, or where no option can begin, so that nothing follows.
    One agent chooses: observations are the first agent's, rewards those of all together. Options that
    took no step are no decisions.
    """
    paths, calls = games.paths(), [c for c in games.calls if c.steps]
    n, reward_nT = len(games.alive_n), paths["reward"].sum(1)
    by_game = [[c for c in calls if c.game == i] for i in range(n)]
    D, K = max(map(len, by_game)), len(games.options)
    width = paths["obs"].shape[-1]
    free = {
        name: available_at(games.options, paths[seen])
        for name, seen in (("legal", "obs"), ("next_legal", "next_obs"))
    }
    kept: dict[str, np.ndarray] = {
        **{k: np.zeros((n, 1, D, width)) for k in ("obs", "next_obs")},
        **{k: np.zeros((n, 1, D)) for k in ("reward", "discount")},
        **{k: np.zeros((n, D), bool) for k in ("alive", "over")},
        **{k: np.zeros((n, 1, D, K), bool) for k in ("legal", "next_legal")},
        "act": np.zeros((n, 1, D), int),
        "steps": np.zeros((n, D), int),
    }
    for i, own in enumerate(by_game):
        for d, call in enumerate(sorted(own, key=lambda c: c.start)):
            last = call.start + call.steps - 1
            paid = reward_nT[i, call.start : last + 1]
            kept["reward"][i, 0, d] = paid @ gamma ** np.arange(call.steps)
            kept["discount"][i, 0, d] = gamma**call.steps
            kept["obs"][i, 0, d] = paths["obs"][i, 0, call.start]
            kept["next_obs"][i, 0, d] = paths["next_obs"][i, 0, last]
            nothing = not free["next_legal"][i, last].any()
            kept["over"][i, d] = paths["over"][i, last] or nothing
            kept["act"][i, 0, d], kept["steps"][i, d] = call.option, call.steps
            kept["legal"][i, 0, d] = free["legal"][i, call.start]
            kept["next_legal"][i, 0, d] = free["next_legal"][i, last]
            kept["alive"][i, d] = True
    return kept


def option_paths(games: OptionGames, number: int, own: bool = True) -> Paths:
    """The steps of one option as paths for a learner from single transitions, such as `QLearner`.

    "alive" is where the option acted, "over" where it was reached, so that nothing follows, or the
    game was over elsewhere; observations have its goal behind them. A timeout is no end. "reward" is the
    simulator's. Nothing follows where a game is over, so who pays -c a step in its place makes a game
    that is over elsewhere cheaper than the way: that end has to cost c / (1 - gamma), as the rest would.

    Args:
        own: False = the steps of the other options too, but for those that begin at its end. From
            them a learner off policy learns what it did not do itself.
    """
    paths, option = games.paths(), games.options[number]
    n, A, T, _ = paths["obs"].shape
    goal = np.broadcast_to(np.array(option.goal), (n, A, T, len(option.goal)))
    seen = {k: np.concatenate([paths[k], goal], -1) for k in ("obs", "next_obs")}
    flat = lambda x: np.moveaxis(x, 2, 1).reshape(n * T, A, -1)
    before, after = (
        np.asarray(option.reached(flat(paths[k]))).reshape(n, T) for k in ("obs", "next_obs")
    )
    alive = paths["alive"] & (paths["option"] == number if own else ~before)
    return {**paths, **seen, "alive": alive, "over": alive & (after | paths["over"])}
