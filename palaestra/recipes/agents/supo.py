"""SUPO: an agent sums up what it did before its context is full, and learns to do so by the outcome.

Where an episode's context would exceed `limit` tokens, the policy writes a summary z of it, and goes
on in a new row that begins with the prompt x and z (`pl.worlds.WithSummaries`; arXiv:2510.06727).
With the rows k = 1..K_i of episode i, whose last tokens but for k = K_i are a summary, the log-likelihood
of the episode is the sum of those of its rows,

    log p(i) = sum_k sum_t log pi(y_k,t | x, z_(k-1), y_k,<t)

each token once: z_k is trained in the row that wrote it and is prompt in the next. So

    A_i  = (R_i - mean R) / std R     over the episodes of a prompt, not over rows
    loss = - sum over i, k, t of min(rho A_i, clip(rho, 1 - low, 1 + high) A_i) / their number

low = 0.2, high = 0.28, no KL. An episode without a final answer, at its last turn or at the limit after its
last summary, counts in mean and std and trains nothing (`mask`, the paper's overlong mask). Where
the limit is never reached this is GRPO with that loss.

    palaestra train supo --docs FOLDER --data questions.jsonl --model DIR [limit=4000] [summaries=7]
    palaestra train supo --tools FILE.py:fn --data questions.jsonl --model DIR
    palaestra train supo --env FILE.py:CLASS --model DIR

The paper's limit is 0.95 of a window of 4096 or 65536 tokens. The default leaves room in the model's
context for a reply, the request and a summary. Deviations: the paper takes the last action back
together with what the world said to it; here the action stays in its row, where it was sampled, for
it is a part of the likelihood. `carry=True` shows what the world said below the summary.

"part/beyond" in the metrics is the share of episodes that went beyond the limit and came to an end.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import palaestra as pl

CARD = pl.Card(
    title="SUPO: summarisation-based context management",
    paper="arXiv:2510.06727",
    claim="Summaries that are learned together with the use of tools, by the outcome alone, solve more at "
    "the same or a smaller context, and more still with more summaries at test time than in training.",
    source="abstract, the paper's algorithm 2 and settings as a public replication lists them "
    "(RainyFields/supo_codegym: docs/REPLICATION_PLAN.md); no code was released",
    size=pl.Size(
        setting="Qwen2.5-32B-Instruct on CodeGym, 128 prompts, 8 answers, window 4096 of which 0.95 before "
        "a summary, up to 7 summaries, 100 turns, lr 1e-6",
        model="qwen2.5-32b",
        prompts=128,
        samples=8,
        lr=1e-6,
        arguments={"limit": 3891},
    ),
    model="tiny-agent",
    task="wiki",
    needs=pl.needs.Requirements(
        columns=(pl.needs.QUESTION, pl.needs.GOLD_ANSWER),
        places=(
            pl.needs.NeededPlace(
                "documents",
                "where an episode has several turns",
                also=("tools", "environment"),
                built_in=("wiki", "wiki-2", "wiki-far"),
            ),
        ),
        shows="part/beyond",
        off={"summaries": 0},
        own={
            "model": "tiny-agent",
            "env": "search(told=0,k=1)",
            "limit": 40,
            "summaries": 2,
            "tokens": 4,
            "instruction": "note?",
            "lead_in": "so:",
            "exam": 0,
            "samples": 3,
            "schedule.prompts": 3,
        },
    ),
    use="It helps where episodes do not fit into the context that you can pay for; where all of them fit, it "
    "is GRPO.",
    lacks=(
        "CodeGym and BrowseComp-Plus, on which the paper measures, do not come with it: bring them as an "
        "environment or as documents.",
        "The wording of the paper's requests for a summary, which differ by task, is not there: one "
        "wording serves all, and `instruction` replaces it.",
    ),
    grade="A",
)


@pl.stage
class Summarised:
    """Collects as `link` does, with contexts of at most `limit` tokens before a turn, None = what the
    model's context leaves beside a reply, the request and a summary. Summaries are no turns of the
    environment's.

    Raises:
        UserError: limit leaves no room for these in the model's context.
    """

    link: pl.Collect
    limit: int | None = None
    summaries: int = 7
    tokens: int = 0  # of a summary; 0 = as many as a turn
    instruction: str = pl.worlds.SUM_UP
    lead_in: str = pl.worlds.LEAD_IN
    carry: bool = False
    model: str = "policy"

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        return await self.link(self.there(ctx), key, group)

    def there(self, ctx: pl.Context) -> pl.Context:
        """The context of a run whose world asks for summaries."""
        bench, players = ctx.bench, ctx.cast(self.model, pl.Sampling())
        world = pl.worlds.WithSummaries(
            bench.world,
            players,
            self.tokens_of(ctx),
            most=self.summaries,
            tokens=self.tokens,
            instruction=self.instruction,
            lead_in=self.lead_in,
            carry=self.carry,
        )
        turns = bench.max_turns + self.summaries
        return ctx.with_bench(replace(bench, world=world, max_turns=turns))

    def tokens_of(self, ctx: pl.Context) -> int:
        """The limit as a number."""
        reply, whole = ctx.bench.max_tokens, ctx.model(self.model).context
        request = len(ctx.engine(self.model).dialect.encode_text(self.instruction)) + 16  # of marks
        most = whole - reply - request - (self.tokens or reply)
        if most < 1 or (self.limit or 0) > most:
            raise pl.UserError(
                f"supo: the context of the model holds {whole} tokens, and a reply, the request and a "
                f"summary take {whole - most} of them, so limit is at most {max(most, 0)}; lower it or "
                "--max-tokens"
            )
        return self.limit or most


@pl.stage
class MuteOverlong:
    """Mutes episodes without a final answer where `mask` holds. Parts: "summaries", how many were
    written that are not empty; "beyond", whether the episode came to its end after one.
    """

    mask: bool = True

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._marked, group.episodes)))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where nothing was summed up, in whole or in part."""
        episodes = [e for g in groups for e in g.valid if "summaries" in e.facts]
        texts = [text for e in episodes for text in e.facts["summaries"]]
        unread = sum(e.facts.get("unread", 0) > 0 for e in episodes)
        cut = any(e.status == "truncated:summaries" for e in episodes)
        if episodes and not texts and not cut:
            return (
                "no context of the first step reached the limit, so nothing was summed up and this was "
                "GRPO; a lower limit=TOKENS, or tasks of more turns, need summaries"
            )
        notes = list[str]()
        if empty := texts.count(""):
            notes.append(
                f"{empty} of {len(texts)} summaries of the first step are empty, mostly because they "
                "were cut within a thought, and their episodes went on from nothing: raise tokens, or "
                "leave thoughts out"
            )
        if unread:
            notes.append(
                f"in {unread} of {len(episodes)} episodes of the first step a result was longer than "
                "what the limit leaves behind the question, and is never read: raise limit, or make "
                "results shorter, e.g. --env 'search(k=1)'"
            )
        return "; and ".join(notes)

    def _marked(self, e: pl.Episode) -> pl.Episode:
        if e.reward is None:
            return e
        written = sum(text != "" for text in e.facts.get("summaries", ()))
        ended = came_to_its_end(e)
        counts = {"summaries": float(written), "beyond": float(ended and written > 0)}
        reward = replace(e.reward, parts={**e.reward.parts, **counts})
        return replace(e, reward=reward, muted=e.muted or (self.mask and not ended))


