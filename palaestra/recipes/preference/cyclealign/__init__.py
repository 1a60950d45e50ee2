"""CycleAlign: a black box that can only be prompted ranks the policy's answers; where the policy's own
ranking agrees, the agreed ranking becomes a demonstration that the black box sees next.

A batch of prompts is met `rounds` times in a row. Each step is one interaction:

    1. k answers of the policy to each prompt; equal ones count once, and those that were cut not at all.
    2. The judge ranks them from a prompt with a rubric, the static demonstrations, which a person
       ranked, and up to `dynamic` demonstrations of earlier steps, the newest that there are. Answers are shown
       in random order. What is no permutation is asked for once more, then the prompt is skipped.
    3. The policy ranks them by s_i = the mean log-probability of answer i's tokens, in nats.
    4. agreed = the longest common subsequence of both rankings. If |agreed| / k >= `threshold`, the
       answers in it, in that order, are a demonstration from the next step on.
    5. The policy learns the judge's ranking as in RRHF (arXiv:2304.05302):

           L = sum over pairs, i ranked above j, of max(0, s_j - s_i)  +  sft * -s_best

       s_best of the answer ranked first; the mean over prompts.

(arXiv:2310.16271. The abstract has the cycle; the gate, the constants and the loss are inferred.) The judge
is a model folder or an endpoint, of which the text alone is read:

    palaestra train cyclealign --data prompts.jsonl judge="endpoint(url='http://HOST:PORT/v1',model='NAME')"
    palaestra train cyclealign --data prompts.jsonl judge=DIR read=letters

`read=letters` is for a small local model that does not write an order: it is asked for the best
response, and the ranking is that of the letters' probabilities, so it is no longer a black box.
`demonstrations=FILE.jsonl` brings static ones (prompt, and ranked, a list with the best first, or chosen
and rejected), and `rubric` the criteria. `rounds=1` is one-way distillation, `dynamic=0` static
demonstrations alone.

A share `compare` of the prompts is ranked a second time without the dynamic demonstrations, in the same
order of showing: `part/changed` is how often the ranking differs, which is what the cycle does to the judge.
Where the data have answers, `part/judge_right` and `part/policy_right` are the shares of pairs, one right and one
wrong, that each of the two orders rightly: the gate lets errors in that both share, and these show it.

Long because a cycle needs a part at each place of the loop: the repeated draw, both rankings and their agreement
as a reward, the audit of the judge, the memory of demonstrations, and RRHF's loss over a ranked list.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

import palaestra as pl
from palaestra.recipes.preference.cyclealign.ranking import (
    MOST,
    RUBRIC,
    STATIC,
    RankedExample,
    Reading,
    agreed_order,
    ask_ranking,
    pair_accuracy,
    read_examples,
)
from palaestra.recipes.preference.cyclealign.toy import noisy_judge

CARD = pl.Card(
    title="CycleAlign: iterative black-box to white-box distillation",
    paper="arXiv:2310.16271",
    claim="Rankings on which the black box and the policy agree, shown to the black box as "
    "demonstrations, make it rank better and the policy align better, with few labels.",
    source="abstract, and that of ACL 2024; the measure of agreement, the constants and the form of "
    "RRHF's loss are inferred",
    size=pl.Size(
        setting="ChatGPT as the black box, a 7B policy on HH-style prompts; sizes and numbers are "
        "not known to us",
        samples=4,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "answer",
                "any",
                ("42", "39", "49"),
                "the right answer, which trains nothing and audits the judge and the policy's ranking",
                otherwise="neither ranking is audited",
            ),
        ),
        models=(
            pl.needs.chat_model(
                "judge",
                "judge",
                "ranks replies from a prompt with demonstrations",
            ),
        ),
        shows="part/changed",
        off={"dynamic": 0},
        own={"read": "letters", "compare": 1.0, "schedule.prompts": 4, "threshold": 0.5},
    ),
    use="It helps where a judge that follows examples ranks better than the policy and labels are few; "
    "what both get wrong is agreed on too, and demonstrations then teach the judge the error.",
    lacks=(
        "Without data the judge is a program that errs less with right demonstrations, by "
        "its formula: there the run is a check of the mechanism, not evidence for the claim.",
        "Data of helpfulness and harmlessness, and the comparison with other methods, are not there.",
        "Reference answers of the data are not ranked beside the policy's own.",
        "Demonstrations that were agreed on are shown for any later prompt, and none is chosen for "
        "being like it.",
    ),
    grade="A",
)

PARTS = ("agreement", "accepted", "changed", "examples", "likelihood")


@pl.declare(
    columns=(("agreed_examples", tuple, "ranked responses of earlier steps, agreed on by both"),)
)
def put_examples(task: pl.Task, notes: Sequence[pl.curriculum.Note]) -> pl.Task:
    """The task with what was agreed on before."""
    examples = tuple(
        RankedExample(question=n.text, responses=tuple(n.facts["responses"])) for n in notes
    )
    return replace(task, meta={**task.meta, "agreed_examples": examples})


def agreed_example(group: pl.Group) -> list[pl.curriculum.Note]:
    """The agreed ranking of a group as a note; none where the gate was shut."""
    placed: list[tuple[int, str]] = []
    for episode in group.valid:
        if episode.muted:
            continue
        place = episode.facts.get("labels", {}).get("agreed")
        if place is not None:
            placed.append((int(place), pl.judges.reply_after_thinking(pl.response_text(episode))))
    if not placed:
        return []
    responses = [text for _, text in sorted(placed)]
    question = pl.tasks.question_text(group.task)
    return [pl.curriculum.Note(text=question, about=group.task.id, facts={"responses": responses})]


@pl.stage
class RepeatedBatch:
    """Draws the same tasks `rounds` times in a row, then the next ones of `source`."""

    rounds: int = 3
    source: pl.Draw = pl.Shuffled()

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        drawn, before = int(state.get("drawn", 0)) + 1, state.get("before", {})
        tasks, after = self.source(ctx, key, n, dict(before))
        ends = drawn >= self.rounds
        more = {"drawn": 0, "before": after} if ends else {"drawn": drawn, "before": before}
        return tasks, {**state, **more}


@pl.stage
class RankByJudge:
    """A reward: 1 for the answer that the judge ranks first, 0 for the last one, evenly between; equal
    answers get the same. Muted ones, as those that were cut, are not ranked and get 0. Parts:
    NAME `agreement` = |agreed| / k, `accepted` = the gate was open,
    `changed` = the dynamic demonstrations changed the ranking, `examples` = how many were shown, `likelihood` = s_i.
    The label `agreed` is an answer's place in the agreed ranking where the gate was open.

    Args:
        judge: who ranks.
        read: how a ranking is read of it, see the module.
        static: demonstrations that are always shown.
        threshold: of the gate.
        compare: the share of tasks that are ranked a second time without dynamic demonstrations.
    """

    judge: pl.Source
    read: Reading = "order"
    rubric: str = RUBRIC
    static: tuple[RankedExample, ...] = STATIC
    threshold: float = 0.75
    compare: float = 0.25

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        whole = tuple(e for e in group.episodes if not e.muted)
        ranked = iter(await self._ranked(ctx, replace(group, episodes=whole)))
        cut = pl.Reward(total=0.0, silent=PARTS)
        return [cut if e.muted else next(ranked) for e in group.episodes]

    async def _ranked(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        """The rewards of answers that came to their end."""
        texts = [pl.judges.reply_after_thinking(pl.response_text(e)) for e in group.episodes]
        distinct = list(dict.fromkeys(texts))
        k = len(distinct)
        if k < 2:  # there is nothing to rank, and nothing is learned from equal rewards
            return [pl.Reward(total=0.5, silent=PARTS) for _ in texts]
        question = pl.tasks.question_text(group.task)
        dynamic = tuple(group.task.meta.get("agreed_examples", ()))
        shown_k = pl.rng_of(("shown", ctx.seed, ctx.step, group.task.id)).permutation(k).tolist()

        async def rank(examples: tuple[RankedExample, ...]) -> list[int] | None:
            client = ctx.client(self.judge)
            return await ask_ranking(
                client, self.read, self.rubric, examples, question, distinct, shown_k
            )

        ranking = await rank((*self.static, *dynamic))
        if ranking is None:
            detail = f"the judge ranked none of {k} answers to task {group.task.id!r}"
            return [pl.Fault("judge-unparsed", detail)] * len(texts)
        s_k = self._likelihoods(ctx, group, texts, distinct)
        agreed = agreed_order(ranking, sorted(range(k), key=lambda i: -s_k[i]))
        accepted = len(agreed) >= max(2, self.threshold * k)
        parts = {
            "agreement": len(agreed) / k,
            "accepted": float(accepted),
            "examples": float(len(dynamic)),
        }
        silent: tuple[str, ...] = ("changed",)
        if dynamic and pl.rng_of(("compare", ctx.seed, group.task.id)).random() < self.compare:
            alone = await rank(self.static)
            if alone is not None:
                parts, silent = {**parts, "changed": float(alone != ranking)}, ()
        place = {n: i for i, n in enumerate(ranking)}
        at = {n: i for i, n in enumerate(agreed)} if accepted else {}
        rewards: list[pl.Reward | pl.Fault] = []
        for e, text in enumerate(texts):
            n = distinct.index(text)
            first = texts.index(text) == e
            rewards.append(
                pl.Reward(
                    total=1 - place[n] / (k - 1),
                    parts={**parts, "likelihood": s_k[n]},
                    silent=silent,
                    labels={"agreed": str(at[n])} if first and n in at else {},
                )
            )
        return rewards

    def _likelihoods(
        self, ctx: pl.Context, group: pl.Group, texts: Sequence[str], distinct: Sequence[str]
    ) -> list[float]:
        """[k] s_i of each different answer, in nats per token."""
        (signals,) = ctx.measure([group], (("policy", "logp"),))
        s_k: list[float] = []
        for text in distinct:
            e = texts.index(text)
            rows = [row.view() for row in group.episodes[e].rows]
            total = sum(
                float(x["policy_logp"][row.trained_T].sum())
                for x, row in zip(signals[e], rows, strict=True)
            )
            s_k.append(total / max(1, sum(int(row.trained_T.sum()) for row in rows)))
        return s_k


@pl.stage
class AuditRankings:
    """Adds the parts `judge_right` and `policy_right`: the shares of pairs of different gold that the
    judge's and the policy's ranking order rightly. Without the part "gold" it adds nothing.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        paid = [
            e.reward
            for e in group.valid
            if e.reward and {"gold", "likelihood"} <= e.reward.parts.keys()
        ]
        gold_k = [r.parts["gold"] for r in paid]
        scores = {
            "judge_right": [r.total for r in paid],
            "policy_right": [r.parts["likelihood"] for r in paid],
        }
        shares = {name: pair_accuracy(x, gold_k) for name, x in scores.items()}
        parts = {name: x for name, x in shares.items() if x is not None}
        silent = tuple(name for name, x in shares.items() if x is None)
        episodes = tuple(
            replace(
                e,
                reward=replace(
                    e.reward,
                    parts={**e.reward.parts, **parts},
                    silent=(*e.reward.silent, *silent),
                ),
            )
            if e.reward
            else e
            for e in group.episodes
        )
        return replace(group, episodes=episodes)


