"""Credit without advantages: rows to imitate, and pairs to prefer."""

from __future__ import annotations

from typing import Any, Literal

from palaestra.credit.seats import split_by_seat
from palaestra.errors import UserError
from palaestra.types import Episode, Example, Group, Groups, Signals, State, rng_of, stage


@stage
class Imitate:
    """Every row of every valid, unmuted episode, with its signals and no advantage."""

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        examples = [
            Example(row=row, columns=dict(signals[g][e][r]))
            for g, group in enumerate(groups)
            for e, episode in enumerate(group.episodes)
            if episode.ok and not episode.muted
            for r, row in enumerate(episode.rows)
        ]
        return examples, state


def check_pairs(groups: Groups) -> None:
    """Raises UserError where every group is one recorded answer, as labelled data without pairs has
    it: nothing could be compared, so nothing would be learned.
    """
    alone = [g.episodes[0] for g in groups if len(g.episodes) == 1]
    authors = {s.author for e in alone for r in e.rows for s in r.segments if s.trained}
    if groups and len(alone) == len(groups) and authors == {"demonstration"}:
        raise UserError(
            f"task {groups[0].task.id!r} has one recorded answer and no pair, as all of this step; "
            "write columns chosen and rejected; `palaestra train kto` and `palaestra train bco` learn "
            "from labels without pairs"
        )


@stage
class Prefer:
    """One pair a group: its best against its worst episode, ties and lone episodes left out. Column
    `sign` is +1 or -1.

    Rows of a pair are one unit; every seat of self-play has its own pairs. `gap` is the least
    difference that makes a pair; the column `gap` is the pair's own, or what the data say of it.
    `rule`: who meets whom where not the best the worst (arXiv:2405.07863): "max_random" the best
    any other, "max_max" the best the second, "random" any two. `length_cost` is taken from an episode's
    reward for each of its trained tokens before they are ranked.
    """

    gap: float = 1e-9
    rule: Literal["", "max_random", "max_max", "random"] = ""
    length_cost: float = 0.0

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        check_pairs(groups)
        groups, signals = split_by_seat(groups, signals)
        examples: list[Example] = []
        for g, group in enumerate(groups):
            able = [
                e for e, episode in enumerate(group.episodes) if episode.ok and _trains(episode)
            ]
            score = {e: self._score(group.episodes[e]) for e in able}
            ranked = sorted(able, key=score.__getitem__)
            if len(ranked) < 2:
                continue
            better, worse = self._two(ranked, group)
            if score[better] - score[worse] < self.gap:
                continue
            gap = group.episodes[better].facts.get("gap", score[better] - score[worse])
            for e, sign in ((better, 1.0), (worse, -1.0)):
                for r, row in enumerate(group.episodes[e].rows):
                    columns: dict[str, Any] = {"sign": sign, "gap": gap, **signals[g][e][r]}
                    examples.append(Example(row=row, columns=columns, unit=f"pair {g}"))
        return examples, state

    def _score(self, episode: Episode) -> float:
        tokens = sum(len(s.ids) for r in episode.rows for s in r.segments if s.trained)
        return episode.total - self.length_cost * tokens

    def _two(self, ranked: list[int], group: Group) -> tuple[int, int]:
        """The better and the worse of a pair, from the worst to the best."""
        if self.rule == "max_max":
            return ranked[-1], ranked[-2]
        if not self.rule:
            return ranked[-1], ranked[0]
        rng = rng_of(("pair", group.task.id, *group.episodes[ranked[0]].rows[0].key))
        if self.rule == "max_random":
            return ranked[-1], ranked[int(rng.integers(len(ranked) - 1))]
        worse, better = sorted(rng.choice(len(ranked), 2, replace=False).tolist())
        return ranked[better], ranked[worse]


def _trains(episode: Episode) -> bool:
    """Whether it may be learned from, and has something to: a seat may be paid without having had
    its turn.
    """
    return not episode.muted and any(s.trained for r in episode.rows for s in r.segments)
