"""CoRanking: a small listwise reranker picks the first passages, an adjuster puts them in the order that a large listwise
reranker reads best, and the large one is called once.

    N passages --small, windows--> the first k --adjuster--> an order o --large, one call--> ranking, the rest behind

    small       imitates the large reranker's lists, with the relevant passages put first by their grades
    chosen      imitates o+ = argmax u(o), u(o) = NDCG@10(large(o)), over M = `samples` + `shuffles` + 1 orders: the
                small reranker's and others drawn at random; queries with max u - min u < `delta` are left out
    preferred   DPO on the best and the worst of M orders, `samples` of which the adjuster writes:

    L = -log sigmoid(beta [log pi(o+)/ref(o+) - log pi(o-)/ref(o-)]),    u(o+) - u(o-) >= delta

A list goes through the small reranker in windows of w, from the back to the front, moved on by s: ceil((N - w) / s) + 1
calls, 9 for N = 100, w = 20, s = 10. So many of the large one become one (arXiv:2503.23427, abstract; public reviews
of v2 name the three models, DPO, relevant passages put first in the small one's lists, and a strategy S3
for data, without its details: M, delta and beta here are ours). An order is written "[3] > [1] > ..."; numbers that
stand for nothing or come again are dropped, and missing ones follow in the small one's order. A message without any has u = 0 in
training and leaves the order as it is in use; else words without an order would earn what the small one's order does. Such
a message is neither o+ nor o-, and an order is neither where the large reranker's reply could not be read.

    palaestra train coranking --docs FOLDER --data queries.jsonl --model DIR large=DIR
    palaestra train coranking --data queries.jsonl --model DIR large="endpoint(url='http://HOST:PORT/v1',model='NAME')"

A row is {"prompt": QUERY, "gold": ["lions.md"]}, or {"lions.md": 2} with grades; its candidates are what BM25 finds, or
those of a column `items`. `--env "listwise(k=20,deep=100,qrels='FILE')"` sets k and N. `small=DIR` takes a reranker that is
there, and `small_steps=0` the retriever's order. A step asks the large reranker for M orders of each of its 16 prompts.

Deviations: the adjuster begins with the small reranker's weights; orders are sampled anew in each step; the teacher of
the small reranker is the large one, on windows drawn at random.

The numbers of the method are those of the exam, under `evaluations` in metrics.jsonl: "adjusted" beside "small", "shuffled"
and "alone". Held-out accuracy is of the adjuster's order as a ranking, which it is not.

The default run has users who like small or large numbers, and eight candidates, of which two are to the user's taste and
one is nearest to what the user had. The large reranker is a program that errs, and that believes more in a candidate the later
it stands, so its bias is against the small reranker's order. NDCG@10 over 64 held-out users of one call on four of eight
candidates, of one small reranker: 0.53 in its order, 0.69 in a random one, 0.82 in the best of 8; in the adjuster's, from two
seeds, 0.74 and 0.76 after imitation, and 0.77 and 0.77 after DPO, which is within the noise of 64 users. Alone, with 3
calls, the large reranker has 0.62. The small one without it has 0.76: it loses the relevant candidate in one of four queries,
and nothing brings it back. The adjuster's order is no ranking (0.44, 0.45), and it is learned for one reranker: one with
the opposite bias has 0.78 in the small reranker's order and 0.55, 0.54 in the adjuster's.

The numbers after DPO, and of its orders, are from pairs whose chosen order was the last drawn of the best, and whose rejected
one the first of the worst; they were not measured again since the ends are drawn at random among equals.

Without the bias (`late=0`, one seed) no order differs from another, no pair is made, and all of them have 0.72. That is less than
0.77: this large reranker errs so often that its bias, once it is known, is a way to tell it what the adjuster knows.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.domains.coranking.exam import OrderExam
from palaestra.recipes.domains.coranking.orders import (
    KeepChosen,
    LargeReranker,
    OrderReward,
    PreRank,
    ProposeOrders,
    ShowRankings,
)

CARD = pl.Card(
    title="CoRanking: small+large rerankers, passage order adjuster",
    paper="arXiv:2503.23427",
    claim="A small listwise reranker that picks the first passages, and an order adjuster trained on which order the "
    "large listwise reranker ranks best, beat the large reranker alone at one of its calls a query.",
    source="abstract, and public reviews of v2",
    size=pl.Size(
        setting="a small and a large listwise reranker (72B in one version), 100 passages, windows of 20, top 20; three "
        "retrieval benchmarks",
        model="qwen2.5-7b",
    ),
    model="tiny",
    task="listed-histories",
    world="listwise",
    needs=pl.needs.Requirements(
        columns=(
            replace(pl.needs.QUESTION, meaning="a query"),
            replace(
                pl.needs.GOLD,
                otherwise="a file of judgements names them: --env \"listwise(qrels='FILE')\"",
            ),
            pl.needs.CANDIDATES,
        ),
        models=(
            pl.needs.chat_model(
                "large reranker",
                "large",
                "ranks the first passages in one call, and is not trained",
            ),
            pl.needs.NeededModel(
                "small reranker",
                "small",
                "orders all candidates, by windows",
                inert=None,
                otherwise="a copy of --model learns it from the large reranker's lists and the relevant passages",
            ),
            pl.needs.NeededModel(
                "another large reranker",
                "other",
                "reads the learned orders in the exam, and is not trained for",
                inert=None,
                otherwise="how orders fare elsewhere is not measured",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "documents", "which are ranked", also=("tools",), built_in=("listed-histories",)
            ),
        ),
        shows="part/spread",
        off={"weight": 0.0},
        own={
            "model": "tiny",
            "env": "listwise(told=0,k=3)",
            "exam": 0,
            "chosen_steps": 1,
            "samples": 1,
            "shuffles": 2,
            "window": 3,
            "stride": 2,
            "chosen.schedule.prompts": 2,
            "preferred.schedule.prompts": 2,
            "max_tokens": 12,
            "endpoint": ("[2] > [1] > [3]", "[1] > [3] > [2]", "[3] > [2] > [1]"),
        },
    ),
    use="It helps where a large listwise reranker ranks better than a small one, and minds the order in which it reads "
    "passages; where it does not, the small reranker and one call are all there is to gain.",
    lacks=(
        "How the strategy S3 chooses its data is not public in what was read: orders are sampled, scored and selected "
        "by a least difference.",
        "The small reranker imitates windows drawn at random, with one call of the teacher each, no lists that a stronger "
        "teacher ranked as a whole.",
        "Latency is not measured: calls of both rerankers, and characters that the large one reads and writes, are counted.",
        "TREC DL, BEIR and the other benchmarks of the paper are not there.",
    ),
    grade="B",
)


def learn_small(
    large: pl.Source | None, window: int, tokens: int, words: bool, steps: int
) -> pl.Recipe:
    """The small reranker imitates windows: those of `large`, with relevant passages first."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowRankings(large, window, tokens, words)),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )


