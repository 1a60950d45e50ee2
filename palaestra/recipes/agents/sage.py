"""SAGE: queries are rewritten by a named strategy for a retriever that stays as it is.

    <strategy>concise</strategy><query>boss of bako</query>          n = NDCG@10 of what is found

GRPO on rewards r that share the credit of a query's rewrites among strategies (arXiv:2506.19783):

    scs       r_i = (1 - w) n_i + w m(s_i)                Strategic Credit Shaping
    crs       r_i = n_i - mean of n_j over s_j != s_i     Contrastive Reward Shaping; 0 without others
    crs-ref   r_i = max(0, n_i - n(query as given))
    none      r_i = n_i

m(s) is the mean n of the group's rewrites by strategy s; w = 0.5. A rewrite with the words of the query
itself, in their order, has r = copied = -0.1: it is safe, and teaches nothing. One without a known
strategy or without one query has r = unnamed = -0.2. Both count in the means of the others. Under `crs` r
goes down to -1, where a copy would again be the safe choice: `penalties=below` adds the least r of the
group's other rewrites to both, where that is below 0; `fixed` adds nothing.

The paper's strategies, the penalty on copies and what both shapings are for are known from its abstract
and reviews; its formulas and numbers could not be read, so these are ours. Without the clip `crs-ref`
would subtract one number from all of a group, which GRPO's mean takes away.

    palaestra train sage --docs FOLDER --data queries.jsonl --model DIR
    palaestra train sage --tools FILE.py:search --data queries.jsonl --model DIR

A row is {"prompt": QUERY, "gold": ["lions.md"]}, or {"lions.md": 2, "cats.md": 1} with grades. Strategies
are "name: what it does", `strategies="['typo: correct the spelling', ...]"`. A model that does not take to
the form imitates the column `rewrites` first: `start=shown`.

Long because the strategies are part of the action: the recipe tells them to the policy, reads which one a
rewrite names, shares credit in three ways, prices copies, and can demonstrate rewrites first.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="SAGE: strategy-adaptive query rewriting (SCS, CRS)",
    paper="arXiv:2506.19783",
    claim="Expert strategies in the prompt, and credit by strategy or by contrast, teach a model to rewrite "
    "queries for a fixed retriever better, with fewer tokens.",
    source="the abstract, and public reviews for the five strategies, GRPO and the penalty on copies; the formulas "
    "and numbers of SCS and CRS could not be read and are ours",
    size=pl.Size(
        setting="Qwen3 models; BGE and Contriever as retrievers; HotpotQA, FEVER, NFCorpus and SciFact, NDCG@10",
        model="qwen3-4b",
    ),
    model="tiny-agent",
    task="queries",
    world="rewrite",
    needs=pl.needs.Requirements(
        columns=(
            replace(pl.needs.QUESTION, meaning="a query, as somebody types it"),
            pl.needs.GOLD,
            pl.needs.NeededColumn(
                "rewrites",
                "record",
                ({"concise": "boss bako", "expansion": "chief"},),
                "by the name of a strategy, the query as that rewrites it",
                when={"start": ("shown",)},
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "documents", "which the retriever finds", also=("tools",), built_in=("queries",)
            ),
        ),
        shows="part/credit_shift",
        off={"shaping": "none"},
        own={
            "model": "tiny-agent",
            "env": "rewrite(told=0)",
            "start": "shown",
            "shown": 40,
            "shaping": "crs",
            "samples": 6,
            "steps": 9,
            "rl.schedule.prompts": 2,
            "shown.schedule.prompts": 12,
            "shown.optimiser.lr": 0.005,
            "shown.optimiser.warmup": 0,
            "max_tokens": 32,
        },
    ),
    use="It helps where queries need different rewrites and the relevant documents are known; where one wording "
    "suits all queries, strategies cost tokens.",
    lacks=(
        "Dense retrievers are not built in; a search function of yours may be one.",
        "The benchmarks of the paper are not there.",
        "An MCP tool cannot be the retriever.",
        "The formulas of SCS and CRS are ours: a result is about these.",
    ),
    grade="B",
)
Shaping: TypeAlias = Literal["scs", "crs", "crs-ref", "none"]
Penalties: TypeAlias = Literal["below", "fixed"]

STRATEGIES = (
    "expansion: add synonyms, related terms and words that an answer would have",
    "disambiguation: say which person, place, thing or time is meant",
    "decomposition: name one after the other the facts that have to be found",
    "concise: keep only the words that matter to a search",
    "neutral: restate a claim as what would have to be known to judge it, without taking a side",
)
NAMED = re.compile(r"<strategy>\s*([^<>]*?)\s*</strategy>", re.IGNORECASE)


def names_of(strategies: Sequence[str]) -> tuple[str, ...]:
    """The names of strategies "name: what it does". Raises UserError where one has none."""
    names = tuple(s.partition(":")[0].strip().casefold() for s in strategies)
    if len(set(names)) < len(names) or not all(re.fullmatch(r"[^<>]+", n) for n in names):
        raise pl.UserError(
            "sage: strategies are texts such as 'typo: correct the spelling', each with a name of its own; "
            f"not {list(strategies)}"
        )
    return names


def instruction_for(strategies: Sequence[str]) -> str:
    """What the policy is told of its strategies."""
    return "\n".join(
        (
            "Do not leave it as it is: explore. Choose the strategy that fits, and write its name before the "
            "query: <strategy>name</strategy><query>the rewritten query</query>. Strategies:",
            *(f"- {s}" for s in strategies),
        )
    )


def strategy_of(text: str, names: Sequence[str]) -> str:
    """The strategy that a message names behind its thoughts; "" where that is none, or several."""
    named = [s.casefold() for s in NAMED.findall(pl.verifiers.strip_thinking(text))]
    return named[0] if len(named) == 1 and named[0] in names else ""


def shape(
    n_E: Sequence[float],
    strategies: Sequence[str],
    shaping: Shaping,
    weight: float,
    plain: float,
) -> np.ndarray:
    """[E] rewards of a query's rewrites, before penalties.

    Args:
        n_E: what each finds, an NDCG.
        strategies: of each; "" = none, which is like a strategy of its own.
        weight: of the strategy's mean, under scs.
        plain: what the query finds as it was given.
    """
    own_E, chosen_E = np.asarray(n_E, float), np.asarray(strategies)
    same_EE = chosen_E[:, None] == chosen_E[None, :]
    if shaping == "scs":
        return (1 - weight) * own_E + weight * (same_EE @ own_E) / same_EE.sum(1)
    if shaping == "crs":
        others_E = (~same_EE).sum(1)
        contrast_E = own_E - (~same_EE @ own_E) / np.maximum(others_E, 1)
        return np.where(others_E > 0, contrast_E, 0.0)
    return np.maximum(0.0, own_E - plain) if shaping == "crs-ref" else own_E


@pl.declare(facts=(("strategy", str, 'which strategy a rewrite names; "" = none that is known'),))
@pl.stage
class StrategyCredit:
    """A link after `Score` in a world that rewrites queries. Parts: "ndcg"; "ndcg_lift", against the query
    as given; "credit_shift", how far r is from n, 0 where r only moves or scales all n of a group, as it
    does where all are by one strategy; "copied" and "unnamed", 1 where that is penalised; and for each
    strategy a part of its name, the share of rewrites by it.
    """

    strategies: tuple[str, ...] = STRATEGIES
    shaping: Shaping = "scs"
    weight: float = 0.5
    copied: float = -0.1
    unnamed: float = -0.2
    penalties: Penalties = "below"

    def __post_init__(self) -> None:
        names_of(self.strategies)
        pl.check_bounds("sage: weight", self.weight, least=0, most=1)

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        scored = [i for i, e in enumerate(group.episodes) if e.ok and e.reward is not None]
        if any("ndcg" not in group.episodes[i].facts for i in scored):
            raise pl.UserError(
                "sage rewrites queries for a search, and this environment searches none; give --data with "
                "the column gold, and --docs FOLDER or --tools FILE.py:search"
            )
        episodes, names = list(group.episodes), names_of(self.strategies)
        chosen = [
            strategy_of(pl.response_text(episodes[i]), names) if episodes[i].facts["query"] else ""
            for i in scored
        ]
        n_E = [float(episodes[i].facts["ndcg"]) for i in scored]
        plain = float(episodes[scored[0]].facts["ndcg_plain"]) if scored else 0.0
        r_E = shape(n_E, chosen, self.shaping, self.weight, plain)
        free = [at for at, i in enumerate(scored) if chosen[at] and not episodes[i].facts["copied"]]
        least = min((0.0, *(float(r_E[at]) for at in free))) if self.penalties == "below" else 0.0
        clipped = self.shaping == "crs-ref" and any(n_E[at] < plain for at in free)
        uneven = clipped or (self.shaping != "crs-ref" and len({chosen[at] for at in free}) > 1)
        for i, strategy, r in zip(scored, chosen, r_E, strict=True):
            paid = self._pay(episodes[i], strategy, float(r), names, least)
            episodes[i] = paid if uneven else with_part(paid, "credit_shift", 0.0)
        return replace(group, episodes=tuple(episodes))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where no query has rewrites by two strategies, so that there is no credit to share."""
        named = [
            {e.facts["strategy"] for e in g.valid if "strategy" in e.facts} - {""} for g in groups
        ]
        if self.shaping not in ("scs", "crs") or not named or any(len(s) > 1 for s in named):
            return ""
        if not any(named):
            return (
                "no rewrite of the first step names a strategy and one query, so every reward is the "
                "penalty for that; start=shown imitates the column rewrites first"
            )
        effect = "each is rewarded 0" if self.shaping == "crs" else "shaping=scs changes nothing"
        return (
            f"no query of the first step was rewritten by two strategies, and without these {effect}; "
            "try more samples, a higher temperature, or start=shown"
        )

    def _pay(
        self, e: pl.Episode, strategy: str, r: float, names: Sequence[str], least: float
    ) -> pl.Episode:
        """The episode with its reward; `least` is added to penalties."""
        assert e.reward is not None
        n, copied = float(e.facts["ndcg"]), bool(e.facts["copied"])
        penalty = self.copied if strategy else self.unnamed
        total = least + penalty if copied or not strategy else r
        parts: Mapping[str, float] = {
            **e.reward.parts,
            "ndcg": n,
            "ndcg_lift": n - float(e.facts["ndcg_plain"]),
            "credit_shift": 0.0 if copied or not strategy else abs(r - n),
            "copied": float(copied and bool(strategy)),
            "unnamed": float(not strategy),
            **{name: float(name == strategy) for name in names},
        }
        reward = replace(e.reward, total=total, parts=parts, solved=e.solved)
        return replace(e, reward=reward, facts={**e.facts, "strategy": strategy})


