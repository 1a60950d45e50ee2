"""SEM: a draft from memory before any search, and a reward that tells whether the search was needed.

    <answer>a1</answer>                                     no search
    <answer>a1</answer><search>...</search> ... <answer>a2</answer>

With s(a) the F1 of the words of an answer, tau = 0.5, rho = 0.5 and floor = 0.1:

    broken form, or no last answer     R = 0
    no search                          R = max(s(a1), floor)
    search, s(a1) < tau                R = max(s(a2), floor)
    search, s(a1) >= tau               R = rho s(a2)             the search was redundant

and GRPO on R (arXiv:2505.07903). The form: the first message begins with the draft a1, and a search
may follow it; later messages have a search or the last answer. The paper balances MuSiQue, which
needs searches, with MMLU, which does not. Here the draw does: before training the model answers
every question `probes` times without documents, a question is known where one answer is right, and
`share` of the questions drawn are known ones; `probes=0` draws the file as it is.

    palaestra train sem --docs FOLDER --data questions.jsonl --model DIR [probes=16] [warm=30]

An instruction model is told the form. `warm` steps of imitation show it first to one that does not
follow instructions: episodes on the user's questions, with the model's own answer as the draft, of
which half search. The published abstract has no constants, so tau, rho and floor are ours.

R has bonus * s(a1) beside it, bonus = 0.2: without it a model learns to draft wrongly what it knows, and
to search without a loss. "part/draft known" is s(a1) of known questions, and falls then. "part/redundant"
is what redundant searches took off R.

Long because the reward compares a draft with the last answer, and splits its numbers by known and unknown
questions; the start shows drafts of the model's own, which it has to sample and read in any form.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl

CARD = pl.Card(
    title="SEM: search-efficient LLMs",
    paper="arXiv:2505.07903",
    claim="A draft before searching, and a reward that takes off from searches that were not needed, on a "
    "balance of known and unknown questions, make far fewer searches at equal accuracy.",
    source="abstract and summaries; the constants of the reward are ours",
    size=pl.Size(
        setting="Qwen2.5-7B and 14B, MuSiQue and MMLU, about 200 steps; from summaries",
        model="qwen2.5-7b",
    ),
    model="tiny-agent",
    task="wiki-draft",
    world="draft-search",
    needs=pl.needs.Requirements(
        columns=(pl.needs.QUESTION, pl.needs.GOLD_ANSWER),
        places=(
            pl.needs.NeededPlace("documents", "which the model searches", built_in=("wiki-draft",)),
        ),
        shows="part/redundant",
        off={"rho": 1.0},
        own={
            "model": "tiny-agent",
            "env": "search(told=0,k=1,turns=2)",
            "think": False,
            "rl.instruction": "",
            "probes": 1,
            "candidates": 4,
            "warm": 1,
            "memory": 1.0,
            "steps": 12,
            "shown.schedule.prompts": 8,
            "shown.learners.policy.optimiser.lr": 0.004,
            "samples": 6,
            "rl.schedule.prompts": 2,
        },
    ),
    use="It helps where a model knows some of the answers and searches although it does; where it knows "
    "nothing, every search is needed and the reward is that of `research`.",
    lacks=(
        "MuSiQue, MMLU, HotpotQA and GSM8K, and the paper's retriever, are not there.",
        "Known questions are not of a data set of their own, as MMLU in the paper, unless your file mixes "
        "them (`probes=0`).",
        "The constants of the paper's reward are not published in what we could read.",
    ),
    grade="B",
)
DOUBT = "Search only if you doubt your first answer."
UNKNOWN = "unknown"


@pl.stage
class DraftReward:
    """A link after `AnswerF1`, whose parts "f1" and "formed" it reads, in a `pl.worlds.DraftSearch`.

    Parts: "draft", s(a1); "redundant", what was taken off R for a search that was not needed;
    "searches"; and with the column "from_memory" "searches known" and "draft known", or "searches
    unknown".

    Args:
        rho: the share of the reward that is left after a redundant search, 0 to 1.
        tau: from which F1 on a draft counts as right.
        floor: R of a wrong answer in the right form.
        bonus: paid for s(a1) beside R.
    """

    rho: float = 0.5
    tau: float = 0.5
    floor: float = 0.1
    bonus: float = 0.2

    def __post_init__(self) -> None:
        if not (0 <= self.rho <= 1 and 0 < self.tau <= 1 and 0 <= self.floor <= 1):
            raise pl.UserError(
                f"sem: rho and floor are 0 to 1, and tau is above 0 and at most 1, not {self.rho}, "
                f"{self.floor} and {self.tau}"
            )

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(self._paid(e, group.task) for e in group.episodes))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where nobody drafts, or nobody searches, so that the reward compares nothing."""
        episodes = [e for g in groups for e in g.valid if "draft" in e.facts]
        if episodes and all(e.facts["draft"] is None for e in episodes):
            return (
                "no message of the first step began with an answer, the draft, so every reward is 0; "
                "warm=30 shows the form before training, and --env 'search(told=1)' tells it"
            )
        if episodes and not any(e.facts["calls"] for e in episodes):
            return (
                "nobody searched after a draft in the first step, so that no search can be told to be "
                "needed or not; warm=30 shows both before training"
            )
        return ""

    def _paid(self, e: pl.Episode, task: pl.Task) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        if "draft" not in e.facts or "f1" not in e.reward.parts:
            raise pl.UserError(
                "sem rewards drafts before searches, and this environment has none (the fact draft); "
                "give your documents with --docs, or a search of yours with --tools FILE.py:search"
            )
        golds = task.answer if isinstance(task.answer, list | tuple) else [task.answer]
        draft = pl.verifiers.answer_f1(unboxed(e.facts["draft"] or ""), [str(g) for g in golds])
        last, searches = float(e.reward.parts["f1"]), int(e.facts["calls"])
        right = e.reward.parts["formed"] > 0
        redundant = right and searches > 0 and draft >= self.tau
        fee = (1 - self.rho) * last if redundant else 0.0
        total = (last - fee if redundant else max(last, self.floor)) + self.bonus * draft
        parts = {"draft": draft, "redundant": fee, "searches": float(searches)}
        silent = e.reward.silent
        if "from_memory" in task.meta:  # a mean over the questions of its kind alone
            known = {"searches known": float(searches), "draft known": draft}
            unknown = {"searches unknown": float(searches)}
            parts |= known | unknown
            silent = (*silent, *(unknown if task.meta["from_memory"] else known))
        parts = {**e.reward.parts, **parts}
        reward = replace(e.reward, total=total if right else 0.0, parts=parts, silent=silent)
        return replace(e, reward=reward)