def learn_chosen(
    pre: PreRank, propose: ProposeOrders, reward: OrderReward, delta: float, steps: int
) -> pl.Recipe:
    """The adjuster imitates the best order of each query."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(pre, propose, pl.Score(), reward, KeepChosen(delta)),
        schedule=pl.Schedule(prompts=16, steps=steps),
    )


def learn_preferred(
    pre: PreRank, propose: ProposeOrders, reward: OrderReward, delta: float, beta: float
) -> pl.Recipe:
    """DPO on the best and the worst order of each query."""
    return pl.vary(
        pl.recipe("dpo", beta=beta),
        collect=pl.links(pre, propose, pl.Score(), reward, KeepChosen(delta, worst=True)),
        credit=pl.credit.Prefer(gap=delta),
        schedule=pl.Schedule(prompts=16, steps=50),
    )


def with_start(recipe: pl.Recipe, frozen: bool) -> pl.Recipe:
    """A recipe with a frozen copy of its start as the model "large", where no other one is given."""
    return pl.vary(
        recipe, references={**recipe.references, **({"large": "policy"} if frozen else {})}
    )


def build(
    large: pl.Source | None = None,
    small: pl.Source | None = None,
    other: pl.Source | None = None,
    window: int = 20,
    stride: int = 10,
    samples: int = 8,
    shuffles: int = 7,
    temperature: float = 1.0,
    delta: float = 0.05,
    beta: float = 0.1,
    weight: float = 1.0,
    distil: bool = True,
    small_steps: int = 200,
    chosen_steps: int = 50,
    exam: int = 64,
    best: int = 8,
    alone: bool = True,
    tokens: int = 512,
    words: bool = False,
) -> pl.Pipeline:
    """`window` and `stride` are those of the small reranker, and of the large one where the exam has it rank `alone`.
    `distil=False` leaves the large reranker out of the small one's lists. A part with 0 steps is left
    out. `exam` held-out queries are ranked where a run is measured, with `best` orders each; 0 = none. A reranker may
    write `tokens`. `words` shows orders by the passages' texts, which small models learn faster than numbers.
    Without `large` the start of each part, frozen, is asked.
    """
    pl.check_bounds("coranking: delta", delta, above=0, most=1)
    pl.check_bounds("coranking: best", best, least=0)
    pl.check_bounds("coranking: exam", exam, least=0)
    pl.judges.window_spans(window, window, stride)
    asked, frozen = large or pl.LocalModel("large"), large is None
    reranker = LargeReranker(asked, tokens)
    further = LargeReranker(other, tokens) if other else None
    trained = small is None and small_steps > 0
    usage = None if trained else pl.verifiers.ORDER_PASSAGES
    pre = PreRank(pl.LocalModel("small") if trained else small, window, stride, usage, tokens)
    reward = OrderReward(reranker, weight)
    drawn = ProposeOrders(0, shuffles + samples, temperature, words)
    sampled = ProposeOrders(samples, shuffles, temperature, words)
    parts: dict[str, pl.Part] = {}
    start: pl.Output | None = None
    models: dict[str, pl.Output | str] = {}
    if trained:
        taught = learn_small(asked if distil else None, window, tokens, words, small_steps)
        parts["small"], start = pl.warm(with_start(taught, frozen)), pl.Output("small")
        models = {"small": start}
    if chosen_steps:
        chosen = with_start(learn_chosen(pre, drawn, reward, delta, chosen_steps), frozen)
        parts["chosen"] = replace(pl.warm(chosen, model=start), models=models)
        start = pl.Output("chosen")
    preferred = with_start(learn_preferred(pre, sampled, reward, delta, beta), frozen)
    if exam:
        measured = OrderExam(pre, reranker, exam, best, alone, further)
        preferred = pl.vary(preferred, evaluate={"orders": measured})
    parts["preferred"] = pl.Part(preferred, model=start, models=models)
    return pl.Pipeline(parts=parts)


def embedded(
    large: pl.Source | None = None,
    other: pl.Source | None = None,
    window: int = 4,
    stride: int = 2,
    small_steps: int = 160,
    chosen_steps: int = 40,
    samples: int = 8,
    shuffles: int = 3,
    late: float = 0.3,
    words: bool = True,
    **options: Any,
) -> pl.Pipeline:
    """On numbers that users like, with a program for the large reranker, which believes `late` more in a candidate for each
    place that it stands further back. The exam asks one that believes as much less in it, too.
    """
    programs = {
        name: pl.Scripted(pl.toys.TasteRanker(late=x), name=name)
        for name, x in (("large", late), ("other", -late))
    }
    made = build(
        large or programs["large"],
        other=other or programs["other"],
        window=window,
        stride=stride,
        small_steps=small_steps,
        chosen_steps=chosen_steps,
        samples=samples,
        shuffles=shuffles,
        words=words,
        **options,
    )
    rates = {"small": 2e-3, "chosen": 1e-3, "preferred": 3e-4}
    for part, rate in rates.items():
        if part in made.parts:
            made = pl.override(made, f"{part}.optimiser.lr", rate)
    for part in ("chosen", "preferred"):
        if part in made.parts:
            made = pl.override(made, f"{part}.schedule.prompts", 8)
    return pl.override(made, "preferred.schedule.steps", 30)
