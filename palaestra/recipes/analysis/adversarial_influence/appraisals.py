"""How members give influence, as logs say: decisions of a user's teams, a model of trust that is learned from
them, and what a language model gives in their place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.analysis.adversarial_influence.team import (
    BetaTrust,
    VoterRecord,
    add_round,
    first_record,
    shares,
)

MOST = 9  # voters
FORGETTING = 0.8  # of the counts that a learned model reads
LAMS, PENALTIES = (0.6, 0.7, 0.8, 0.9, 0.95, 1.0), (1.0, 2.0, 3.0)
WIDTH, STEPS, RATE = 16, 200, 0.03


@dataclass(frozen=True, slots=True)
class InfluenceGiven:
    """The influence that a member gave before a round, [V], and who had been right in the rounds before."""

    team: str
    member: int | None
    weight_V: np.ndarray
    before: tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True)
class DecisionLog:
    """Decisions of teams of the same number of voters, the adviser last, and how often members were right."""

    decisions: Sequence[InfluenceGiven]
    skill: float
    voters: int


def read_log(tasks: Sequence[pl.Task], adviser: str) -> DecisionLog:
    """The rows of a log. Raises UserError for rows in another form."""
    teams = dict[str, dict[float, list[pl.Task]]]()
    for t in tasks:
        number = t.meta.get("round")
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise pl.UserError(
                f"row {t.id!r}: its `round` is a number, by which rounds are in order"
            )
        teams.setdefault(str(t.meta.get("team") or ""), {}).setdefault(number, []).append(t)
    decisions, right, size = list[InfluenceGiven](), list[float](), 0
    for team, rounds in teams.items():
        first = next(iter(rounds.values()))[0]
        names = voters_of(first, adviser)
        if size and size != len(names):
            raise pl.UserError(
                f"team {team!r} has {len(names)} voters, and others {size}; study teams of one size at a time"
            )
        if len(names) > MOST:
            raise pl.UserError(
                f"team {team!r} has {len(names)} voters, and at most {MOST} are planned for"
            )
        size, before = len(names), tuple[np.ndarray, ...]()
        for number in sorted(rounds):
            rows = rounds[number]
            for t in rows:
                weight_V = shares(numbers_of(t, "weights", names))
                member = str(t.meta.get("member") or "")
                at = names.index(member) if member in names else None
                decisions.append(InfluenceGiven(team, at, weight_V, before))
            truths = [numbers_of(t, "right", names) > 0.5 for t in rows]
            right_V = truths[0]
            if any((x != right_V).any() for x in truths):
                raise pl.UserError(
                    f"team {team!r}, round {number:g}: its rows say differently who was right"
                )
            right += list(right_V[:-1].astype(float))
            before = (*before, right_V)
    return DecisionLog(decisions, float(np.mean(right)), size)


def voters_of(task: pl.Task, adviser: str) -> list[str]:
    """Names, the adviser last."""
    right = task.meta.get("right")
    if not isinstance(right, Mapping) or adviser not in right or len(right) < 2:
        raise pl.UserError(
            f'row {task.id!r} needs "right": {{"ann": true, ..., "{adviser}": false}}, who of the voters was right '
            "in the round; adviser=NAME says which of them is the adviser"
        )
    return [*sorted(str(x) for x in right if x != adviser), adviser]


def numbers_of(task: pl.Task, column: str, names: Sequence[str]) -> np.ndarray:
    """[V] of a column by voter; one that is not named has 0."""
    given = task.meta.get(column)
    fault = pl.UserError(
        f"row {task.id!r}: its `{column}` has a number of at least 0 for each of {', '.join(names)}"
    )
    if not isinstance(given, Mapping) or (column == "right" and {*map(str, given)} != {*names}):
        raise fault
    if {*map(str, given)} - {*names}:
        raise fault
    try:
        numbers = np.array([float(given.get(n) or 0) for n in names])
    except (TypeError, ValueError):
        raise fault from None
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        raise fault
    return numbers


def simulated_log(
    teams: int, rounds: int, skill: float, rng: np.random.Generator, members: int = 3
) -> DecisionLog:
    """Decisions of simulated members, who forget with .9, count wrong answers twice, and waver: weights are
    multiplied by exp(.3 z), z normal. Their adviser is right four times out of five.
    """
    trust, decisions = BetaTrust(0.9, 2.0), list[InfluenceGiven]()
    right = list[float]()
    for team in range(teams):
        record = first_record(1, members + 1)
        for _ in range(rounds):
            noise_V = np.exp(0.3 * rng.standard_normal(members + 1))
            weight_V = shares(trust.weights(record)[0] * noise_V)
            decisions.append(
                InfluenceGiven(str(team), None, weight_V, tuple(x[0] for x in record.rounds))
            )
            right_V = rng.random(members + 1) < np.array([skill] * members + [0.8])
            right += list(right_V[:-1].astype(float))
            record = add_round(record, right_V[None], trust.lam, trust.penalty)
    return DecisionLog(decisions, float(np.mean(right)), members + 1)


def record_of(decisions: Sequence[InfluenceGiven], lam: float, penalty: float) -> VoterRecord:
    """What was known before each decision, under a way of counting."""
    voters = len(decisions[0].weight_V)
    records, known = list[VoterRecord](), dict[tuple[str, int], VoterRecord]()
    for d in decisions:
        start = first_record(1, voters)
        at = next((n for n in range(len(d.before), 0, -1) if (d.team, n) in known), 0)
        record = known.get((d.team, at), start)
        for n, right_V in enumerate(d.before[at:], at + 1):
            record = known[d.team, n] = add_round(record, right_V[None], lam, penalty)
        records.append(record)
    whole = lambda name: np.concatenate([getattr(r, name) for r in records])
    right_NV, wrong_NV, last_NV = whole("right_NV"), whole("wrong_NV"), whole("last_NV")
    return VoterRecord(right_NV, wrong_NV, whole("a_NV"), whole("b_NV"), last_NV)


def error(weight_RV: np.ndarray, decisions: Sequence[InfluenceGiven]) -> float:
    """The mean squared difference from the weights that were given."""
    given_RV = np.array([d.weight_V for d in decisions])
    return float(((weight_RV - given_RV) ** 2).mean())


# ---- models of trust


def fit_beta(decisions: Sequence[InfluenceGiven]) -> BetaTrust:
    """The forgetting and penalty of a grid that predict the weights best."""
    known = {
        (lam, penalty): BetaTrust(lam, penalty).weights(record_of(decisions, lam, penalty))
        for lam in LAMS
        for penalty in PENALTIES
    }
    lam, penalty = min(known, key=lambda k: error(known[k], decisions))
    return BetaTrust(lam, penalty)


@dataclass(frozen=True, slots=True)
class LearnedTrust:
    """A small network that scores each voter from what is known of it; weights are the softmax of the scores:

        score = w_2 . tanh(W_1 x + b_1),   x of `voter_features`

    A team's influence is the mean over its members, each of whom knows itself.
    """

    hidden_FH: np.ndarray
    bias_H: np.ndarray
    out_H: np.ndarray
    lam: float = FORGETTING
    penalty: float = 1.0

    def given(self, record: VoterRecord, own_NV: np.ndarray) -> np.ndarray:
        """[N, V] what members give of whom `own` marks themselves."""
        x_NVF = voter_features(record, own_NV)
        score_NV = np.tanh(x_NVF @ self.hidden_FH + self.bias_H) @ self.out_H
        return shares(np.exp(score_NV - score_NV.max(-1, keepdims=True)))

    def weights(self, record: VoterRecord) -> np.ndarray:
        shape = record.right_NV.shape
        each = [
            self.given(record, np.broadcast_to(np.eye(shape[1])[i], shape))
            for i in range(shape[1] - 1)
        ]
        return np.mean(each, axis=0)


def voter_features(record: VoterRecord, own_NV: np.ndarray) -> np.ndarray:
    """[N, V, F]: share of right answers, the same with forgetting, the last answer, how many were seen, whether
    it is the adviser, and whether it is the member.
    """
    seen_NV = record.right_NV + record.wrong_NV
    adviser_NV = np.zeros_like(seen_NV)
    adviser_NV[:, -1] = 1
    return np.stack(
        [
            (1 + record.right_NV) / (2 + seen_NV),
            record.a_NV / (record.a_NV + record.b_NV),
            record.last_NV,
            np.log1p(seen_NV) / 3,
            adviser_NV,
            own_NV,
        ],
        -1,
    )


def marks_of(decisions: Sequence[InfluenceGiven]) -> np.ndarray:
    """[R, V] 1 where a voter is the member who gives; of rows without a member, the share 1 / members each."""
    voters = len(decisions[0].weight_V)
    even_V = np.array([1 / (voters - 1)] * (voters - 1) + [0])
    return np.array([even_V if d.member is None else np.eye(voters)[d.member] for d in decisions])


def fit_learned(decisions: Sequence[InfluenceGiven], rng: np.random.Generator) -> LearnedTrust:
    """The network with the least mean squared error after a fixed number of steps of Adam."""
    record, own_RV = record_of(decisions, FORGETTING, 1.0), marks_of(decisions)
    x = torch.from_numpy(voter_features(record, own_RV))
    y = torch.from_numpy(np.array([d.weight_V for d in decisions]))
    f = x.shape[-1]
    parts = [
        rng.standard_normal((f, WIDTH)) / f**0.5,
        np.zeros(WIDTH),
        0.1 * rng.standard_normal(WIDTH),
    ]
    w = [torch.from_numpy(p).requires_grad_() for p in parts]
    optimiser = torch.optim.Adam(w, lr=RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        q = torch.softmax(torch.tanh(x @ w[0] + w[1]) @ w[2], -1)
        ((q - y) ** 2).mean().backward()
        optimiser.step()
    hidden, bias, out = (p.detach().numpy() for p in w)
    return LearnedTrust(hidden, bias, out)


@dataclass(frozen=True, slots=True)
class TrustFits:
    """Models of trust, and the error of each on decisions that none was fitted on."""

    beta: BetaTrust
    learned: LearnedTrust
    errors: Mapping[str, float]
    held: Sequence[InfluenceGiven]

    @property
    def best(self) -> BetaTrust | LearnedTrust:
        return self.learned if self.errors["learned"] < self.errors["beta"] else self.beta


def fit_all(log: DecisionLog, rng: np.random.Generator) -> TrustFits:
    """Fits on four fifths of the teams, and measures on the others; of one team, on the decisions at its end."""
    train, held = split_log(log.decisions, rng)
    beta, learned = fit_beta(train), fit_learned(train, rng)
    quarter = fit_learned(train[: max(1, len(train) // 4)], rng)
    own_RV, counted = marks_of(held), record_of(held, FORGETTING, 1.0)
    errors = {
        "learned": error(learned.given(counted, own_RV), held),
        "learned from a quarter": error(quarter.given(counted, own_RV), held),
        "beta": error(beta.weights(record_of(held, beta.lam, beta.penalty)), held),
        "even": error(np.full(own_RV.shape, 1 / log.voters), held),
    }
    return TrustFits(beta, learned, errors, held)


def split_log(
    decisions: Sequence[InfluenceGiven], rng: np.random.Generator
) -> tuple[list[InfluenceGiven], list[InfluenceGiven]]:
    """What models are fitted on, and what they are measured on: other teams."""
    teams = list(dict.fromkeys(d.team for d in decisions))
    if len(teams) > 1:
        order = [teams[int(i)] for i in rng.permutation(len(teams))]
        held = {*order[: max(1, len(order) // 5)]}
        train = [d for d in decisions if d.team not in held]
        return train, [d for d in decisions if d.team in held]
    cut = max(1, 4 * len(decisions) // 5)
    if cut == len(decisions):
        raise pl.UserError(
            "a log needs two decisions at least: one to learn from, one to measure on"
        )
    return list(decisions[:cut]), list(decisions[cut:])


# ---- a language model in the place of members

LATEST = 12  # rounds that are shown
ASK = "You answer questions in a team, and then all learn who was right (+) or wrong (-), the latest last."
NEXT = "Whose answer do you trust most for the next question? Reply with the letter alone."


def question_of(before: Sequence[np.ndarray], voters: int) -> str:
    """What a model is asked before a round."""
    letters = [chr(65 + i) for i in range(voters)]
    lines = [
        f"{letters[i]} ({'AI assistant' if i == voters - 1 else 'person'}): "
        + ("".join("+" if r[i] else "-" for r in before[-LATEST:]) or "nothing yet")
        for i in range(voters)
    ]
    return "\n".join([ASK, *lines, NEXT])


@dataclass(frozen=True, slots=True)
class ModelTrust:
    """The influence that a language model gives: how likely its reply begins with the letter of each voter, among
    these letters.
    """

    model: Any
    lam: float = 1.0
    penalty: float = 1.0

    def weights(self, record: VoterRecord) -> np.ndarray:
        n, voters = record.right_NV.shape
        return self.given([[r[k] for r in record.rounds] for k in range(n)], voters)

    def given(self, before: Sequence[Sequence[np.ndarray]], voters: int) -> np.ndarray:
        """[N, V] for the rounds before."""
        letters = [chr(65 + i) for i in range(voters)]
        texts = [question_of(each, voters) for each in before]
        spell = lambda text, letter: pl.run.WrittenText(
            letter, (pl.Message(role="user", content=text),)
        )
        asked = [spell(text, letters[0]) for text in texts]
        pairs, _ = pl.run.spell_texts(self.model, asked)
        each, _ = pl.run.spell_texts(self.model, [spell(texts[0], x) for x in letters])
        first = [int(target[0]) for _, target in each]
        if len({*first}) < voters:
            raise pl.UserError(
                f"{self.model.name} spells the letters {', '.join(letters)} with one first token, so what it "
                "gives to each voter cannot be read; asked=0 leaves it out"
            )
        read = lambda logits_NK, _: torch.log_softmax(logits_NK, -1)[:, first]
        logps = [np.asarray(x)[0] for x in pl.models.score_pairs(self.model, pairs, read)]
        logp_NV = np.array(logps)
        return shares(np.exp(logp_NV - logp_NV.max(-1, keepdims=True)))