@pl.stage
class RankRows:
    """The rows of each group as one unit, with the column `rank`: 0 for the best answer. Answers of
    equal reward are the same answer, and one of them is kept; a group with less than two is left out.
    """

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples: list[pl.Example] = []
        for g, group in enumerate(groups):
            by_total: dict[float, int] = {}
            for e, episode in enumerate(group.episodes):
                if episode.ok and not episode.muted and episode.reward is not None:
                    by_total.setdefault(episode.total, e)
            if len(by_total) < 2:
                continue
            for rank, total in enumerate(sorted(by_total, reverse=True)):
                e = by_total[total]
                for r, row in enumerate(group.episodes[e].rows):
                    columns: dict[str, Any] = {"rank": float(rank), **signals[g][e][r]}
                    examples.append(pl.Example(row=row, columns=columns, unit=f"group {g}"))
        return examples, state


@pl.stage
class RankedLikelihood(pl.Algebra):
    """RRHF's loss on a ranked list: sum over i above j of max(0, s_j - s_i) - sft * s_best, the mean
    over lists; s = mean log-probability of an answer's tokens, in nats. Needs the column `rank`.

    Logs `rank_loss`, `nll_best`, and `ordered` = the share of a list's pairs that s orders as the
    ranking does.
    """

    sft: float = 1.0

    @property
    def couples(self) -> pl.objective.Couples:
        return "unit"

    def __call__(
        self, out: pl.Outputs, batch: pl.Batch
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        place_B2 = torch.stack([batch.unit_B.long(), batch["rank"].long()], 1)
        # [A] answers: the turns of one are rows of their own
        answer_A2, of_B = place_B2.unique(dim=0, return_inverse=True)
        zero_A = out["logp"].new_zeros(len(answer_A2))
        logp_A = zero_A.index_add(0, of_B, (out["logp"] * batch.mask).sum(1))
        tokens_A = zero_A.index_add(0, of_B, batch.mask.sum(1).to(zero_A.dtype))
        s_A, (unit_A, rank_A) = logp_A / tokens_A.clamp(min=1), answer_A2.T
        above_AA = (unit_A[:, None] == unit_A) & (rank_A[:, None] < rank_A)
        lead_AA = s_A[:, None] - s_A  # of the better one, in nats
        rank_loss = (-lead_AA).clamp(min=0)[above_AA].sum() / batch.n_units
        nll_best = -s_A[rank_A == 0].sum() / batch.n_units
        pairs_A = above_AA.sum(1)
        of_list_A = zero_A.new_tensor([float(pairs_A[unit_A == u].sum()) for u in unit_A])
        right_A = ((lead_AA > 0) & above_AA).sum(1) / of_list_A.clamp(min=1)
        logged = {
            "rank_loss": rank_loss.detach(),
            "nll_best": nll_best.detach(),
            "ordered": right_A.sum().detach() / batch.n_units,
        }
        return rank_loss + self.sft * nll_best, logged


def build(
    judge: pl.Source | None = None,
    read: Reading = "order",
    k: int = 4,
    rounds: int = 3,
    dynamic: int = 2,
    threshold: float = 0.75,
    demonstrations: str = "",
    rubric: str = RUBRIC,
    sft: float = 1.0,
    temperature: float = 1.0,
    compare: float = 0.25,
) -> pl.Recipe:
    """Args:
    judge: None = a frozen copy of the start, which a run on data refuses.
    dynamic: demonstrations that were agreed on, at most; 0 = the judge sees static ones alone.
    sft: the weight of the best answer's negative log-likelihood.
    compare: the share of prompts that are ranked a second time without them; 0 = `part/changed` is not measured.
    """
    pl.check_bounds("cyclealign: k", k, least=2, most=MOST)
    pl.check_bounds("cyclealign: rounds", rounds, least=1)
    pl.check_bounds("cyclealign: dynamic", dynamic, least=0)
    pl.check_bounds("cyclealign: threshold", threshold, least=0, most=1)
    static = read_examples(demonstrations) if demonstrations else STATIC
    rank = RankByJudge(judge or pl.LocalModel("ref"), read, rubric, static, threshold, compare)
    repeated = RepeatedBatch(rounds)
    recipe = pl.vary(
        pl.recipe("grpo"),
        draw=pl.curriculum.Recalled(put_examples, dynamic, repeated) if dynamic else repeated,
        collect=pl.links(
            pl.Sample(n=k, temperature=temperature),
            pl.rollout.MuteTruncated(),
            pl.Score(reward=rank, shadow=True),
            AuditRankings(),
        ),
        credit=RankRows(),
        objective=RankedLikelihood(sft),
        optimiser=pl.AdamW(lr=2e-5),  # that of RRHF's released code
        references={} if judge else {"ref": "policy"},
        schedule=pl.Schedule(prompts=16, steps=30),
    )
    if not dynamic:
        return recipe
    return pl.vary(recipe, observe=pl.curriculum.Memorise(agreed_example, dynamic))


def embedded(judge: pl.Source | None = None, **options: Any) -> pl.Recipe:
    """On the built-in problem, where a program ranks unless a judge is given, see `toy`."""
    return build(judge or pl.Scripted(noisy_judge, "noisy judge"), **options)