def with_part(e: pl.Episode, name: str, value: float) -> pl.Episode:
    """The episode with another value of a part of its reward."""
    assert e.reward is not None
    return replace(
        e, reward=replace(e.reward, parts={**e.reward.parts, name: value}, solved=e.solved)
    )


@pl.declare(reads_columns=("rewrites",))
@pl.stage
class ShowRewrites:
    """Demonstrates a rewrite of the query by a strategy, drawn at random from the column `rewrites`; null
    stands for none. Raises UserError for a strategy that is not known, or a rewrite that is no text.
    """

    strategies: tuple[str, ...] = STRATEGIES

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        rewrites = group.task.meta.get("rewrites")
        if not isinstance(rewrites, Mapping) or all(x is None for x in rewrites.values()):
            raise pl.UserError(
                f"task {group.task.id!r} has no rewrites to show; write them in the column rewrites, as "
                '{"concise": "boss of bako"}, or leave start=shown out'
            )
        given = self._checked(rewrites, group.task)
        name = sorted(given)[int(pl.rng_of((*key, "rewrite")).integers(len(given)))]
        text = f"<strategy>{name}</strategy><query>{given[name]}</query>"
        task = replace(group.task, meta={**group.task.meta, "demonstration": text})
        made = await pl.Demonstrate()(ctx, key, replace(group, task=task))
        return replace(made, task=group.task)

    def _checked(self, rewrites: Mapping[Any, Any], task: pl.Task) -> dict[str, str]:
        """Rewrites by the names of strategies, none of them null."""
        known = names_of(self.strategies)
        given = {str(k).strip().casefold(): x for k, x in rewrites.items() if x is not None}
        for name, text in given.items():
            if name not in known:
                raise pl.UserError(
                    f"task {task.id!r}: its column rewrites has the strategy {name!r}, and these are known: "
                    f"{', '.join(known)}; strategies=\"['{name}: what it does', ...]\" says others"
                )
            if not isinstance(text, str) or not text.strip():
                raise pl.UserError(
                    f"task {task.id!r}: its column rewrites has {text!r} for the strategy {name!r}; write the "
                    "rewritten query, or leave the strategy out"
                )
        return given


def build(
    shaping: Shaping = "scs",
    weight: float = 0.5,
    copied: float = -0.1,
    unnamed: float = -0.2,
    penalties: Penalties = "below",
    strategies: tuple[str, ...] = STRATEGIES,
    samples: int = 8,
    start: Literal["as-is", "shown"] = "as-is",
    shown: int = 200,
) -> pl.Recipe | pl.Pipeline:
    """`start=shown` first imitates rewrites for `shown` steps, those of the column `rewrites`."""
    credit = StrategyCredit(tuple(strategies), shaping, weight, copied, unnamed, penalties)
    learned = pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=samples), pl.Score(), credit),
        instruction=instruction_for(strategies),
    )
    if start == "as-is":
        return learned
    return pl.imitate_first(
        learned,
        shown,
        collect=pl.links(ShowRewrites(tuple(strategies))),
        instruction=instruction_for(strategies),
    )


def embedded(
    start: Literal["as-is", "shown"] = "shown", samples: int = 8, **options: Any
) -> pl.Recipe | pl.Pipeline:
    """On queries over a small wiki, of three kinds that need a strategy each. The small model never saw the
    form, so it is shown rewrites by strategies drawn at random first.
    """
    return build(start=start, samples=samples, **options)
