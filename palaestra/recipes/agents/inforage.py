"""InForage: what a search finds is rewarded, and every turn costs.

    g_t = |U_t & U*| / |U*|        of search t: U_t what it showed, U* the gold documents
    R   = (F1 + gain * max_t g_t) * cost^(n - 1)  for n > free,  without the last factor for n <= free

n counts the turns that did not end the episode, searches and turns in a broken form alike. gain = 0.2,
cost = 0.95, free = 2 (arXiv:2505.09316; released code qhjqhj00/InForage, tools/llm_agent and
main_ppo.py). Only the best single search counts, `coverage=union` counts what all of them found
together. GRPO on R; the released training is PPO (`algorithm=ppo`).

    palaestra train inforage --docs FOLDER --data questions.jsonl --model DIR

U* is the column `gold`: ids of documents, such as file names. Without it a search gains 1 where a passage
that it shows has a right answer's words, else 0.
"""

from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="InForage: information foraging reward",
    paper="arXiv:2505.09316",
    grade="B",
    claim="Rewards for what each search finds, beside the answer's, make agents search better over several "
    "hops.",
    source="released code (qhjqhj00/InForage: tools/llm_agent/generation.py, main_ppo.py, "
    "scripts/train_ppo.sh) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-3B, questions over real web pages with the sources that people used, PPO, batch "
        "512, KL 0.001 in the reward, 6 turns, 3 passages",
        model="qwen2.5-3b",
        prompts=512,
    ),
    model="tiny-agent",
    task="wiki",
    world="search",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.QUESTION,
            pl.needs.GOLD_ANSWER,
            pl.needs.NeededColumn(
                "gold",
                "any",
                (["lions.md"], ["lions.md"]),
                "the documents that answer the question: ids of records, or names of files in the folder",
                otherwise="a search gains 1 where a passage has a right answer's words",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "documents", "which the model searches", built_in=("wiki", "wiki-2", "wiki-far")
            ),
        ),
        shows="part/gain",
        off={"gain": 0.0},
        own={
            "model": "tiny-agent",
            "env": "search(told=0,k=1)",
            "think": False,
            "samples": 2,
            "schedule.prompts": 4,
        },
    ),
    use="It helps where answers need several documents and the gold ones are known; a search that finds "
    "them pays even where the answer is wrong.",
    lacks=(
        "The annotated traces of people and the supervised start on them are not there; `palaestra train "
        "sft` makes a start.",
        "Search in the live web is a tool of yours.",
    ),
)


@pl.stage
class ForagingReward:
    """A link after `AnswerF1`, whose part "f1" it reads. Parts: "gain", gain * g; "cost", what the
    turns took off R.
    """

    gain: float = 0.2
    cost: float = 0.95
    free: int = 2
    coverage: Literal["best", "union"] = "best"

    def __post_init__(self) -> None:
        if not (self.gain >= 0 and 0 <= self.cost <= 1):
            raise pl.UserError(
                f"inforage: gain is 0 or more and cost is 0 to 1, not {self.gain} and {self.cost}"
            )

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._paid, group.episodes)))

    def _paid(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        if "gains" not in e.facts:
            raise pl.UserError(
                "inforage pays for what each search shows, and this environment does not say it (the "
                "fact gains); give your documents with --docs, or a search of yours with --tools FILE.py:search"
            )
        coverage = e.facts["gains"] if self.coverage == "best" else e.facts["coverage"]
        gained = self.gain * max(coverage, default=0.0)
        turns = len(e.facts["outcomes"]) - bool(e.facts["answered"])
        whole = float(e.reward.parts["f1"]) + gained
        total = whole * (self.cost ** (turns - 1) if turns > self.free else 1.0)
        parts = {**e.reward.parts, "gain": gained, "cost": whole - total}
        return replace(e, reward=replace(e.reward, total=total, parts=parts))


def build(
    gain: float = 0.2,
    cost: float = 0.95,
    free: int = 2,
    coverage: Literal["best", "union"] = "best",
    algorithm: Literal["grpo", "ppo"] = "grpo",
    think: bool = True,
    samples: int = 8,
    turns: int = 0,
) -> pl.Recipe:
    """`turns` 0 = as many as the world allows. `algorithm=ppo` has a critic, and the KL in the reward."""
    in_reward = {"kl": 0.001} if algorithm == "ppo" else {}
    return pl.vary(
        pl.recipe(algorithm, **in_reward),
        collect=pl.links(
            pl.Sample(n=samples, turns=turns),
            pl.Score(),
            pl.rewards.AnswerF1(think=think),
            ForagingReward(gain, cost, free, coverage),
        ),
        instruction=pl.rewards.THINK_FIRST if think else "",
    )


def embedded(think: bool = False, **options: Any) -> pl.Recipe:
    """On questions over a small wiki; the small model was not trained to write thoughts."""
    made: pl.Recipe = build(think=think, **options)
    return made
