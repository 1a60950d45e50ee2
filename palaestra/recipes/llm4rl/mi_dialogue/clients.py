"""Simulated clients of a motivational interview, at the level of dialogue acts, n dialogues at a time.

A client moves through four hidden phases where the counsellor's act is one that works for this kind of
client in this phase; acts that come too early bring sustain talk. The agent sees acts alone, neither the
phase nor the kind. It is a benchmark of our own: nobody's therapy is modelled.

n dialogues, one agent, K acts of the agent, U acts of a client.
"""

import inspect
from collections.abc import Mapping, Sequence

import numpy as np

import palaestra as pl

ACTS = (
    "open question",
    "closed question",
    "reflection",
    "affirmation",
    "summary",
    "information",
    "new view",
    "plan",
)
CLIENT_ACTS = (
    "fact",
    "feeling",
    "new perspective",
    "change talk",
    "sustain talk",
    "question",
    "short answer",
    "other topic",
)
PHASES = ("engage", "focus", "evoke", "plan")
K, U, MEMORY = len(ACTS), len(CLIENT_ACTS), 3
FACT, FEELING, VIEW, CHANGE, SUSTAIN, QUESTION, SHORT, OTHER = range(U)
EARLY = ((5, 7), (6, 7), (7,), ())  # acts that come too early, by phase
ADVANCES = {"works": 0.6, "neutral": 0.08, "early": 0.0}
SLIPS = 0.15  # back by a phase, after an act that comes too early
PAYS = {VIEW: 0.25, CHANGE: 0.5, SUSTAIN: -0.5}  # for a client's act
PHASE_PAY, END_PAY, TURN_PAY = 1.0, 2.0, -0.05
# of a client's acts after one that works, is neutral, or comes too early; "own" = that of the phase
OWN_SHARE = {"works": 0.75, "neutral": 0.3, "early": 0.0}
REST: Mapping[str, Mapping[int, float]] = {
    "works": {QUESTION: 0.1, SHORT: 0.15},
    "neutral": {SHORT: 0.35, OTHER: 0.2, QUESTION: 0.15},
    "early": {SUSTAIN: 0.7, SHORT: 0.3},
}

# the acts that work in each phase, by kind of client
TRAINED: Mapping[str, tuple[int, ...]] = {
    "open": (0, 4, 6, 7),
    "resistant": (2, 2, 3, 5),
    "worried": (3, 5, 2, 4),
    "talkative": (1, 1, 4, 1),
}
HELD_OUT: Mapping[str, tuple[int, ...]] = {"hesitant": (2, 4, 2, 7), "doubtful": (3, 1, 3, 5)}


@pl.value_class
class ClientState:
    """Dialogues under way. `heard` are the last three acts of the client, the last one last; -1 = none."""

    phase: np.ndarray
    turn: int
    said: np.ndarray
    heard: np.ndarray
    counts: np.ndarray  # [n, 3] facts, feelings, new perspectives


