"""IKEA: search only for what the model does not know.

    right answer    R = 1 + saved * max(0, 1 - RT / most),     saved = 0.6, most = 3
    wrong answer    R = tried if RT > 0, else 0,               tried = 0.05
    broken form     R = -1, also of a right answer

RT counts the searches of an episode (arXiv:2505.07596; released code hzy312/knowledge-r1, qa_em.py,
which counts tags in the text). GRPO on R. So memory pays more than a search where it is right, and a
search pays more than a wrong guess. The reward does not know which questions the model knows, but the
draw does: before training the model answers every question `probes` times without documents, and a
question is known where one answer is right. As many known as unknown questions are drawn.

    palaestra train ikea --docs FOLDER --data questions.jsonl --model DIR [probes=16] [share=0.5]

The right answer has the words of the gold one, of several golds one; articles and case do not count.
"part/searches known" and "part/searches unknown" in the metrics are the searches of an episode by the
kind of its question: the gap between them is what the method is for.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl

CARD = pl.Card(
    title="IKEA: internal-external knowledge synergy",
    paper="arXiv:2505.07596",
    grade="A",
    claim="A reward that pays memory above searching and searching above guessing, on as many known as "
    "unknown questions, needs fewer searches for more right answers.",
    source="released code (hzy312/knowledge-r1: qa_em.py, train_grpo_kb.sh, data_process, "
    "generation.py) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-3B and 7B and Llama-3.1-8B; 4000 known and 4000 unknown questions each of NQ and "
        "HotpotQA, 16 answers a question, batch 256, KL 0.001, 3 passages",
        model="qwen2.5-7b",
        prompts=256,
        samples=16,
    ),
    model="tiny-agent",
    task="wiki-few",
    world="search",
    needs=pl.needs.Requirements(
        columns=(pl.needs.QUESTION, pl.needs.GOLD_ANSWER),
        places=(
            pl.needs.NeededPlace(
                "documents",
                "which the model searches",
                built_in=("wiki-few", "wiki", "wiki-2", "wiki-far"),
            ),
        ),
        shows="part/knowledge",
        off={"saved": 0.0, "tried": 0.0},
        own={
            "model": "tiny-agent",
            "env": "search(told=0,k=1,turns=2)",
            "think": False,
            "instruction": "",
            "probes": 1,
            "samples": 8,
            "schedule.prompts": 4,
        },
    ),
    use="It helps where a model knows some of the answers and a search costs time or brings in wrong "
    "documents; where it knows nothing, all questions are of one kind and it is a small fee on searches.",
    lacks=(
        "NQ, HotpotQA, PopQA and 2Wiki, and the paper's retriever, are not there.",
        "What wrong documents do against right memory is not measured.",
    ),
)
GAP = "Search only for what you do not know."


@pl.stage
class KnowledgeReward:
    """A link after `AnswerF1`, whose parts "right" and "formed" it reads. Parts: "knowledge", what R
    has beside 1 for a right answer; "searches"; and with the column "from_memory" "searches known" or
    "searches unknown".
    """

    saved: float = 0.6
    tried: float = 0.05
    most: int = 3
    think: bool = False

    def __post_init__(self) -> None:
        if self.most < 1:
            raise pl.UserError(f"ikea: most is 1 or more searches, not {self.most}")

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(self._paid(e, group.task) for e in group.episodes))

    def _paid(self, e: pl.Episode, task: pl.Task) -> pl.Episode:
        if not e.ok or e.reward is None or "formed" not in e.reward.parts:
            return e
        parts = e.reward.parts
        malformed = e.facts["tool_malformed"]
        searches = int(e.facts["tool_calls"] - malformed)
        right = float(parts["right"])
        spared = self.saved * max(0.0, 1 - searches / self.most)
        knowledge = spared if right else self.tried * float(searches > 0)
        # the form of an answer that was not given is not asked for
        thinks = not self.think or pl.rewards.begins_with_thoughts(e)
        broken = malformed > 0 or not (parts["formed"] if e.facts["answered"] else thinks)
        new_parts = {"knowledge": 0.0 if broken else knowledge, "searches": float(searches)}
        silent = e.reward.silent
        if "from_memory" in task.meta:  # a mean over the questions of its kind alone
            kinds = ("searches known", "searches unknown")
            new_parts |= dict.fromkeys(kinds, float(searches))
            silent = (*silent, kinds[bool(task.meta["from_memory"])])
        total = -1.0 if broken else right + knowledge
        reward = replace(e.reward, total=total, parts={**parts, **new_parts}, silent=silent)
        return replace(e, reward=reward)


def build(
    saved: float = 0.6,
    tried: float = 0.05,
    most: int = 3,
    probes: int = 16,
    share: float | None = 0.5,
    candidates: int | None = None,
    think: bool = True,
    samples: int = 16,
    turns: int = 0,
) -> pl.Recipe:
    """`share` of the questions drawn are known ones; None draws them as they come. `candidates` are
    probed, None = all of a file, at most 4096. `turns` 0 = as many as the world allows.
    """
    return pl.vary(
        pl.recipe("grpo", kl=0.001),
        draw=pl.curriculum.KnowledgeBoundary(probes, candidates, share),
        collect=pl.links(
            pl.Sample(n=samples, turns=turns),
            pl.Score(),
            pl.rewards.AnswerF1(think=think),
            KnowledgeReward(saved, tried, most, think),
        ),
        instruction=f"{pl.rewards.THINK_FIRST} {GAP}" if think else GAP,
    )


@pl.stage
class ShowMemory:
    """Demonstrates searches, and to a share of the questions the answer at once: those are known
    afterwards.
    """

    share: float = 0.5

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = ctx.bench.world
        asked = pl.tasks.question_text(group.task)
        if (
            isinstance(world, pl.worlds.Search)
            and pl.rng_of(("memory", asked)).random() < self.share
        ):
            ctx = ctx.with_bench(replace(ctx.bench, world=world.closed()))
        return await pl.Demonstrate()(ctx, key, group)


def embedded(think: bool = False, samples: int = 8, **options: Any) -> pl.Pipeline:
    """On questions over a small wiki. The small model knows nothing of it, so first it is shown
    searches, and half of the answers.
    """
    learned = build(think=think, samples=samples, **{"probes": 4, **options})
    return pl.imitate_first(
        learned,
        200,
        collect=pl.links(ShowMemory()),
    )
