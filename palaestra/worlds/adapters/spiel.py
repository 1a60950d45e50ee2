"""open_spiel's games as worlds: `spiel:tic_tac_toe(against=random)`, `spiel:kuhn_poker`, or
`SpielWorld`.

Simultaneous moves are asked for one after the other, unseen. Chance is drawn from the seed of the
episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from palaestra.errors import UserError
from palaestra.suggest import no_setting, suggestion, suggestion_or_all
from palaestra.types import Frame, rng_of, stage
from palaestra.worlds.adapters.base import (
    POLICY,
    AdaptedWorld,
    Illegal,
    Live,
    Opponent,
    Scene,
    Trail,
    library_call,
    missing_library,
    named_action,
)

OPPONENTS = ("self", "random", "mcts")
TEACHERS = ("", "random", "equilibrium")
Teacher: TypeAlias = Callable[[Any], Mapping[int, float]]
OWN_SEED = "rng_seed"  # the setting of games that draw themselves
SWEEPS = 300  # of counterfactual regret minimisation; Kuhn poker: exploitability 0.0004
HISTORIES = 10_000  # of a game that is looked at as a whole; Leduc poker has 9,457


@stage
class SpielWorld(AdaptedWorld):
    """A game of open_spiel (https://github.com/google-deepmind/open_spiel).

    Args:
        game: its name.
        settings: its parameters.
        against: who plays the other seats. "self": the policy has all, called p0, p1, ...
            "random", "mcts" (open_spiel's search with `simulations` playouts a move) or a function
            `(messages, rng) -> text`: then it has one, another one from task to task.
        render: the text for `(state, player)`, of a `pyspiel.State`. Without it the player's
            information state, or its observation, above the legal actions.
        words: what actions are called, by their numbers; then a reply must be such a word and
            nothing else. Without them the last name of an action in a reply counts.
        teacher: who is imitated where the policy has every seat. "random": any legal action, each
            as often; "equilibrium": the average policy of 300 sweeps of counterfactual regret
            minimisation, of small games of two whose sums are zero. Or a function of a
            `pyspiel.State` that gives the probability of each legal action by its number.
        forfeits: a player who gives no legal action to the last loses. Else a random legal action
            is played instead, and the player pays `penalty` for it.

    Where no result lies beyond -1 and 1, a game that was won is solved.
    """

    game: str
    settings: tuple[tuple[str, Any], ...] = ()
    against: Opponent = "self"
    simulations: int = 100
    render: Callable[[Any, int], str] | None = None
    memory: bool = field(default=False, kw_only=True)
    words: tuple[str, ...] = field(default=(), kw_only=True)
    teacher: str | Teacher = field(default="", kw_only=True)
    forfeits: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        game = self.load()
        if game.num_players() < 2 and self.against != "self":
            raise UserError(f"{self.label} has one player; leave out against")
        if isinstance(self.against, str) and self.against not in OPPONENTS:
            near = suggestion_or_all(self.against, OPPONENTS)
            raise UserError(f"{self.label}: no opponent {self.against!r}{near}")
        kind = game.get_type()
        if isinstance(self.teacher, str) and self.teacher not in TEACHERS:
            near = suggestion_or_all(self.teacher, TEACHERS[1:])
            raise UserError(f"{self.label}: no teacher {self.teacher!r}{near}")
        if self.words and len(self.words) != game.num_distinct_actions():
            n = game.num_distinct_actions()
            raise UserError(f"{self.label} has {n} actions and {len(self.words)} words for them")
        if self.against == "mcts":
            load_search(self.label)
            if kind.information != type(kind).Information.PERFECT_INFORMATION:
                raise UserError(f"{self.label} hides something, and mcts would see it; take random")
        if self.solved is None and (game.min_utility(), game.max_utility()) == (-1.0, 1.0):
            object.__setattr__(self, "solved", 1.0)

    @property
    def label(self) -> str:
        return f"spiel:{self.game}"

    @property
    def sides(self) -> tuple[str, ...]:
        n = self.load().num_players()
        return (POLICY,) if n == 1 else tuple(f"p{i}" for i in range(n))

    @property
    def opponent(self) -> Opponent:
        return self.against

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Those of the game and of what a forfeit pays; None where it pays before its end."""
        game = self.load()
        kind = game.get_type()
        if kind.reward_model != type(kind).RewardModel.TERMINAL:
            return None
        if not self.forfeits:
            return None if self.penalty else (game.min_utility(), game.max_utility())
        forfeits = self.forfeit(self.sides[0]).values()
        return min(game.min_utility(), *forfeits), max(game.max_utility(), *forfeits)

    def open_live(self) -> Live:
        return SpielGame(self)

    def describe(self) -> str:
        kind = self.load().get_type()
        return self.intro or f"You play {kind.long_name}. Reply with one of the legal actions."

    def load(self) -> Any:
        return load_game(self.game, self.settings)

    def deal(self, seed: int) -> Any:
        """The first state of the game of an episode. A few games (negotiation, tarok) draw their chance
        themselves, from a seed that is one of their settings: they get it from the episode, so that
        the game can be played anew to where it was.
        """
        game = self.load()
        kind = game.get_type()
        if kind.chance_mode == type(kind).ChanceMode.SAMPLED_STOCHASTIC and OWN_SEED not in dict(
            self.settings
        ):
            own = int(rng_of(("game", seed)).integers(2**31))
            game = load_game.__wrapped__(self.game, (*self.settings, (OWN_SEED, own)))
        return game.new_initial_state()

    @property
    def has_oracle(self) -> bool:
        return bool(self.teacher) and self.against == "self"

    def oracle(self, state: Trail) -> str:
        """What the teacher says, drawn by the episode's seed. Raises UserError where there is none."""
        if not self.teacher:
            raise UserError(f"{self.label} has no teacher; take random or equilibrium")
        game = self.game_at(state)
        legal, share = game.state.legal_actions(), None
        if self.teacher != "random":
            chances = (
                equilibrium(self.game, self.settings).action_probabilities(game.state)
                if isinstance(self.teacher, str)
                else self.teacher(game.state)
            )
            share = np.array([chances[a] for a in legal]) / sum(chances.values())
        rng = rng_of(("teacher", state.seed, len(state.actions)))
        return game.names()[int(rng.choice(len(legal), p=share))]

    def game_at(self, state: Trail) -> SpielGame:
        """The game, played anew to where a trail ends."""
        game = SpielGame(self)
        game.start(state.seed)
        for action in state.actions:
            game.act(action)
        return game

    def legal(self, state: Trail) -> tuple[str, ...]:
        """The legal actions of the player to move, as they are said."""
        return tuple(self.game_at(state).names())

    def situations(self) -> dict[str, tuple[str, Mapping[int, str]]]:
        """By information state: all that its player is shown there, and the words of the legal
        actions. In these words a reply is an action or none, so a policy's probabilities of them
        are how it plays.

        Raises UserError where a policy is more than that: replies without `words`, a seat that
        remembers what it said, another player in a seat, two views of one situation; or where the
        game is too large.
        """
        if not self.words or self.memory or self.against != "self":
            need = "words for its actions, memory=False and against=self"
            raise UserError(f"{self.label}: a policy is a table only with {need}")
        texts = dict[str, tuple[str, Mapping[int, str]]]()
        for state in decisions(self.load()):
            player, legal = state.current_player(), state.legal_actions()
            text = "\n\n".join((self.describe(), SpielGame(self, state).text(player)))
            seen = (text, {a: self.words[a] for a in legal})
            if texts.setdefault(state.information_state_string(player), seen) != seen:
                raise UserError(f"{self.label} shows one situation in two ways: {text!r}")
        return texts

    def exact_play(self, table: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
        """ "exploitability", "value" and "against_uniform" of a policy, in the game's own pay.

        Args:
            table: probabilities that sum to 1, of each of the game's information states.

        Raises UserError where sums are not zero.
        """
        try:
            from open_spiel.python import policy  # pyright: ignore[reportMissingImports]
            from open_spiel.python.algorithms import (  # pyright: ignore[reportMissingImports]
                expected_game_score,
                exploitability,
            )
        except ImportError as error:
            raise missing_library("exploitability", "open_spiel", "games", error) from None
        game = self.load()
        kind = game.get_type()
        if kind.utility != type(kind).Utility.ZERO_SUM:
            raise UserError(f"{self.label}: sums are not zero, so nobody's loss is another's gain")
        own, uniform = policy.TabularPolicy(game), policy.UniformRandomPolicy(game)
        for situation, chances in table.items():
            row = own.policy_for_key(situation)
            for action, p in chances.items():
                row[action] = p
        start, n = game.new_initial_state(), game.num_players()
        value = lambda players: expected_game_score.policy_value(start, players)
        mine = [value([own if i == seat else uniform for i in range(n)])[seat] for seat in range(n)]
        return {
            "exploitability": float(exploitability.exploitability(game, own)),
            "value": float(value([own] * n)[0]),
            "against_uniform": float(np.mean(mine)),
        }

    async def _refuse(self, trail: Trail, live: Live, scene: Scene, why: str) -> Frame:
        """Asks again, ends the game, or has a random legal action in the place of the reply."""
        if self.forfeits or trail.illegal < self.retries:
            return await super()._refuse(trail, live, scene, why)
        action = live.sample(rng_of(("stand-in", trail.seed, len(trail.actions))), "random")
        after: Scene = live.act(action)  # type: ignore[assignment]
        owed = {scene.seat: after.pay.get(scene.seat, 0.0) + (self.penalty or 0.0)}
        trail = replace(trail, actions=(*trail.actions, action), illegal=trail.illegal + 1)
        return await self._go_on(trail, live, replace(after, pay={**after.pay, **owed}))

    def forfeit(self, seat: str) -> Mapping[str, float]:
        """The lowest result; of two players the other one has the opposite."""
        lowest = self.load().min_utility() if self.penalty is None else self.penalty
        others = [p for p in self.sides if p != seat]
        return {seat: lowest} | ({others[0]: -lowest} if len(others) == 1 else {})


@lru_cache(maxsize=32)
def load_game(name: str, settings: tuple[tuple[str, Any], ...] = ()) -> Any:
    """A game, with moves in turn. Raises UserError where there is none."""
    try:
        import pyspiel  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise missing_library(name, "open_spiel", "games", error) from None
    kinds = {k.short_name: k for k in pyspiel.registered_games()}
    if name not in kinds:
        near = suggestion(name, kinds) or f"; there are {len(kinds)}, e.g. tic_tac_toe"
        raise UserError(f"open_spiel has no game {name!r}{near}")
    takes = kinds[name].parameter_specification
    for key, _ in settings:
        if key not in takes:
            raise UserError(no_setting(f"spiel:{name}", key, takes))
    try:
        game = pyspiel.load_game(name, dict(settings))
        simultaneous = game.get_type().dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS
        game = pyspiel.convert_to_turn_based(game) if simultaneous else game
    except (pyspiel.SpielError, TypeError) as error:
        what = " ".join(str(error).split())
        raise UserError(f"spiel:{name}: {what}; change its settings") from None
    if game.get_type().dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise UserError(f"spiel:{name} is a game of crowds, not of players; choose another")
    return game


def decisions(game: Any) -> list[Any]:
    """Every state of a game in which a player is to act. Raises UserError for a large game."""
    states, seen, left = list[Any](), 0, [game.new_initial_state()]
    while left:
        state, seen = left.pop(), seen + 1
        if seen + len(left) > HISTORIES:
            name = game.get_type().short_name
            raise UserError(
                f"spiel:{name} has more than {HISTORIES:,} histories: too many to see all"
            )
        if not state.is_terminal():
            states += [] if state.is_chance_node() else [state]
            left += [state.child(a) for a in state.legal_actions()]
    return states


@lru_cache(maxsize=8)
def equilibrium(name: str, settings: tuple[tuple[str, Any], ...] = ()) -> Any:
    """open_spiel's average policy of counterfactual regret minimisation. Raises UserError for a
    game that is large, or not one of two players whose sums are zero.
    """
    game = load_game(name, settings)
    kind = game.get_type()
    if game.num_players() != 2 or kind.utility != type(kind).Utility.ZERO_SUM:
        raise UserError(
            f"spiel:{name} is no game of two whose sums are zero: no equilibrium is known"
        )
    decisions(game)
    try:
        from open_spiel.python.algorithms import cfr  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise missing_library(f"the equilibrium of {name}", "open_spiel", "games", error) from None
    solver = cfr.CFRPlusSolver(game)
    for _ in range(SWEEPS):
        solver.evaluate_and_update_policy()
    return solver.average_policy()


def load_search(label: str) -> Any:
    """open_spiel's tree search, which needs more than its games do."""
    try:
        from open_spiel.python.algorithms import mcts  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise missing_library(f"{label} against mcts", "open_spiel", "games", error) from None
    return mcts


@dataclass
class SpielGame:
    """One game. `seed` is of its chance; `paid` what each player has by now; `state` is there from `start` on, or
    as it is given.
    """

    world: SpielWorld
    state: Any = None
    seed: int = 0
    paid: tuple[float, ...] = ()

    def start(self, seed: int) -> Scene:
        self.seed, self.state = seed, self.world.deal(seed)
        self.paid = (0.0,) * self.state.num_players()
        with library_call(self.world.label):
            return self.after_chance()

    def act(self, action: str) -> Scene:
        with library_call(self.world.label):
            self.state.apply_action(int(action))
            return self.after_chance()

    def after_chance(self) -> Scene:
        while self.state.is_chance_node():
            rng = rng_of(("chance", self.seed, len(self.state.full_history())))
            actions, chances = zip(*self.state.chance_outcomes(), strict=True)
            share = np.array(chances) / sum(chances)
            self.state.apply_action(int(rng.choice(actions, p=share)))
        before, self.paid = self.paid, tuple(self.state.returns())
        gains = (b - a for a, b in zip(before, self.paid, strict=True))
        pay = {p: x for p, x in zip(self.world.sides, gains, strict=True) if x}
        if self.state.is_terminal():
            return Scene(pay=pay, status="finished", text=str(self.state))
        player = self.state.current_player()
        return Scene(seat=self.world.sides[player], text=self.text(player), pay=pay)

    def text(self, player: int) -> str:
        if self.world.render is not None:
            return self.world.render(self.state, player)
        kind = self.state.get_game().get_type()
        hidden = kind.information != type(kind).Information.PERFECT_INFORMATION
        remembers = kind.provides_information_state_string
        board = (
            self.state.information_state_string(player)
            if remembers and (hidden or not kind.provides_observation_string)
            else self.state.observation_string(player)
        )
        whose = f"You are {self.world.sides[player]}.\n" if len(self.world.sides) > 1 else ""
        return f"{whose}{board.rstrip()}\nlegal actions: {', '.join(self.names())}"

    def names(self) -> list[str]:
        words, state = self.world.words, self.state
        return [
            words[a] if words else state.action_to_string(a).lstrip(", ")
            for a in state.legal_actions()
        ]

    def read(self, text: str) -> str:
        names = self.names()
        if self.world.words and text not in names:
            raise Illegal(f"That is no legal action. Reply with one of: {', '.join(names)}")
        return str(self.state.legal_actions()[names.index(named_action(text, names))])

    def sample(self, rng: np.random.Generator, how: str) -> str:
        with library_call(self.world.label):
            if how == "random":
                return str(int(rng.choice(self.state.legal_actions())))
            mcts = load_search(self.world.label)
            random = np.random.RandomState(int(rng.integers(2**31)))
            judge = mcts.RandomRolloutEvaluator(random_state=random)
            bot = mcts.MCTSBot(
                self.state.get_game(), 2, self.world.simulations, judge, random_state=random
            )
            return str(int(bot.step(self.state)))

    def close(self) -> None:
        """There is nothing to close."""