@pl.stage
class ClientSimulator:
    """Clients of one kind, as a simulator in arrays.

    An observation is [last act of the agent (K + 1), last three of the client (3 (U + 1)), turn, counts
    of the client's facts, feelings and new perspectives], the last four in units of the horizon.
    """

    works: tuple[int, ...] = TRAINED["open"]
    horizon: int = 16
    name: str = "open"
    agents: int = 1
    actions: int = K

    @property
    def observation(self) -> int:
        return K + 1 + MEMORY * (U + 1) + 4

    @property
    def overview(self) -> tuple[int, ...]:
        """The numbers of an observation that the master policy sees: turn and counts."""
        return tuple(range(self.observation - 4, self.observation))

    def reset(self, rng: np.random.Generator, n: int) -> ClientState:
        return ClientState(
            phase=np.zeros(n, int),
            turn=0,
            said=np.full(n, -1),
            heard=np.full((n, MEMORY), -1),
            counts=np.zeros((n, 3)),
        )

    def observe(self, state: ClientState) -> np.ndarray:
        heard = np.eye(U + 1)[state.heard].reshape(len(state.said), -1)
        share = np.column_stack([np.full(len(state.said), state.turn), state.counts]) / self.horizon
        return np.concatenate([np.eye(K + 1)[state.said], heard, share], -1)[:, None]

    def legal(self, state: ClientState) -> None:
        return None

    def facts(self, state: ClientState) -> Mapping[str, np.ndarray]:
        """The hidden phase, 4 = the end was reached, and the client's act."""
        return {"phase": state.phase[:, None], "client_act": state.heard[:, -1:]}

    def best_acts(self, state: ClientState) -> np.ndarray:
        """[n, 1] the act that works for this kind in the hidden phase."""
        return np.array(self.works)[np.minimum(state.phase, len(PHASES) - 1)][:, None]

    def step(
        self, state: ClientState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[ClientState, np.ndarray, np.ndarray]:
        act, n = act_nA[:, 0].astype(int), len(act_nA)
        phase = np.minimum(state.phase, len(PHASES) - 1)
        early = np.array([a in EARLY[p] for a, p in zip(act, phase, strict=True)])
        works = (act == np.array(self.works)[phase]) & ~early
        kind = np.where(works, "works", np.where(early, "early", "neutral"))
        table = {k: client_table(k) for k in ADVANCES}
        chance = np.stack([table[k][p] for k, p in zip(kind, phase, strict=True)])
        heard = (rng.random((n, 1)) < np.cumsum(chance, 1)).argmax(1)
        draw = rng.random(n)
        up = draw < np.array([ADVANCES[k] for k in kind])
        down = early & (draw < SLIPS)
        after = np.maximum(0, phase + up - down)
        over = after >= len(PHASES)
        paid = TURN_PAY + np.array([PAYS.get(int(u), 0.0) for u in heard])
        paid = paid + PHASE_PAY * (after - phase) + END_PAY * over
        counts = state.counts + (heard[:, None] == np.arange(3))
        recent = np.concatenate([state.heard[:, 1:], heard[:, None]], 1)
        moved = ClientState(phase=after, turn=state.turn + 1, said=act, heard=recent, counts=counts)
        return moved, paid[:, None], over


def client_table(kind: str) -> np.ndarray:
    """[phases, U] probabilities of a client's acts after an act of a kind; those of a row sum to 1."""
    table = np.zeros((len(PHASES), U))
    for phase in range(len(PHASES)):
        table[phase, phase] += OWN_SHARE[kind]
        for act, share in REST[kind].items():
            table[phase, act] += share
    return table


@pl.stage
class ClientFamily:
    """Simulators to learn from, and others to adapt to: kinds of clients."""

    training: tuple[pl.control.Simulator, ...]
    held_out: tuple[pl.control.Simulator, ...]


def simulated_clients(horizon: int = 16) -> ClientFamily:
    """Four kinds of clients, and two that mix what works for them."""
    made = lambda kinds: tuple(
        ClientSimulator(works, horizon, name) for name, works in kinds.items()
    )
    return ClientFamily(made(TRAINED), made(HELD_OUT))


def family_by_name(spec: str) -> ClientFamily:
    """Simulators of FILE.py:NAME, which is, or makes, something with `training` and `held_out`, two lists
    of simulators in arrays or of what makes an environment; or one simulator as `simulator_by_name` takes
    it, in which there is nobody else to adapt to.

    Raises UserError for what cannot be made without arguments, and where they do not agree
    in observations and actions, or actions are continuous.
    """
    own = pl.tasks.load(spec, "simulator") if ".py:" in spec else None
    made = own
    if callable(own) and not hasattr(own, "training"):
        try:
            inspect.signature(own).bind()
        except (TypeError, ValueError) as error:
            raise pl.UserError(f"{spec} is called without arguments: {error}") from None
        made = own()
    if hasattr(made, "training") and hasattr(made, "held_out"):
        each = lambda side: tuple(
            pl.control.simulator_from(one, f"{spec}, {side} {i}")
            for i, one in enumerate(getattr(made, side))
        )
        family = ClientFamily(each("training"), each("held_out"))
    else:
        alone = pl.control.simulator_by_name(spec)
        family = ClientFamily((alone,), (alone,))
    check_family(spec, (*family.training, *family.held_out))
    if not family.training or not family.held_out:
        raise pl.UserError(f"{spec}: training and held_out have one simulator each at least")
    return family


def check_family(spec: str, sims: Sequence[pl.control.Simulator]) -> None:
    shapes = {(s.observation, s.actions, s.agents) for s in sims}
    if len(shapes) > 1:
        raise pl.UserError(
            f"{spec}: simulators differ in observations, actions or agents: {shapes}"
        )
    if any(not isinstance(s.actions, int) or s.agents != 1 for s in sims):
        raise pl.UserError(f"{spec}: dialogue acts are one agent's discrete actions")
