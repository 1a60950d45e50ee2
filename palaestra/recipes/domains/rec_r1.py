"""Rec-R1: a model writes the query, a recommender or search that stays as it is returns items, and how good
their ranking is, is the reward. Nothing is distilled from another model.

    <think>...</think><answer>{"query": "chief boss bako"}</answer>         s = NDCG@K of what is found

    r = -2         the form is broken: no thought, or no JSON object with one query
    r = 0.1 + s    s > 0
    r = 0          s = 0, so that form alone earns nothing

GRPO on r (arXiv:2503.24289; released code linjc16/Rec-R1: esci.py, amazon_c4.py, amazon_review.py). K is
large in training (`deep` of the environment, 1000) and small where it is measured (`k`, 10): the deep
ranking tells two queries apart that both find nothing among the first ten. The paper measures at 100 for
product search. A retriever that fails is an error of the episode here; the released code scores it -2.

    palaestra train rec-r1 --docs FOLDER --data queries.jsonl --model DIR
    palaestra train rec-r1 --tools FILE.py:search --data queries.jsonl --model DIR
    palaestra train rec-r1 --docs items.jsonl --data queries.jsonl --model DIR --env "query(qrels='qrels.txt')"

A row is {"prompt": WHAT A USER WRITES, "gold": ["lions.md"]}, or {"lions.md": 2, "cats.md": 1} with grades. For
sequential recommendation the prompt is the list of what a user had, the documents are the items, and gold
is the next one. The model reads the prompt alone: neither gold nor what a query finds.

"part/told_apart" is the mechanism's number: how far the rewards of a prompt's well-formed queries are from
their mean, for what the retriever made of them.

Long because the reward checks the form with and without thoughts, also behind templates that open them, and
tells how far a prompt's queries lie apart; the imitation of that form comes on top.
"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Rec-R1: LLM closed loop with recommender",
    paper="arXiv:2503.24289",
    claim="A model that writes queries for a fixed retriever, rewarded by NDCG of what they find, beats "
    "prompting and imitation of a larger model's queries, and keeps its other abilities.",
    source="released code (linjc16/Rec-R1: verl/utils/reward_score/esci.py, amazon_c4.py, amazon_review.py, "
    "scripts/train) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-3B-Instruct; ESCI and Amazon-C4 product search with K = 1000, Amazon Beauty next items "
        "with K = 5000; BM25 or BLAIR; 12 answers a prompt at temperature 0.6, lr 1e-6, KL 0.001",
        model="qwen2.5-3b",
        prompts=32,
        samples=12,
        lr=1e-6,
    ),
    model="tiny-agent",
    task="json-queries",
    world="query",
    needs=pl.needs.Requirements(
        columns=(
            replace(
                pl.needs.QUESTION,
                meaning="what a user writes: a query, a wish, or the items that they had",
            ),
            replace(
                pl.needs.GOLD,
                otherwise="a file of judgements names them: --env \"query(qrels='FILE')\"",
            ),
            pl.needs.NeededColumn(
                "rewrites",
                "record",
                ({"shorter": "boss bako", "other": "heir deci"},),
                "by any name, a query to imitate first",
                otherwise="the prompt itself is imitated as the query",
                when={"start": ("shown",)},
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "documents",
                "which the retriever finds",
                also=("tools",),
                built_in=("json-queries",),
            ),
        ),
        shows="part/told_apart",
        off={"weight": 0.0},
        own={
            "model": "tiny-agent",
            "env": "query(told=0,k=1)",
            "think": False,
            "start": "shown",
            "shown": 40,
            "samples": 6,
            "temperature": 1.5,
            "exam": 0,
            "steps": 7,
            "rl.schedule.prompts": 2,
            "shown.schedule.prompts": 12,
            "shown.optimiser.lr": 0.005,
            "shown.optimiser.warmup": 0,
            "max_tokens": 32,
        },
    ),
    use="It helps where users' words are not those of the items and the relevant items are known; where the "
    "words as typed find them, there is nothing to gain.",
    lacks=(
        "The data sets of the paper, its discriminative baselines and its dense retriever are not there; a search "
        "function of yours may be a dense one.",
        "That other abilities are kept is not measured unless you name an exam: --exams chain.",
        "Items and interactions are not turned into rows: a row is a history, written out, and the next item.",
    ),
    grade="B",
)

THINK = "First reason in <think></think>, then write <answer></answer> with the JSON object inside."


@pl.stage
class RetrievalReward:
    """A link after `Score` in a world that writes queries. Parts: "told_apart"; "formed"; "retrieval", s;
    "ndcg", that of the first `k`, and "ndcg_lift", against the user's own words; "copied"; "query_words".

    Args:
        weight: of s; 0 rewards the form alone.
        bonus: of a query that finds something.
        broken: the reward of a broken form.
        think: the form has thoughts, and the object stands in <answer>.
    """

    weight: float = 1.0
    bonus: float = 0.1
    broken: float = -2.0
    think: bool = True

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        scored = [i for i, e in enumerate(group.episodes) if e.ok and e.reward is not None]
        if any("ndcg_deep" not in group.episodes[i].facts for i in scored):
            raise pl.UserError(
                "rec-r1 writes queries for a search, and this environment searches none; give --data with "
                "the column gold, and --docs FOLDER or --tools FILE.py:search"
            )
        formed = [i for i in scored if self._formed(group.episodes[i])]
        s_E = self.weight * np.array([group.episodes[i].facts["ndcg_deep"] for i in formed], float)
        apart = dict(zip(formed, np.abs(s_E - s_E.mean()).tolist() if formed else [], strict=True))
        episodes = list(group.episodes)
        for i in scored:
            episodes[i] = self._pay(episodes[i], i in apart, apart.get(i, 0.0))
        return replace(group, episodes=tuple(episodes))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where no query was in the form, or none found anything."""
        rewards = [e.reward for g in groups for e in g.valid if e.reward is not None]
        if rewards and not any(r.parts.get("formed") for r in rewards):
            return (
                "no answer of the first step has the form of a query, so every reward is the same; "
                "start=shown imitates the form first"
                + (", and think=False asks for no thoughts" if self.think else "")
            )
        if rewards and self.weight and not any(r.parts.get("retrieval") for r in rewards):
            return (
                "no query of the first step found a relevant document; look whether the names in the column "
                "gold are those of the documents, or raise --env 'query(deep=5000)'"
            )
        return ""

    def _formed(self, e: pl.Episode) -> bool:
        """Whether a query can be read, and with thoughts whether both tags stand in order, each once, with a
        query in the answer.
        """
        if not e.facts["query"]:
            return False
        if not self.think:
            return True
        text = pl.response_text(e)
        tags = ("<think>", "</think>", "<answer>", "</answer>")
        at = [text.find(tag) for tag in tags]
        opened = "<think>" in text or not pl.rewards.begins_with_thoughts(e)
        once = all(text.count(tag) == 1 for tag in tags)
        if not opened:  # the chat template wrote <think>
            once = text.count("</think>") == 1 and all(text.count(t) == 1 for t in tags[2:])
            at = at[1:]
        answer = text[text.find("<answer>") : text.find("</answer>")]
        return once and at == sorted(at) and bool(pl.worlds.read_json_query(answer))

    def _pay(self, e: pl.Episode, formed: bool, apart: float) -> pl.Episode:
        assert e.reward is not None
        deep = float(e.facts["ndcg_deep"])
        s = self.weight * deep
        total = (self.bonus + s if s > 0 else 0.0) if formed else self.broken
        parts = {
            **e.reward.parts,
            "told_apart": apart,
            "formed": float(formed),
            "retrieval": deep,
            "ndcg": float(e.facts["ndcg"]),
            "ndcg_lift": float(e.facts["ndcg"]) - float(e.facts["ndcg_plain"]),
            "copied": float(e.facts["copied"]),
            "query_words": float(e.facts["query_words"]),
        }
        return replace(e, reward=replace(e.reward, total=total, parts=parts, solved=e.solved))


