"""CoRanking."""

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
        prompts=64,
        samples=8,
    ),
    model="tiny",
    task="listed-histories",
    world="listwise",
    needs=pl.needs.Requirements(
        columns=(
            replace(pl.needs.QUESTION, meaning="a query"),
            pl.needs.NeededColumn(
                "gold",
                "any",
                (["lions.md"], {"lions.md": 2}, ["lions.md"]),
                "the relevant passages or documents: ids of records, names of files, or their grades",
                otherwise="a file of judgements names them: --env \"listwise(qrels='FILE')\"",
            ),
            pl.needs.NeededColumn(
                "items",
                "any",
                (["lions.md", "boss of deci is mema", "heir of tiru is soro"],),
                "the candidates of the row: ids of documents, texts, or records with id and text",
                otherwise="the documents that BM25 finds for the query are its candidates",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "large reranker",
                "large",
                "ranks the first passages in one call, and is not trained",
                inert=None,
                example="endpoint(url='http://HOST:PORT/v1',model='NAME')",
            ),
            pl.needs.NeededModel(
                "small reranker",
                "small",
                "orders all candidates, by windows",
                inert=None,
                otherwise="a copy of --model learns it from the large reranker's lists and the relevant passages",
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
    use="",
    lacks=(),
    grade="B",
)


def build(
    large: pl.Source | None = None,
    small: pl.Source | None = None,
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
    """`large` ranks `window` passages a call; without it the start of the policy, frozen, is asked."""
    pl.check_bounds("coranking: delta", delta, above=0, most=1)
    pl.check_bounds("coranking: best", best, least=0)
    pl.judges.window_spans(window, window, stride)
    asked = large or pl.LocalModel("large")
    frozen = {} if large else {"large": "policy"}
    trained = small is None and small_steps > 0
    reranker = LargeReranker(asked, tokens)
    usage = None if trained else pl.judges.ORDER_PASSAGES
    pre = PreRank(pl.LocalModel("small") if trained else small, window, stride, usage, tokens)
    reward = OrderReward(reranker, weight)
    parts: dict[str, pl.Part] = {}
    start: pl.Output | None = None
    models: dict[str, pl.Output | str] = {}
    if trained:
        shown = pl.vary(
            pl.recipe("sft"),
            collect=pl.links(ShowRankings(asked if distil else None, window, tokens, words)),
            schedule=pl.Schedule(prompts=32, steps=small_steps),
            references=frozen,
        )
        parts["small"], start = pl.warm(shown), pl.Output("small")
        models = {"small": start}
    if chosen_steps:
        chosen = pl.vary(
            pl.recipe("sft"),
            collect=pl.links(
                pre,
                ProposeOrders(0, shuffles + samples, temperature, words),
                pl.Score(),
                reward,
                KeepChosen(delta),
            ),
            schedule=pl.Schedule(prompts=16, steps=chosen_steps),
            references=frozen,
        )
        parts["chosen"] = replace(pl.warm(chosen, model=start), models=models)
        start = pl.Output("chosen")
    preferred = pl.vary(
        pl.recipe("dpo", beta=beta),
        collect=pl.links(
            pre, ProposeOrders(samples, shuffles, temperature, words), pl.Score(), reward
        ),
        credit=pl.credit.Prefer(gap=delta),
        schedule=pl.Schedule(prompts=16, steps=50),
        references={"ref": "policy", **frozen},
        evaluate={"orders": OrderExam(pre, reranker, exam, best, alone)} if exam else {},
    )
    parts["preferred"] = pl.Part(preferred, model=start, models=models)
    return pl.Pipeline(parts=parts)


def embedded(
    large: pl.Source | None = None,
    window: int = 4,
    stride: int = 2,
    small_steps: int = 100,
    chosen_steps: int = 30,
    samples: int = 4,
    late: float = 0.3,
    words: bool = True,
    **options: Any,
) -> pl.Pipeline:
    """On histories."""
    program = pl.Scripted(pl.toys.TasteRanker(late=late), name="large")
    made = build(
        large or program,
        window=window,
        stride=stride,
        small_steps=small_steps,
        chosen_steps=chosen_steps,
        samples=samples,
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
    return pl.override(made, "preferred.schedule.steps", 20)
