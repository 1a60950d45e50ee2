"""Training a judge of one's own: the prompts it will be asked with, and the verdicts it should
give.

A generative verifier (arXiv:2503.23829) or a principle-entailment model (RLBFF, arXiv:2509.21319)
is then

    judge = Judge(client=LocalModel("reward"), template=ENTAILMENT_PROMPT, read=Odds(form="log-odds"))
    Recipe(collect=links(..., Verdicts(judge, verdict)), learners={"reward": Learner(Imitate(), Imitation())}, ...)

and `Score(reward=judge)` in a later part of the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.judges.pointwise import Judge
from palaestra.judges.prompt import CAUTION, defuse, fields_of
from palaestra.rewards.verify import response_text
from palaestra.rollout.recorded import recorded_episode
from palaestra.types import Episode, Group, Key, Task, stage

if TYPE_CHECKING:
    from palaestra.context import Context

ENTAILMENT_PROMPT = f"""Does the response fulfil the principle? {CAUTION}

<question>{{question}}</question>
<response>{{response}}</response>
<rubric>{{principle}}</rubric>

{{instruction}}"""


@stage
class Verdicts:
    """Each scored episode as a demonstration: what `judge` is shown, and `verdict(task, episode)`
    as the trained reply.
    """

    judge: Judge
    verdict: Callable[[Task, Episode], str]
    model: str = "reward"

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        scored = [e for e in group.episodes if e.ok and e.reward is not None]
        return replace(group, episodes=tuple(self._shown(ctx, group.task, e) for e in scored))

    def _shown(self, ctx: Context, task: Task, episode: Episode) -> Episode:
        text = defuse(self.judge.extract(response_text(episode)))
        request = self.judge.request({**fields_of(task), "response": text})
        what = self.verdict(task, episode)
        return recorded_episode(
            ctx,
            self.model,
            request.messages,
            what,
            episode.total,
            of=f"task {task.id!r}: its judgement",
        )
