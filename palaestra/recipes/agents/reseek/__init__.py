"""ReSeek: after each search the agent judges what was found, and is paid for judging rightly.

    <search>q</search>   tool: passages   <judge>no</judge><search>q'</search>   tool: passages
    <judge>yes</judge><answer>a</answer>

A judgement is right where it says yes to passages that are useful and no to others: those are useful
that show a gold document, or a right answer's words where no gold document is named. Search t has
r_t = `match` for a right judgement, -`junk` for yes to what is not useful, -`missed` for no to what is,
and 0 without a judgement. With n searches that found something, and C the largest share of the gold
documents that an episode has seen,

    R = min(cap, sum_t gamma^(t-1) r_t) + utility C + gamma^n [the answer is right]

and GRPO on R (arXiv:2510.00568; match 0.3, junk 0.6, missed 0.3, 3 passages and 4 searches of a note on
the paper). gamma is 1. cap = 0.6 is ours: without it many searches that are judged rightly pay more than
an answer. So is utility = 0.1; the project page has the usefulness of passages in the judgement
alone, which is `utility=0`. The paper measures usefulness by the score of a reranker.

After no the next action is another search, while there is one. `hard=1` takes passages that were judged
not useful out of the context of all that follows, as the project page has it; else they stay, with the
judgement:

    palaestra train reseek --docs FOLDER --data questions.jsonl --model DIR [--env "search(hard=1)"]

An instruction model is told the form. `warm` steps of imitation show it first to one that does not
follow instructions: episodes on the user's questions, of whose judgements `wrong` are wrong.

FictionalHot, the paper's questions that no model can have seen, is made of the user's own: with
`fictional=N` up to N held-out questions are also asked about invented names, see `FictionalExam`.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl

from .fictional import FictionalExam

CARD = pl.Card(
    title="ReSeek: self-correcting search with JUDGE action",
    paper="arXiv:2510.00568",
    claim="Judging what each search found, paid by whether the judgement is right, makes agents leave wrong "
    "paths and answer more questions, also about entities that no model can know.",
    source="project page (TencentBAC/ReSeek: docs/index.html) and a public note on the paper for the "
    "constants; the code of the release was not read",
    size=pl.Size(
        setting="Qwen2.5-3B and 7B Instruct, NQ and HotpotQA, 169,615 questions, 3 passages of E5, 4 searches",
        model="qwen2.5-7b",
    ),
    model="tiny-agent",
    task="wiki-judge",
    world="judge-search",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.QUESTION,
            pl.needs.GOLD_ANSWER,
            pl.needs.NeededColumn(
                "gold",
                "any",
                (["lions.md"], ["lions.md"]),
                "the documents that answer the question: ids of records, or names of files in the folder, "
                "of whose passages those with a right answer's words count, or all, if none has",
                otherwise="passages are useful that have a right answer's words",
            ),
        ),
        places=(
            pl.needs.NeededPlace("documents", "which the model searches", built_in=("wiki-judge",)),
        ),
        shows="part/judged",
        off={"match": 0.0, "junk": 0.0, "missed": 0.0},
        own={
            "model": "tiny-agent",
            "env": "search(told=0,k=1,turns=3)",
            "think": False,
            "rl.instruction": "",
            "warm": 1,
            "steps": 6,
            "shown.schedule.prompts": 8,
            "shown.learners.policy.optimiser.lr": 0.004,
            "samples": 2,
            "rl.schedule.prompts": 2,
        },
    ),
    use="It helps where searches often find what does not answer the question and another search would; where "
    "what is found is always useful, the judgement is a constant and costs tokens.",
    lacks=(
        "Usefulness is measured by gold documents or the answer's words, not by a reranker's score against the "
        "answer.",
        "FictionalHot's own questions and documents are not there: a held-out exam renames the names of your "
        "questions and documents by rule, where the paper has a language model write them.",
        "NQ, TriviaQA, PopQA, HotpotQA, 2Wiki, MuSiQue and Bamboogle, and the paper's dense retriever, are not "
        "there.",
        "Path faithfulness is not measured beside judgements and coverage.",
    ),
    grade="B",
)
JUDGES = "Judge what each search found before you go on."
UNKNOWN = "unknown"


@pl.stage
class JudgementReward:
    """A link after `Score` in a `pl.worlds.JudgeSearch`.

    Parts: "judged", what judgements pay; "utility"; "answer", what the answer pays; "judged right", the
    share of searches that were judged rightly; "accepted junk", the share of those that found
    nothing useful to which yes was said (silent where there are none); "unjudged", searches without a
    judgement.

    Args:
        match: of a right judgement.
        junk: taken off for yes to passages that are not useful.
        missed: taken off for no to useful ones.
        gamma: discount by search.
        cap: that judgements pay at most; they may cost more.
        utility: paid for the share of the gold documents that the searches showed.
    """

    match: float = 0.3
    junk: float = 0.6
    missed: float = 0.3
    gamma: float = 1.0
    cap: float = 0.6
    utility: float = 0.1

    def __post_init__(self) -> None:
        amounts = (self.match, self.junk, self.missed, self.cap, self.utility)
        if min(amounts) < 0 or not 0 <= self.gamma <= 1:
            raise pl.UserError(
                "reseek: match, junk, missed, cap and utility are 0 or more, and gamma is 0 to 1, not "
                f"{', '.join(f'{x:g}' for x in amounts)} and {self.gamma:g}"
            )

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._paid, group.episodes)))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where nobody judges, so that only answers are rewarded."""
        episodes = [e for g in groups for e in g.valid if "judgements" in e.facts]
        if not episodes or any(x is not None for e in episodes for x in e.facts["judgements"]):
            return ""
        return (
            "no search of the first step was judged, so that judgements teach nothing; warm=30 shows "
            "<judge> before training, and --env 'search(told=1)' tells it"
        )

    def _paid(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        if "judgements" not in e.facts:
            raise pl.UserError(
                "reseek rewards judgements of searches, and this environment has none (the fact "
                "judgements); give your documents with --docs, or a search of yours with --tools FILE.py:search"
            )
        judgements, useful = e.facts["judgements"], e.facts["useful"]
        both = list(zip(judgements, useful, strict=True))
        judgement_pay = sum(
            self.gamma**t * self._pay(says, is_so) for t, (says, is_so) in enumerate(both)
        )
        seen = max((*e.facts["coverage"], *e.facts["gains"]), default=0.0)
        parts = {
            "judged": min(self.cap, judgement_pay),
            "utility": self.utility * float(seen),
            "answer": self.gamma ** len(both) * float(bool(e.facts.get("correct"))),
        }
        junk = [says for says, is_so in both if not is_so]
        parts_told = {
            "judged right": sum(s == u for s, u in both) / len(both) if both else 0.0,
            "accepted junk": sum(s is True for s in junk) / len(junk) if junk else 0.0,
            "unjudged": float(sum(s is None for s in judgements)),
        }
        kinds = (*(() if both else ("judged right",)), *(() if junk else ("accepted junk",)))
        reward = replace(
            e.reward,
            total=sum(parts.values()),
            parts={**e.reward.parts, **parts, **parts_told},
            silent=(*e.reward.silent, *kinds),
            solved=e.solved,
        )
        return replace(e, reward=reward)

    def _pay(self, says: bool | None, is_so: bool) -> float:
        if says is None:
            return 0.0
        if says == is_so:
            return self.match
        return -self.junk if says else -self.missed


class WorkedJudgement:
    """A `JudgeSearch` whose oracle says the opposite of what it should in a share `wrong` of its
    judgements, and goes on as if it were so; with `think` a thought is before each judgement.
    """

    def __init__(
        self, world: pl.worlds.JudgeSearch, wrong: float, think: bool, key: pl.Key
    ) -> None:
        self.world, self.wrong, self.think, self.rng = world, wrong, think, pl.rng_of(key)
        self.seats = world.seats

    def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        return self.world.reset(task, key)

    async def step(self, state: Any, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        return await self.world.step(state, acts, key)

    def oracle(self, state: Any) -> str:
        search, answer = self.world.forms
        gold = pl.worlds.right_answers(state.task)[0]
        query = self._query(state)
        if not pl.worlds.is_pending(state):
            if state.outcomes and not self.world.must_search(state):  # it found nothing
                return self._thought("I found nothing.") + f"<{answer}>{UNKNOWN}</{answer}>"
            return self._thought("I look it up.") + f"<{search}>{query}</{search}>"
        useful = state.useful[-1]
        says = useful != (self.rng.random() < self.wrong)
        judgement = self._thought("I read it.") + f"<judge>{'yes' if says else 'no'}</judge>"
        again = f"{judgement}<{search}>{query or self._first(state)}</{search}>"
        if len(state.outcomes) + 1 >= self.world.turns:
            return f"{judgement}<{answer}>{gold if useful else UNKNOWN}</{answer}>"
        if not says or (useful and query):
            return again
        return f"{judgement}<{answer}>{gold if useful else UNKNOWN}</{answer}>"

    def _query(self, state: Any) -> str:
        """What is to be searched next; "" = nothing."""
        meta, retrieved = state.task.meta, {i for ids in state.found for i in ids}
        if "queries" in meta:
            ways = zip(meta.get("gold", ()), meta["queries"], strict=False)
            return next((q for i, q in ways if i not in retrieved), "")
        return "" if any(state.useful) else self._first(state)

    def _first(self, state: Any) -> str:
        return self.world.first_query(state.task)

    def _thought(self, text: str) -> str:
        return f"<think>{text}</think>" if self.think else ""


@pl.stage
class ShowJudgements:
    """A worked example: searches, judgements of which a share `wrong` are wrong, and what follows."""

    wrong: float = 0.3
    think: bool = False

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = ctx.bench.world
        if not isinstance(world, pl.worlds.JudgeSearch):
            raise pl.UserError(
                f"reseek shows searches of documents, and {ctx.bench.name} has none; give your "
                "documents with --docs, or a search of yours with --tools FILE.py:search"
            )
        example = WorkedJudgement(world, self.wrong, self.think, (*key, "wrong"))
        return await pl.Demonstrate()(ctx.with_bench(replace(ctx.bench, world=example)), key, group)


def build(
    match: float = 0.3,
    junk: float = 0.6,
    missed: float = 0.3,
    gamma: float = 1.0,
    cap: float = 0.6,
    utility: float = 0.1,
    fictional: int = 0,
    warm: int = 0,
    wrong: float = 0.3,
    think: bool = True,
    samples: int = 8,
    turns: int = 0,
) -> pl.Runnable:
    """`warm` steps of imitation come first, of whose judgements `wrong` are wrong. `fictional`
    held-out questions are also asked about invented names, 0 = none. `turns` 0 = as many as the
    world allows.
    """
    learned = pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            pl.Sample(n=samples, turns=turns),
            pl.Score(),
            JudgementReward(match, junk, missed, gamma, cap, utility),
        ),
        evaluate={"fictional": FictionalExam(fictional)} if fictional else {},
        instruction=f"{pl.rewards.THINK_FIRST} {JUDGES}" if think else JUDGES,
    )
    if not warm:
        return learned
    return pl.imitate_first(
        learned,
        warm,
        collect=pl.links(ShowJudgements(wrong, think)),
        optimiser=pl.AdamW(lr=2e-3),
    )


def embedded(warm: int = 100, wrong: float = 0.4, think: bool = False, **options: Any) -> Any:
    """On questions over a small wiki, whose searches show a wrong page in four of ten cases. The small
    model is shown judgements first, of which six in ten are right.
    """
    made: Any = build(warm=warm, wrong=wrong, think=think, **options)
    if not warm:
        return made
    learned = pl.vary(
        made.parts["rl"].runnable,
        optimiser=pl.AdamW(lr=1e-3),
        schedule=pl.Schedule(prompts=8, steps=30),
    )
    return replace(made, parts={**made.parts, "rl": replace(made.parts["rl"], runnable=learned)})
