"""IRanker: candidates are ranked by dropping the least relevant one, again and again; each decision is trained
alone, with a reward of its own, and one model ranks items, passages and whatever else has a name.

    <think>...</think>
    <answer>[2]</answer>                  one decision on a pool of s candidates, of which one is relevant

    r = r_drop + r_form + r_tag
    r_drop = 1      no candidate shown was less relevant than the named one
             0      one was: the relevant candidate is dropped
            -0.5    the answer names none of those shown
            -1      there is no answer
    r_form = 0      a thought, then an answer, and nothing beside them, else -1
    r_tag  = -0.25  for each of the four tags that does not stand exactly once

PPO with a value head, GAE with gamma = lambda = 1, one answer a prompt (arXiv:2506.21638; released code
ulab-uiuc/IRanker: exclusion_reward.py, iterative_data_generation.py). s is drawn from 2 to `pool`. A greedy
model then drops candidates until one is left: n candidates take n - 1 calls, each a context of its own. The rank
of the k-th dropped of n is n - k + 1.

A random choice earns r_drop = 1 with probability (s - 1) / s, with a variance of (s - 1) / s^2: 0.25 for two
candidates, 0.0475 for twenty, so large pools carry little signal.

Deviations: the released scorer reads the prompt with the response, whose tags are then counted twice; here the
response alone is read. Candidates are shown by numbers, and a number, an id or a text names one. Where none is
named, the last in the retriever's order is dropped, for which the code takes the most similar name. With
several relevant documents each is a positive in turn, and "least relevant" follows their grades.

    palaestra train iranker --docs FOLDER --data queries.jsonl --model DIR [--env "eliminate(k=20)"]

A row is {"prompt": QUERY, "gold": ["lions.md"]}; its candidates are what BM25 finds, or those of a column `items`: ids
of documents, texts, or {"id": ..., "text": ...}. They are shown in an order drawn at random.

The default run has users who like small or large numbers, and six candidates, of which one is to the user's taste.
A model that imitated decisions of which half were drawn at random has NDCG@10 0.67 and MRR 0.56 over 64 held-out
users (the order of the rows: 0.54 and 0.40); after 50 steps of PPO it has 0.98 and 0.98, from one seed. It names
candidates by their texts there. The rule is one of the tens digit, far simpler than what people like or read.

Long because one decision is trained in place of a whole ranking: the recipe draws pools, scores both the drop and
the form of a response, and demonstrates drops to a model that does not know the form.
"""

import re
from dataclasses import fields, replace
from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="IRanker: iterative-elimination ranking foundation model",
    paper="arXiv:2506.21638",
    claim="A model that drops the worst candidate step by step, trained by reinforcement learning on single decisions, "
    "ranks better than one that writes the whole ranking, over recommendation, routing and passages.",
    source="released code (ulab-uiuc/IRanker: verl/utils/reward_score/exclusion_reward.py, "
    "scripts/train_tiny_zero.sh, eval/eval_rec.py) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-3B; nine sets of recommendation (20 candidates), routing and passages (5 to 9), PPO with "
        "batch 64, actor lr 1e-6, critic lr 2e-6, entropy 0.001, KL 0.001, 1501 steps",
        model="qwen2.5-3b",
        prompts=64,
        samples=1,
        lr=1e-6,
    ),
    model="tiny",
    task="histories",
    world="eliminate",
    needs=pl.needs.Requirements(
        columns=(
            replace(pl.needs.QUESTION, meaning="a query, or what a user had and likes"),
            replace(
                pl.needs.GOLD,
                otherwise="a file of judgements names them: --env \"eliminate(qrels='FILE')\"",
            ),
            pl.needs.CANDIDATES,
        ),
        places=(
            pl.needs.NeededPlace(
                "documents", "which are ranked", also=("tools",), built_in=("histories",)
            ),
        ),
        shows="part/above_chance",
        off={"weight": 0.0},
        own={
            "model": "tiny",
            "env": "eliminate(told=0)",
            "think": False,
            "start": "shown",
            "shown": 9,
            "pool": 3,
            "exam": 0,
            "steps": 9,
            "rl.schedule.prompts": 2,
            "shown.schedule.prompts": 12,
            "shown.optimiser.lr": 0.005,
            "shown.optimiser.warmup": 0,
            "max_tokens": 4,
        },
    ),
    use="It helps where lists are short and a wrong order at the top is costly; n candidates cost n - 1 calls, and a "
    "relevant one that is dropped early never comes back.",
    lacks=(
        "The nine data sets of the paper and its router tasks are not there.",
        "The direct ranker of the paper, which writes the whole ranking at once, is not there, nor a pointwise one; the "
        "order that stood before is measured beside.",
        "What thoughts of the trained model do for another one is not measured; GSM8K and the like are only where "
        "you name an exam.",
    ),
    grade="B",
)