@pl.stage
class ShowQueries:
    """Demonstrates a query in the form: one of the column `rewrites`, drawn at random, else the user's own
    words. With `think` behind an empty thought.
    """

    think: bool = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        text = pl.worlds.write_query(self._query(key, group.task))
        if self.think:
            text = f"<think>\n</think>\n<answer>{text}</answer>"
        task = replace(group.task, meta={**group.task.meta, "demonstration": text})
        made = await pl.Demonstrate()(ctx, key, replace(group, task=task))
        return replace(made, task=group.task)

    def _query(self, key: pl.Key, task: pl.Task) -> str:
        """What is imitated. Raises UserError for a rewrite that is no text."""
        given = task.meta.get("rewrites")
        rewrites: dict[str, Any] = {k: x for k, x in dict(given or {}).items() if x is not None}
        for name, text in rewrites.items():
            if not isinstance(text, str) or not text.strip():
                raise pl.UserError(
                    f"task {task.id!r}: its column rewrites has {text!r} under {name!r}; write the query as a text, "
                    "or leave it out"
                )
        if not rewrites:
            return str(task.prompt[-1].content)
        names = sorted(rewrites)
        return str(rewrites[names[int(pl.rng_of((*key, "rewrite")).integers(len(names)))]])


def build(
    weight: float = 1.0,
    bonus: float = 0.1,
    broken: float = -2.0,
    think: bool = True,
    samples: int = 12,
    temperature: float = 0.6,
    start: Literal["as-is", "shown"] = "as-is",
    shown: int = 200,
    exam: int = 128,
) -> pl.Recipe | pl.Pipeline:
    """`start=shown` first imitates the form for `shown` steps. `exam` held-out queries are ranked where a run is
    measured, beside what the user's own words find; 0 = none.
    """
    instruction = THINK if think else ""
    learned = pl.vary(
        pl.recipe("grpo", kl=0.001),
        collect=pl.links(
            pl.Sample(n=samples, temperature=temperature, top_p=0.95),
            pl.Score(),
            RetrievalReward(weight, bonus, broken, think),
        ),
        instruction=instruction,
        evaluate={"ranking": pl.run.RankingExam(n=exam)} if exam else {},
    )
    if start == "as-is":
        return learned
    return pl.imitate_first(
        learned,
        shown,
        collect=pl.links(ShowQueries(think)),
        instruction=instruction,
    )


def embedded(
    start: Literal["as-is", "shown"] = "shown",
    think: bool = False,
    samples: int = 8,
    temperature: float = 1.0,
    **options: Any,
) -> pl.Recipe | pl.Pipeline:
    """On queries over a small wiki whose words are not those of the pages. The small model never saw the form, so it
    is first shown queries that are right once in three times, as a weak teacher's would be.
    """
    return build(start=start, think=think, samples=samples, temperature=temperature, **options)
