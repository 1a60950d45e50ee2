"""Credit by another number than the reward: the label that a reward model learns from while its own
score is the reward.
"""

from __future__ import annotations

from dataclasses import replace

from palaestra.context import Credit
from palaestra.errors import UserError
from palaestra.types import Episode, Example, Groups, Signals, State, stage


@stage
class Labelled:
    """`credit` as if the part `part` were the reward. Episodes without it are left out, as errors
    are.

    Learner(credit=Labelled("gold", Compare()), objective=BradleyTerry(), ...) # beside Score(...,
    shadow=True)
    """

    part: str
    credit: Credit

    @property
    def keeps_equal(self) -> bool:
        """Groups in which the reward model sees no difference still have labels."""
        return True

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        scored = [e.reward for g in groups for e in g.episodes if e.ok and e.reward is not None]
        if scored and not any(self.part in r.parts for r in scored):
            raise UserError(
                f"no reward has the part {self.part!r} to learn from; there are "
                f"{', '.join(scored[0].parts)}"
            )
        relabelled = [replace(g, episodes=tuple(map(self._episode, g.episodes))) for g in groups]
        return self.credit(relabelled, signals, state)

    def _episode(self, episode: Episode) -> Episode:
        reward = episode.reward
        if not episode.ok or reward is None:
            return episode
        if self.part not in reward.parts:
            return replace(episode, status="error:unlabelled", reward=None)
        return replace(episode, reward=replace(reward, total=reward.parts[self.part], events=()))