def came_to_its_end(e: pl.Episode) -> bool:
    """Whether the episode has a final answer: a summary that was cut at its length takes none away."""
    if e.status != "truncated:length":
        return e.status == "finished"
    ended = [s for s in e.rows[-1].segments if s.finish]
    return bool(ended) and ended[-1].finish != "length"


@pl.stage
class HeldOutSummarised:
    """Greedy answers to held-out problems, with summaries as `summarised` has them written."""

    summarised: Summarised
    n: int = 64

    async def __call__(self, ctx: Any) -> Mapping[str, Any]:
        n = min(self.n, ctx.plan.evaluate) or self.n  # a run measures on no more
        there: Any = self.summarised.there(ctx)
        return await pl.run.Exam(n=n)(there)


def build(
    limit: int | None = None,
    summaries: int = 7,
    tokens: int = 0,
    mask: bool = True,
    carry: bool = False,
    high: float = 0.28,
    reduce: pl.objective.Reduction = "tokens",
    instruction: str = pl.worlds.SUM_UP,
    lead_in: str = pl.worlds.LEAD_IN,
    samples: int = 8,
    turns: int = 0,
    exam: int = 64,
    tested: tuple[int, ...] = (),
) -> pl.Recipe:
    """`limit` tokens of a context before a turn, None = what the model has room for; `tokens` of a
    summary, 0 = as many as a turn. `turns` 0 = as many as the environment allows, and the summaries.
    `exam` held-out problems are played with summaries where a run is measured, 0 = none, also with
    each number of summaries that `tested` names.
    """
    played = pl.Sample(n=samples, turns=turns)
    summarised = Summarised(played, limit, summaries, tokens, instruction, lead_in, carry)
    numbers = (summaries, *tested) if exam else ()
    exams = {
        f"up to {n} summaries": HeldOutSummarised(replace(summarised, summaries=n), exam)
        for n in numbers
    }
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(summarised, pl.Score(), MuteOverlong(mask)),
        objective=pl.Clipped(high=high, reduce=reduce),
        evaluate=exams,
    )


class ShownSummaries(pl.worlds.WithSummaries):
    """Over a small wiki, what a reader would do who forgets what it did not write down: a summary is
    every fact on the way that was read, and what was left out is searched again.
    """

    async def step(self, state: Any, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        frame = await super().step(state, acts, key)
        after = frame.state
        if state.waiting is not None or after.waiting is None:
            return frame
        inside = replace(after.inside, found=(*after.inside.found[:-1], ()))
        return replace(frame, state=replace(after, inside=inside))

    def oracle(self, state: Any) -> str:
        """What is said next."""
        world: Any = self.world
        if state.waiting is None:
            return str(world.oracle(state.inside))
        texts = dict(world.index.docs)
        seen = {i for ids in state.inside.found for i in ids}
        facts = [texts[i].partition(": ")[2] for i in state.inside.task.meta["gold"] if i in seen]
        return " ".join(facts) or "nothing"


@pl.stage
class ShowSummaries:
    """Demonstrates episodes with summaries."""

    summarised: Summarised

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        there = self.summarised.there(ctx)
        asked: Any = there.bench.world
        world = ShownSummaries(
            **{name: getattr(asked, name) for name in asked.__dataclass_fields__}
        )
        inner = ctx.with_bench(replace(there.bench, world=world))
        return await pl.Demonstrate()(inner, key, group)


def embedded(limit: int = 120, summaries: int = 3, **options: Any) -> pl.Pipeline:
    """On questions over a small wiki of which a context holds one result. The small model has never
    written a summary, so first it is shown some.
    """
    words: dict[str, Any] = {"instruction": "note?", "lead_in": "note:"}
    learned = pl.vary(
        build(limit, summaries, **{**words, **options}), schedule=pl.Schedule(prompts=8, steps=30)
    )
    collect: Any = learned.collect
    return pl.imitate_first(
        learned,
        20,
        collect=pl.links(ShowSummaries(collect.links[0])),
        optimiser=pl.AdamW(lr=1e-3, warmup=10),
    )