THINK = "First reason in <think></think>, then write the number alone in <answer></answer>."
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
FORM = re.compile(r"\s*<think>.*?</think>\s*<answer>.*?</answer>\s*", re.DOTALL)


@pl.stage
class DrawPools:
    """Plays `sample` on one decision: a pool of a size drawn from 2 to `most`, with one relevant candidate."""

    sample: pl.Collect
    most: int = 20

    def __post_init__(self) -> None:
        pl.check_bounds("iranker: pool", self.most, least=2)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = ctx.bench.world
        if not isinstance(world, pl.worlds.Eliminate):
            raise pl.UserError(
                "iranker drops candidates, and this environment shows none; give --data with the column gold, "
                "and --docs FOLDER or --tools FILE.py:search"
            )
        size = int(pl.rng_of((*key, "pool")).integers(2, self.most + 1))
        bench = replace(ctx.bench, world=replace(world, size=size))
        return await self.sample(ctx.with_bench(bench), key, group)


@pl.declare(reads=("choice", "right_choice", "chance"))
@pl.stage
class EliminationReward:
    """A link after `Score` on single decisions. Parts: "above_chance", r_drop of a named candidate less
    the chance that a random one earns it; "right"; "named", 1 where one of those shown is; "form", r_form + r_tag.

    Args:
        weight: of r_drop; 0 rewards the form alone.
        think: the form has thoughts and tags; without, r_form and r_tag are 0.
    """

    weight: float = 1.0
    think: bool = True

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._pay, group.episodes)))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where no answer named a candidate."""
        rewards = [e.reward for g in groups for e in g.valid if e.reward is not None]
        if not rewards or any(r.parts.get("named") for r in rewards):
            return ""
        return (
            "no answer of the first step names a candidate, so that nothing tells a right drop from a wrong one; "
            "start=shown imitates the form first"
            + (", and think=False asks for no thoughts" if self.think else "")
        )

    def _pay(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None or "choice" not in e.facts:
            return e
        choice, right = int(e.facts["choice"]), float(e.facts["right_choice"])
        text = pl.response_text(e)
        if pl.rewards.begins_with_thoughts(e) and "<think>" not in text:
            text = f"<think>{text}"  # which the chat template wrote
        if self.think and not ("<answer>" in text and "</answer>" in text):
            choice = -1
        drop = right if choice > 0 else -0.5 if choice == 0 else -1.0
        form = form_penalty(text) if self.think else 0.0
        parts = {
            **e.reward.parts,
            "above_chance": self.weight * (right - float(e.facts["chance"])) if choice > 0 else 0.0,
            "right": right if choice > 0 else 0.0,
            "named": float(choice > 0),
            "form": form,
        }
        total = self.weight * drop + form
        return replace(e, reward=replace(e.reward, total=total, parts=parts, solved=e.solved))


def form_penalty(text: str) -> float:
    """r_form + r_tag of a response, from -2 to 0."""
    wrong = sum(text.count(tag) != 1 for tag in TAGS)
    return -0.25 * wrong - float(FORM.fullmatch(text) is None)


@pl.stage
class ShowDrops:
    """Demonstrates one decision: a right one, or with probability `noise` any candidate, drawn at random."""

    noise: float = 0.0
    think: bool = True
    words: bool = False

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world: Any = ctx.bench.world
        drops = DrawnDrops(
            **{f.name: getattr(world, f.name) for f in fields(world)},
            noise=self.noise,
            think=self.think,
            words=self.words,
        )
        return await pl.Demonstrate()(ctx.with_bench(replace(ctx.bench, world=drops)), key, group)


@pl.stage
class DrawnDrops(pl.worlds.Eliminate):
    """Whose oracle names any of the least relevant candidates, at random."""

    noise: float = 0.0
    think: bool = True
    words: bool = False  # the candidate's text names it, in place of its number

    def oracle(self, state: Any) -> str:
        """What is demonstrated."""
        rng = pl.rng_of(("drop", state.task.id, *(h[0] for h in state.left)))
        grades = pl.worlds.grades_of(state.task)
        worth = [pl.worlds.grade_of(h[0], grades) for h in state.left]
        least = [n for n, w in enumerate(worth, 1) if w == min(worth)]
        able = list(range(1, len(worth) + 1)) if rng.random() < self.noise else least
        chosen = able[int(rng.integers(len(able)))] if able else 1
        answer = state.left[chosen - 1][1] if self.words and able else f"[{chosen}]"
        return f"<think>\n</think>\n<answer>{answer}</answer>" if self.think else answer


def build(
    pool: int = 20,
    weight: float = 1.0,
    think: bool = True,
    samples: int = 1,
    kl: float = 0.001,
    entropy: float = 0.001,
    start: Literal["as-is", "shown"] = "as-is",
    shown: int = 200,
    noise: float = 0.0,
    words: bool = False,
    exam: int = 64,
) -> pl.Recipe | pl.Pipeline:
    """Pools have 2 to `pool` candidates. `start=shown` first imitates decisions for `shown` steps, of which `noise`
    are random; they name a candidate by its number, or with `words` by its text. `exam` held-out queries are
    ranked where a run is measured, beside the order that stood before; 0 = none.
    """
    instruction = THINK if think else ""
    objective: Any = pl.recipe("ppo").learners["policy"].objective
    learned = pl.vary(
        pl.recipe("ppo"),
        collect=pl.links(
            DrawPools(pl.Sample(n=samples), pool), pl.Score(), EliminationReward(weight, think)
        ),
        credit=pl.chain(pl.Gae(gamma=1.0, lam=1.0), pl.Center("batch"), pl.Scale("batch")),
        objective=objective + kl * pl.KL("k3") + entropy * pl.Entropy(),
        needs=(("policy", "value"), ("ref", pl.objective.kl_quantity("k3"))),
        references={"ref": "policy"},
        schedule=pl.Schedule(prompts=64, steps=50),
        instruction=instruction,
        evaluate={"ranking": pl.run.RankingExam(n=exam)} if exam else {},
    )
    if start == "as-is":
        return learned
    return pl.imitate_first(
        learned,
        shown,
        prompts=32,
        collect=pl.links(DrawPools(ShowDrops(noise, think, words), pool)),
        instruction=instruction,
    )


def embedded(
    pool: int = 4,
    think: bool = False,
    start: Literal["as-is", "shown"] = "shown",
    noise: float = 0.5,
    shown: int = 60,
    words: bool = True,
    **options: Any,
) -> pl.Recipe | pl.Pipeline:
    """On users who like small or large numbers. The small model never saw the form, so it is first shown decisions,
    half of them random.
    """
    return build(
        pool=pool, think=think, start=start, noise=noise, shown=shown, words=words, **options
    )
