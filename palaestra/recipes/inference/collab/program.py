"""Decoding with several models as a program: its budget, the search, and the ways it is compared
with.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.inference.collab.search import (
    Method,
    ProblemInRun,
    Spending,
    best_of_n,
    greedy,
    joint_answers,
)


@pl.stage
class ControlledDecoding:
    """A program: answers held-out problems by one way to decode with the models `agents`.

    Its summary has the mean of the target and of its parts, forwards a problem, nats a token under
    the run's own model, the share of tokens that each agent chose, and searches a problem. In the
    run folder answers.jsonl has each answer, beside the greedy one of each agent alone.

    Args:
        method: `collab` as above, with one agent controlled decoding by it alone; `best of n` takes
            the best of the agents' samples, in turn; `switch` the best of answers in which an agent
            is drawn for every token; `average` the best of answers from the mean of their logits.
        agents: models by name, "policy" the run's own. They have its vocabulary.
        target: the reward that is decoded for; None = that of the problem.
        forwards: budget of a problem; 0 = one greedy answer of the first agent.
        alpha: weight of the KL to the run's own model.
        horizon: tokens of an end that Q looks ahead; 0 = to the end of the text.
        temperature: of samples.
        misjudged: Q is the target of another problem: a placebo.
        tasks: held-out problems.
    """

    method: Method = "collab"
    agents: tuple[str, ...] = ("policy",)
    target: pl.RewardFn | None = None
    forwards: int = 1500
    alpha: float = 0.03
    horizon: int = 0
    temperature: float = 1.0
    misjudged: bool = False
    tasks: int = 24

    async def run(self, ctx: pl.Context) -> pl.Result:
        return pl.Result(metrics=await ctx.once("answers", lambda: self._measure(ctx)))

    async def _measure(self, ctx: pl.Context) -> dict[str, Any]:
        self._check(ctx)
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        spendings = [Spending(self.forwards) for _ in tasks]
        places = [
            ProblemInRun(ctx, task, tasks[(i + 1) % len(tasks)], spent, self)
            for i, (task, spent) in enumerate(zip(tasks, spendings, strict=True))
        ]
        answers = await asyncio.gather(*map(self._answer, places))
        spent = [s.spent for s in spendings]
        ctx.spend("forwards", sum(spent))
        rewards = [await p.reward(a.ids, p.task) for p, a in zip(places, answers, strict=True)]
        by = [j for a in answers for j in a.by if j >= 0]
        chosen = {n: by.count(j) / len(by) for j, n in enumerate(self.agents) if by}
        searches = float(np.mean([a.searches for a in answers]))
        target = float(np.mean([r.total for r in rewards]))
        ctx.log({"target": target, "searches": searches, "chosen_by": chosen})
        if ctx.out is not None:
            await self._keep(ctx, places, answers, rewards)
        return {
            "target": target,
            **{name: float(np.mean([r.parts[name] for r in rewards])) for name in rewards[0].parts},
            "tokens": float(np.mean([len(a.ids) for a in answers])),
            "forwards": float(np.mean(spent)),
            "nats": reference_nats(ctx, tasks, answers),
            "chosen_by": chosen,
            "searches": searches,
            "sampled_tokens": 0,
        }

    async def _keep(
        self,
        ctx: pl.Context,
        places: Sequence["ProblemInRun"],
        answers: Sequence[pl.engines.SignedAnswer],
        rewards: Sequence[pl.Reward],
    ) -> None:
        """Writes answers.jsonl, and says what each agent is worth alone; these answers are in no budget."""
        lines: list[dict[str, Any]] = []
        for place, answer, reward in zip(places, answers, rewards, strict=True):
            alone = dict[str, Any]()
            for name in self.agents:
                free = ProblemInRun(ctx, place.task, place.task, Spending(0), self)
                own = await greedy(free, name)
                worth = await free.reward(own.ids, place.task)
                alone[name] = {"text": ctx.decode(own.ids), "target": worth.total}
            by = [self.agents[j] for j in answer.by if j >= 0]
            lines.append(
                {
                    "id": place.task.id,
                    "prompt": "\n".join(m.shown for m in place.task.prompt),
                    "text": ctx.decode(answer.ids),
                    "target": reward.total,
                    "chosen_by": {name: by.count(name) / len(by) for name in self.agents if by},
                    "alone": alone,
                }
            )
        pl.tasks.write_records(ctx.folder / "answers.jsonl", lines)
        mean = lambda values: float(np.mean(list(values)))
        each = ", ".join(
            f"{name} {mean(x['alone'][name]['target'] for x in lines):.3g}" for name in self.agents
        )
        ctx.say(
            f"target {mean(x['target'] for x in lines):.3g}; each agent alone, greedily: {each}"
        )

    def _check(self, ctx: pl.Context) -> None:
        """Raises UserError where the agents cannot go on from one another's tokens, or where nobody
        judges an answer.
        """
        own = ctx.model("policy")
        for agent in map(ctx.model, self.agents):
            if agent.tokenizer.get_vocab() != own.tokenizer.get_vocab():
                raise pl.UserError(
                    f"the agent {agent.name} has another vocabulary than {own.name}, and agents go "
                    "on from one another's tokens; use fine-tunes of one base"
                )
        if self.target is None and ctx.bench.reward is None:
            raise pl.UserError(
                f"nobody judges an answer before {ctx.bench.name} ends; give a reward, "
                "target=FILE.py:NAME"
            )

    async def _answer(self, place: "ProblemInRun") -> pl.engines.SignedAnswer:
        if self.method == "collab":
            return await pl.engines.TokenSearch(place).answer()
        if not self.forwards:
            return await greedy(place, self.agents[0])
        answers = await (best_of_n(place) if self.method == "best of n" else self._joint(place))
        values = await place.judge([a.ids for a in answers])
        return answers[max(range(len(answers)), key=values.__getitem__)]

    async def _joint(self, place: "ProblemInRun") -> list[pl.engines.SignedAnswer]:
        """Answers to whose every token all agents are heard, some at a time, until the next might
        not be paid for.
        """
        answers: list[pl.engines.SignedAnswer] = []
        price = len(self.agents) * place.limit
        while (n := place.spending.left // price) or not answers:
            answers += joint_answers(place, max(1, n), len(answers), self.method == "average")
        return answers


def reference_nats(
    ctx: pl.Context, tasks: Sequence[pl.Task], answers: Sequence[pl.engines.SignedAnswer]
) -> float:
    """-log p of the answers under the run's own model, in nats a token."""
    dialect = ctx.engine("policy").dialect
    pairs = []
    for task, answer in zip(tasks, answers, strict=True):
        heard = dialect.extend(task.prompt, first=True, closed=False)
        pairs.append((tuple(i for s in heard for i in s.ids), tuple(answer.ids)))
    logps = pl.models.score_pairs(ctx.model("policy"), pairs)
    return -float(sum(x.sum() for x in logps)) / max(1, sum(map(len, logps)))
