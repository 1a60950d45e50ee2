"""Reasoning-SQL: GRPO on text-to-SQL. The query is run on the user's database, and one that is
nearly right earns a part of the reward.

    r = 3 [rows equal] + 2 J + [runs] + Jaccard(names) + Jaccard(word bigrams) + [format]            (arXiv:2503.23157)

on `<reasoning></reasoning><answer>SQL</answer>`; J in [0, 1] is a judge's rating of the query
against the reference, names are the tables and columns that both use. The weights are to put every
right query above every wrong one. They do not: a wrong one can have nearly 6, a right one with J =
0 and no likeness has 5. So a query with other rows is held below 3 + runs
+ format, a guard of ours. GRPO on groups of six. Without a judge the terms but J remain, 7 at most.

The verifier `sql-partial` has the rules: read-only, 5 s, multisets of rows unless the reference has
ORDER BY, empty reply only format. A judge sees no comments (they can talk to it); its failure
leaves the episode unscored. Equal rewards: advantage 0.
"""

import asyncio
from dataclasses import replace

import palaestra as pl

CARD = pl.Card(
    title="Reasoning-SQL: partial rewards for text-to-SQL",
    paper="arXiv:2503.23157",
    claim="Partial rewards beside execution make GRPO more accurate on text-to-SQL than execution "
    "alone, and than SFT.",
    source="weights from two second-hand accounts that agree; n = 2, tag names and the guard are "
    "ours",
    size=pl.Size(
        setting="Qwen2.5-Coder 3B, 7B and 14B, 8,026 BIRD questions, 6 samples, batch 32, lr 1e-6, "
        "3 epochs",
        model="qwen2.5-14b",
        prompts=32,
        samples=6,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                (
                    "Tables: city(name, people). How many cities are there? Reason in "
                    "<reasoning></reasoning>, then write the query in <answer></answer>.",
                ),
                "the question with what it needs to know of the tables, and the form of the reply",
            ),
            pl.needs.NeededColumn(
                "answer", "text", ("SELECT COUNT(*) FROM city",), "the reference query"
            ),
            pl.needs.NeededColumn(
                "schema",
                "any",
                ("CREATE TABLE city(name, people); INSERT INTO city VALUES ('Ulm', 126);",),
                "a script that makes the database with its rows, or a list of scripts",
                otherwise="the column `database` has the path of a sqlite file",
            ),
        ),
        models=(
            pl.needs.chat_model(
                "judge",
                "judge",
                "rates a query against the reference",
                otherwise="the reward is without the judge's term",
            ),
        ),
        shows="reward",
        # execution alone pays nothing for a query that is nearly right
        off={
            "collect.links.1.reward.reward.name": "sql",
            "collect.links.1.reward.reward.paper": False,
        },
        own={
            "taught_replies": ("<reasoning>all</reasoning><answer>SELECT name FROM city</answer>",),
            "schedule.prompts": 2,
            "collect.links.0.n": 2,
            "max_tokens": 96,
        },
    ),
    use="It helps where few queries return the right rows, so that execution alone gives no "
    "signal; the likeness of words also pays queries that only look like the reference.",
    lacks=(
        "Training questions whose reference query is wrong are not filtered out.",
        "BIRD and Spider are not evaluated.",
    ),
    grade="A",
)

RUBRIC = (
    "A good query asks for what the question asks for, with the tables, conditions and columns of "
    "the reference."
)
ASK = "Reason in <reasoning></reasoning>, then write the query in <answer></answer>."
PARTIAL = pl.Rewritten(
    pl.Verified("sql-partial", paper=True),
    unless="schema",
    write=pl.rewards.AsQuery(("reasoning", "answer")),
)


@pl.declare(columns=(("feedback", float, "what the first attempt was paid"),))
@pl.stage
class WithFeedback:
    """`reward` with a judge's verdict of each response as the field `feedback`. A judge's fault
    stays a fault.
    """

    reward: pl.RewardFn
    judge: pl.RewardFn

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        verdicts = await self.judge(ctx, group)

        async def one(i: int) -> pl.Reward | pl.Fault:
            verdict = verdicts[i]
            if isinstance(verdict, pl.Fault):
                return verdict
            task = replace(group.task, meta={**group.task.meta, "feedback": verdict.total})
            return (await self.reward(ctx, pl.Group(task=task, episodes=(group.episodes[i],))))[0]

        return list(await asyncio.gather(*map(one, range(len(group.episodes)))))


def build(judge: pl.Source | None = None, reward: pl.RewardFn = PARTIAL) -> pl.Recipe:
    if judge is not None:
        reward = WithFeedback(
            reward, pl.Judge(client=judge, rubric=RUBRIC, extract=pl.verifiers.extract_query)
        )
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=6), pl.Score(reward=reward)),
        instruction=ASK,
    )