class WorkedExample:
    """A `DraftSearch` whose oracle begins with a `draft`, and searches behind it or not; with `think`
    a thought is before each action.
    """

    def __init__(
        self, world: pl.worlds.DraftSearch, draft: str, searches: bool, think: bool
    ) -> None:
        self.world, self.draft, self.searches, self.think = world, draft, searches, think
        self.seats = world.seats

    def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        return self.world.reset(task, key)

    async def step(self, state: Any, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        return await self.world.step(state, acts, key)

    def oracle(self, state: Any) -> str:
        if state.outcomes:
            return self._thought("The documents say more.") + self.world.oracle(state)
        search, answer = self.world.forms
        query = self.world.first_query(state.task)
        doubt = f"{self._thought('I check it.')}<{search}>{query}</{search}>"
        draft = f"{self._thought('I answer from memory.')}<{answer}>{self.draft}</{answer}>"
        return draft + (doubt if self.searches else "")

    def _thought(self, text: str) -> str:
        return f"<think>{text}</think>" if self.think else ""


@pl.stage
class ShowDrafts:
    """A worked example: a draft, and in half of the episodes a search and the right answer after it.

    Args:
        memory: the share of the questions whose draft is the right answer, which are known
            afterwards; the others' is "unknown". 0 = each draft is the model's own answer, sampled
            without documents, in the form or free; "unknown" where none can be read in it.
        think: before each action.
    """

    memory: float = 0.0
    think: bool = False

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = ctx.bench.world
        if not isinstance(world, pl.worlds.DraftSearch):
            raise pl.UserError(
                f"sem shows searches of documents, and {ctx.bench.name} has none; give your documents "
                "with --docs, or a search of yours with --tools FILE.py:search"
            )
        searches = pl.rng_of((*key, "doubt")).random() < 0.5
        example = WorkedExample(
            world, await self._draft(ctx, key, group.task), searches, self.think
        )
        return await pl.Demonstrate()(ctx.with_bench(replace(ctx.bench, world=example)), key, group)

    async def _draft(self, ctx: pl.Context, key: pl.Key, task: pl.Task) -> str:
        if self.memory:
            asked = pl.tasks.plain_question(task)
            known = pl.rng_of(("memory", asked)).random() < self.memory
            gold = pl.worlds.right_answers(task)[0]
            return gold if known else UNKNOWN
        world: Any = ctx.bench.world
        closed = ctx.with_bench(replace(ctx.bench, world=world.closed()))
        asked_once = await pl.Sample(n=1)(closed, (*key, "draft"), pl.Group(task=task))
        return world.untagged(free_answer(asked_once.episodes[0])) or UNKNOWN

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says how many drafts are no answer, where they should be the model's own."""
        drafts = [e.facts["draft"] for g in groups for e in g.episodes if e.facts.get("draft")]
        unknown = drafts.count(UNKNOWN)
        if self.memory or not unknown:
            return ""
        return (
            f"{unknown} of {len(drafts)} drafts shown in the first step are {UNKNOWN!r}, for no answer "
            "could be read in the model's reply without documents; a higher --max-tokens, or an "
            "instruction model, gives more of its own"
        )


def free_answer(e: pl.Episode) -> str:
    """The answer of a reply in the form or without it: what it states as its answer, or the last line
    of a reply that was not cut, of up to 12 words; "" = none.
    """
    if e.facts.get("answer"):
        return unboxed(e.facts["answer"])
    stated = pl.stated_answer(e.text)
    if stated is not None:
        return stated
    sampled = [s for row in e.rows for s in row.segments if s.logp is not None]
    lines = pl.verifiers.strip_thinking(e.text).strip().splitlines()
    whole = bool(sampled) and sampled[-1].finish == "eos" and bool(lines)
    return lines[-1] if whole and len(lines[-1].split()) <= 12 else ""


def unboxed(answer: str) -> str:
    """An answer without the box that it stands in."""
    boxed = pl.verifiers.boxed_answer(answer)
    return answer if boxed is None else boxed


def build(
    rho: float = 0.5,
    tau: float = 0.5,
    floor: float = 0.1,
    bonus: float = 0.2,
    probes: int = 16,
    share: float | None = 0.5,
    candidates: int | None = None,
    warm: int = 0,
    memory: float = 0.0,
    think: bool = True,
    samples: int = 8,
    turns: int = 0,
) -> pl.Runnable:
    """`share` of the questions drawn are known ones; None draws them as they come. `candidates` are
    probed, None = all of a file, at most 4096. `warm` steps of imitation come first; `memory`: see `ShowDrafts`.
    `turns` 0 = as many as the world allows.
    """
    reward = pl.rewards.AnswerF1(think=think)
    balanced = pl.curriculum.KnowledgeBoundary(probes, candidates, share) if probes else None
    learned = pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            pl.Sample(n=samples, turns=turns),
            pl.Score(),
            reward,
            DraftReward(rho, tau, floor, bonus),
        ),
        instruction=f"{pl.rewards.THINK_FIRST} {DOUBT}" if think else DOUBT,
        **({"draw": balanced} if balanced else {}),
    )
    if not warm:
        return learned
    return pl.imitate_first(
        learned,
        warm,
        collect=pl.links(ShowDrafts(memory, think)),
        optimiser=pl.AdamW(lr=2e-3),
    )


def embedded(warm: int = 200, memory: float = 0.5, think: bool = False, **options: Any) -> Any:
    """On questions over a small wiki, of which the small model knows nothing: first it is shown drafts,
    of which half are right, and searches after half of them.
    """
    made: Any = build(warm=warm, memory=memory, think=think, **{"probes": 4, **options})
    if not warm:
        return made
    learned = pl.vary(made.parts["rl"].runnable, optimiser=pl.AdamW(lr=1e-3))
    return replace(made, parts={**made.parts, "rl": replace(made.parts["rl"], runnable=learned)})
