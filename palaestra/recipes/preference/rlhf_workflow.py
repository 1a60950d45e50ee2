"""RLHF Workflow: online iterative RLHF. The policy answers new prompts, a reward model ranks its
answers, and DPO learns from the best against the worst, again and again.

One step is one iteration t = 1..T (`--steps T`; the paper has 3 of 20,000 prompts, `schedule.prompts`):

    1. k answers of pi_t to each prompt, at `temperature`.
    2. A proxy of human feedback scores them; r' = r - length_penalty * (tokens of the answer).
    3. One pair a prompt by `rule`: "max_min" the best against the worst, "max_random" the best against any
       other, "max_max" the best against the second, "random" any two. Equal scores make no pair, and
       an answer that was cut at the limit is in none.
    4. From pi_t, with a fresh optimiser, `epochs` of `minibatches` steps of DPO with smoothed labels

       loss = (1 - s) softplus(-z) + s softplus(z),    z = beta (h(better) - h(worse)),   h = log pi - log pi_ref

       and the result is pi_{t+1}. pi_ref is pi_t (reference=moving), or the first policy (reference=start).

(arXiv:2405.07863; the released code has both references, and k = 4, where the paper's 8 is the default.) The theory has a second,
exploring policy where the two are least sure of each other; the best and the worst of k samples stand for
the two policies. Who ranks, one of

    reward=DIR            a reward model, as `palaestra train reward-model` writes it or of the hub
    judge=endpoint(url='http://HOST:PORT/v1',model='NAME')   a tournament: every two answers, in both orders
    pairs=PAIRS.jsonl     a reward model is trained on these pairs first (prompt, chosen, rejected), in
                          the same run
    --reward              any reward, the answers of the data by default

    palaestra train rlhf-workflow --data prompts.jsonl reward=DIR

A policy finds what its reward model overrates, length first: watch `length`, raise `length_penalty`, and
compare `reward` with `part/gold` where the data have answers.
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="RLHF Workflow: online iterative RLHF",
    paper="arXiv:2405.07863",
    claim="Online iterative preference learning with a proxy of human feedback is far better than "
    "its offline counterpart.",
    source="abstract and released code (RLHFlow/Online-RLHF)",
    size=pl.Size(
        setting="LLaMA-3-8B after supervised fine-tuning, 3 iterations of 20,000 prompts, beta 0.1, "
        "lr 5e-7, batches of 128 pairs, 2 epochs, 2,048 tokens",
        model="llama-3.1-8b",
        prompts=20_000,
        samples=8,
        tokens=2048,
        lr=5e-7,
        arguments={"minibatches": 156},
        beside={"reward model": 8.0},
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "answer",
                "any",
                ("42", "39", "49"),
                "the right answer, which ranks replies where no model does and else audits the ranking",
                otherwise="a reward model, a judge or --reward ranks the replies",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "reward model",
                "reward",
                "scores replies",
                inert=None,
                otherwise="a judge, or the run's own reward",
            ),
            pl.needs.chat_model(
                "judge",
                "judge",
                "compares every two replies to a prompt",
                otherwise="a reward model, or the run's own reward",
            ),
        ),
        shows="margin",
        off={"temperature": 0.0},  # equal answers make no pairs
        own={"schedule.prompts": 4, "k": 4, "minibatches": 2},
    ),
    use="It helps where a reward model or a judge can rank what the policy says today; with a verifier "
    "nothing is overrated, and methods that use all answers learn more from them.",
    lacks=(
        "Only a Bradley-Terry reward model is trained on pairs; no pairwise preference model is trained, and "
        "a judge with a prompt stands for it.",
        "Without `reward`, `judge` or `pairs` there is no preference model: the data's answers rank replies.",
        "It is not compared with offline DPO.",
        "Supervised fine-tuning before it is another run, `palaestra train sft`.",
        "The released preference models and data sets, and the chat benchmarks, are not there.",
        "The learning rate has no cosine schedule within an iteration.",
        "Pairs of earlier iterations are not mixed in.",
    ),
    grade="B",
)


def build(
    reward: pl.RewardFn | None = None,
    judge: pl.Source | None = None,
    pairs: str = "",
    k: int = 8,
    temperature: float = 1.0,
    rule: Literal["max_min", "max_random", "max_max", "random"] = "max_min",
    length_penalty: float = 0.0,
    reference: Literal["moving", "start"] = "moving",
    beta: float = 0.1,
    smoothing: float = 0.1,
    epochs: int = 2,
    minibatches: int = 4,
) -> pl.Recipe | pl.Pipeline:
    """`length_penalty` is for each token; the other arguments are those of the steps above."""
    if sum(x is not None for x in (reward, judge, pairs or None)) > 1:
        raise pl.UserError(
            "rlhf-workflow: give one of reward, judge and pairs, which rank the answers"
        )
    pl.check_bounds("rlhf-workflow: k", k, least=2)
    ranks: Any = pl.Pairwise(client=judge) if judge else pl.Learned("reward") if pairs else reward
    start: dict[str, Any] = {"ref": "policy"}
    moving: dict[str, Any] = {"ref": pl.rollout.Snapshots(every=1, keep=1)}
    recipe = pl.vary(
        pl.recipe("dpo", beta=beta, smoothing=smoothing),
        collect=pl.links(
            pl.Sample(n=k, temperature=temperature),
            pl.Score(reward=ranks, shadow=ranks is not None),
            pl.rollout.MuteTruncated(),
        ),
        credit=pl.credit.Prefer(rule="" if rule == "max_min" else rule, length_cost=length_penalty),
        update=pl.Plain(epochs=epochs, minibatches=minibatches, fresh=True),
        references=moving if reference == "moving" else start,
        schedule=pl.Schedule(prompts=32, steps=20),
    )
    if not pairs:
        return recipe
    return pl.Pipeline(
        parts={
            "reward": pl.Part(pl.recipe("reward-model"), data=pairs),
            "policy": pl.Part(recipe, models={"reward": pl.Output("reward", "reward")}),
        }
    )
