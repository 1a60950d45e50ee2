"""Optima: two agents talk, and learn from those of their dialogues that are right, short and readable.
Both agents are the policy, each with a context that the other does not see; the first stated answer
ends the talk.

    R = R_task - tokens * (tokens of the dialogue / those of the longest of the question)
        + readable * min(1, 1 / worst NLL)

R_task is what the dialogue is paid: 1 for the right answer, else the F1 of its words. The worst NLL
is the largest over messages of the mean NLL of a message's tokens, in nats, under a frozen copy of the
start, so that no private code pays; the last term is 0 where an agent says the same twice. tokens is
0.6, readable 1 (arXiv:2410.08115; thunlp/Optima: deploy_reward.py, monte_carlo_deploy.py, dpo.py).
Each step is a round: generate, rank, select, train.

iSFT  imitates the best of 8 dialogues of a question, if its R is `least` or more and its R_task
      `least_task` or more, without which what is wrong, but short, would be imitated.

iDPO  grows a tree of dialogues, a message a node, worth the mean R of the dialogues through it. The
      first `rollouts` dialogues begin at its root. Each of `expansions` expansions draws a node that a
      dialogue went on from, by softmax of the values of the ten best, without those whose message
      is nearer than 0.25 (edit distance over length) to that of a node that was expanded, and goes
      on from it in `rollouts` dialogues; where none is left, from the root. Messages after one node nearer
      than 0.1 are one node, unless they state different answers. The best and the worst message after a
      node are a pair, if V of the best is above `least` and they are `gap` apart; the half of a batch's
      pairs with the best V learns by

          DPO(beta 0.1) + mean NLL of the tokens of the chosen message

iSFT-DPO  takes turns, in the parts of a pipeline: `rounds` of both.

In the released code a node that is expanded has grandchildren, the longest dialogue is a percentile of
100 probes, 1 / NLL has no bound, R_task has no least, the first round has a pool of formats to ask for, and a talk also ends
when both say the same. In iSFT-DPO the frozen copy and DPO's reference are those of the part's start.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import palaestra as pl
from palaestra.recipes.preference.optima.trees import (
    COST,
    SCORER,
    DialogueReward,
    DialogueTree,
    MessagePairs,
    cost_of,
)

CARD = pl.Card(
    title="Optima: effectiveness and efficiency of multi-agent LLM communication",
    paper="arXiv:2410.08115",
    claim="Iterated generation, ranking and training make two agents right more often with far fewer tokens.",
    source="released code (thunlp/Optima: deploy_reward.py, reward.py, monte_carlo_deploy.py, dpo.py) and the "
    "abstract",
    size=pl.Size(
        setting="Llama 3 8B on HotpotQA, 2WikiMultiHopQA, TriviaQA, CBT, MATH, GSM8K, ARC-C and MMLU; 10 dialogues "
        "or 8 expansions of 3 a question, temperature 0.7, lr 2e-5 of iSFT and 5e-7 of iDPO, 5 to 6 rounds",
        model="llama-3.1-8b",
        lr=2e-5,
    ),
    task="halves",
    world="dialogue",
    needs=pl.needs.Requirements(
        columns=(
            replace(
                pl.needs.PROMPT,
                examples=(
                    "When was the author of Emma born?",
                    "Who wrote the older book?",
                    "How many legs have both animals?",
                ),
            ),
            replace(pl.needs.ANSWER, examples=("1775", "Ann Lee", "12"), otherwise=""),
            pl.needs.NeededColumn(
                "context_a",
                "text",
                ("Emma is by Jane Austen.", "Rain is by Ann Lee, of 1950.", "Mine is an ant."),
                "what only the first agent knows",
            ),
            pl.needs.NeededColumn(
                "context_b",
                "text",
                ("Jane Austen was born in 1775.", "Snow is by Bo Li, of 1960.", "Mine is a bee."),
                "what only the second agent knows",
            ),
        ),
        shows="trained_cost",
        off={"tokens": 0.0},
        own={
            "schedule.prompts": 4,
            "dialogues": 4,
            "least_task": 0.0,
            "env": "dialogue(turns=3,plain=1)",
            "max_tokens": 12,
        },
    ),
    use="It helps where an answer needs what two agents know apart and they talk at length; where one of them knows "
    "enough, it only shortens, and where working a question out makes the answer right, the cost of tokens favours "
    "lucky guesses: lower `tokens`.",
    lacks=(
        "Reasoning in a debate of a solver and a critic on one question is not there.",
        "Single agents and untrained multi-agent systems, with which the abstract compares, are not run beside.",
        "How accuracy grows with more dialogues at inference is not measured.",
        "The released reward's penalties of very short and very long dialogues and of wrong speakers are not "
        "there, so a lucky short guess is not punished.",
        "Readability is measured given the dialogue so far, where the released code takes each message alone.",
        "In isft-dpo the scorer of readability is the model at each part's start, not the first model.",
        "The first round has no pool of formats, and iSFT keeps the best of the batch, not of each question.",
    ),
    grade="B",
)

Variant = Literal["isft", "idpo", "isft-dpo"]


@pl.stage
class BestDialogue:
    """Rows of the best dialogue of each group, if its reward is `least` or more and what the task paid
    for it is `least_task` or more.
    """

    least: float = 0.5
    least_task: float = 0.5
    needs_several: ClassVar[bool] = True

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples: list[pl.Example] = []
        for g, group in enumerate(groups):
            able = [i for i, e in enumerate(group.episodes) if e.ok and not e.muted]
            best = max(able, key=lambda i: group.episodes[i].total, default=None)
            if best is None or not self._is_good(group.episodes[best]):
                continue
            for row, signal in zip(group.episodes[best].rows, signals[g][best], strict=True):
                columns = {**signal, COST: cost_of(group.episodes[best], row)}
                examples.append(pl.Example(row=row, columns=columns))
        return examples, state

    def _is_good(self, e: pl.Episode) -> bool:
        assert e.reward is not None
        task = e.reward.parts.get("task", e.total)
        return e.total >= self.least and task >= self.least_task


def isft(
    reward: DialogueReward, dialogues: int = 8, least: float = 0.5, least_task: float = 0.5
) -> pl.Recipe:
    """Imitates the best dialogue of each question."""
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=dialogues, temperature=0.7), pl.Score(), reward),
        credit=BestDialogue(least, least_task),
        objective=pl.Imitation(),
        references={SCORER: "policy"},
    )


def idpo(
    reward: DialogueReward,
    expansions: int = 8,
    rollouts: int = 3,
    least: float = 0.5,
    gap: float = 0.2,
    share: float = 0.5,
    beta: float = 0.1,
) -> pl.Recipe:
    """Learns from pairs of messages of a tree of dialogues."""
    return pl.vary(
        pl.recipe("dpo", beta=beta),
        collect=pl.links(DialogueTree(expansions, rollouts, reward)),
        credit=MessagePairs(least, gap, share),
        objective=pl.DPO(beta=beta) + pl.objective.ImitatePreferred(),
        references={"ref": "policy", SCORER: "policy"},
    )


def build(
    variant: Variant = "isft",
    tokens: float = 0.6,
    readable: float = 1.0,
    dialogues: int = 8,
    expansions: int = 8,
    rollouts: int = 3,
    least: float = 0.5,
    least_task: float = 0.5,
    gap: float = 0.2,
    share: float = 0.5,
    beta: float = 0.1,
    rounds: int = 2,
) -> pl.Recipe | pl.Pipeline:
    """`tokens` and `readable` weigh the two terms beside the task's. `dialogues` a question and
    `least_task` are of iSFT, `expansions`, `rollouts`, `gap`, `share` and `beta` of iDPO, `rounds` of isft-dpo.
    """
    for name, weight in (("tokens", tokens), ("readable", readable)):
        pl.check_bounds(name, weight, least=0)
    pl.check_bounds("rounds", rounds, least=1)
    reward = DialogueReward(tokens, readable)
    imitation = isft(reward, dialogues, least, least_task)
    if variant == "isft":
        return imitation
    pairs = idpo(reward, expansions, rollouts, least, gap, share, beta)
    if variant == "idpo":
        return pairs
    parts, before = dict[str, pl.Part](), None
    for n in range(1, rounds + 1):
        for name, recipe in ((f"isft-{n}", imitation), (f"idpo-{n}", pairs)):
            parts[name] = pl.Part(recipe, model=before)
            before = pl.Output(name)
    return pl.Pipeline(parts=parts)


def embedded(variant: Variant = "isft", **options: Any) -> pl.Recipe | pl.Pipeline:
    """On the embedded problem: a few steps of each part."""
    made = build(variant, **options)
    few = pl.Schedule(prompts=8, steps=15)
    if isinstance(made, pl.Recipe):
        return pl.vary(made, schedule=few)
    return pl.Pipeline(
        parts={
            name: replace(part, runnable=pl.vary(part.runnable, schedule=few))
            for name, part in made.parts.items()
        }
    )
