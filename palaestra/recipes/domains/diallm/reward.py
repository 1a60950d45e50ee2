"""What a dialogue over a record earns: tests that the record confirms, and a class that is rare."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import palaestra as pl


@pl.stage
class DiagnosisReward:
    """A link after `Score`: pays each turn at its last token. Parts: "confirmation", r_conf over the tests;
    "interpretation", over the results whose meaning was said; "diagnosis", r_dx; "right", 1 where the class is the record's.

    Args:
        confirm: for a test that the record confirms.
        abnormal: more, where its result is abnormal.
        unconfirmed: taken for a test that it does not confirm, that was asked before, or for a reply that cannot be read.
        cost: of every test.
        balance: weighs a right diagnosis by N / (K n_c), between `least` and `most`; False: by 1.
        wrong: taken for a wrong diagnosis.
        meaning: taken for a meaning of a result that is not its range's; the right one earns nothing, as asking would pay.
    """

    confirm: float = 0.2
    abnormal: float = 0.2
    unconfirmed: float = 0.05
    cost: float = 0.2
    balance: bool = True
    wrong: float = 1.0
    least: float = 0.2
    most: float = 5.0
    meaning: float = 0.2

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = findings_world(ctx)
        weights = world.weights(self.least, self.most) if self.balance else {}
        weight = weights.get(str(group.task.answer), 1.0)
        return replace(group, episodes=tuple(self._pay(e, weight) for e in group.episodes))

    def turns(self, outcomes: Sequence[str], weight: float) -> list[float]:
        """The reward of each turn; `weight` is that of the record's class."""
        worth: Mapping[str, float] = {
            "abnormal": self.confirm + self.abnormal - self.cost,
            "confirmed": self.confirm - self.cost,
            "unordered": -self.unconfirmed - self.cost,
            "missing": -self.unconfirmed - self.cost,
            "repeated": -self.unconfirmed - self.cost,
            "unread": -self.unconfirmed,
            "read": 0.0,
            "misread": -self.meaning,
            "right": weight,
            "wrong": -self.wrong,
        }
        return [worth[x] for x in outcomes]

    def _pay(self, e: pl.Episode, weight: float) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        outcomes = tuple(e.facts.get("outcomes", ()))
        paid = self.turns(outcomes, weight)
        events = tuple(
            replace(event, value=x) for event, x in zip(e.reward.events, paid, strict=False)
        )
        stated = bool(outcomes) and outcomes[-1] in ("right", "wrong")
        diagnosis = paid[-1] if stated else 0.0
        meanings = self.turns([x for x in outcomes if x in ("read", "misread")], weight)
        parts = {
            **e.reward.parts,
            "confirmation": sum(paid) - diagnosis - sum(meanings),
            "interpretation": sum(meanings),
            "diagnosis": diagnosis,
            "right": float(stated and outcomes[-1] == "right"),
        }
        reward = replace(
            e.reward, total=sum(paid), parts=parts, events=events, solved=parts["right"] == 1.0
        )
        return replace(e, reward=reward)


def findings_world(ctx: pl.Context) -> pl.worlds.AskFindings:
    """The world of the run. Raises UserError where it asks for no findings."""
    world = ctx.bench.world
    if not isinstance(world, pl.worlds.AskFindings):
        raise pl.UserError(
            "diallm asks for findings of records, and this environment has none; give --data FILE.csv with a column "
            'diagnosis, or --env "findings(label=COLUMN)"'
        )
    return world
