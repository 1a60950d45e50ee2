"""RESTL: a sentence becomes a formula of signal temporal logic by RL. Four aspects of the formula
are the reward, each judged by a reward model of its own.

    R = 0.2 m_a + 0.25 m_t + 0.35 m_l + 0.2 m_s,   r = R - 0.05 KL(pi || pi_SFT)                      (arXiv:2511.08555)

m_a = share of the reference's atomic propositions (called precision there, divided by the
reference's count: recall), m_t = likeness of the formulas in words, m_l = max(0, 1 - | |y*| - |y| |
/ |y*| ), m_s = ROUGE-L of the tokens. `build` is a pipeline: for each aspect a reward model
(Bradley-Terry on the best and the worst of four candidates, easy inputs first), then PPO on the
weighted sum of their sigmoids. `improve()` alone is the paper's ablation, PPO on the metrics
themselves.

The surface pays a wrong time bound 0.966; `semantic` adds a check that the formula means the same
(ours). Empty: 0. Without proposition in the reference m_a is 1 if there is none. m_t compares with
the reference's words, n-grams in place of an encoder of the question. The order of the curriculum
is by propositions or length, known before sampling; the paper's other two need candidates.

Long because the pipeline trains a reward model for each of four aspects before PPO: the recipe reads formulas of
users and of built-in problems, and has the aspects, the learned mixture and the curriculum.
"""

from collections.abc import Callable
from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="RESTL: multi-aspect rewards for NL to signal temporal logic",
    paper="arXiv:2511.08555",
    claim="Several aspects of likeness, each with a reward model of its own, train better "
    "translators to logic than one.",
    source="paper (full text of the AAAI 2026 version); the semantic check and the sigmoid scale "
    "are ours",
    size=pl.Size(
        setting="LLaMA 3-8B, 14,000 pairs; reward models 5 epochs, lr 5e-5; PPO 80,000 steps, "
        "batch 32, lr 1.41e-5",
        model="llama-3.1-8b",
        answers=32,
        lr=1.41e-5,
        beside={"four reward models": 32.0},
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                (
                    "Write in signal temporal logic: in the first ten seconds the speed is below 40.",
                    "Write in signal temporal logic: at some time before 5 x is above 3.",
                ),
                "a specification in words",
            ),
            pl.needs.NeededColumn(
                "answer",
                "text",
                ("G[0,10](speed < 40)", "F[0,5](x > 3)"),
                "its formula: G, F and U with bounds, and, or, not, ->, comparisons",
            ),
        ),
        shows="part/learned/atoms",
        never_off="It is what a learned reward model says, between 0 and 1 and neither of them.",
        own={
            "steps": 1,
            "candidates": 2,
            **{f"{name}.schedule.prompts": 2 for name in ("atoms", "template", "length", "tokens")},
            "rl.schedule.prompts": 2,
            "rl.collect.links.0.n": 2,
            "max_tokens": 8,
        },
    ),
    use="It helps after supervised fine-tuning, where formulas are nearly right; it needs a "
    "reference for each specification, and a wrong time bound costs little without `semantic`.",
    lacks=(
        "The likeness in meaning compares words with the reference's, without an encoder of the "
        "specification.",
        "The supervised start is a run of `sft` before.",
        "Curricula are by propositions or length for all four reward models.",
        "A reference of one bare word or number is no formula here, and is read as an answer of "
        "the built-in problems.",
    ),
    grade="B",
)
WEIGHTS = (("atoms", 0.2), ("template", 0.25), ("length", 0.35), ("tokens", 0.2))


def formula(answer: str) -> str:
    """An answer of a built-in problem as a formula, a character for each step in time: the answer 66
    is G[0,0](x == 6) and G[1,1](x == 6), so that two answers can be compared as signals.
    """
    return " and ".join(
        f"G[{i},{i}](x == {int(c, 36) if c.isalnum() and c.isascii() else 99})"
        for i, c in enumerate(answer)
    )


def read(text: str, task: pl.Task) -> tuple[str, str]:
    """The formula of a reply, and the reference."""
    gold, answer = str(task.answer).strip(), pl.tasks.final_answer(text)
    try:
        pl.verifiers.parse_formula(gold)
    except pl.verifiers.NotFormula as error:
        if not gold.replace(" ", "").isalnum():  # of no built-in problem
            raise pl.UserError(
                f"task {task.id!r}: the answer {gold[:60]!r} is no formula of signal temporal logic, "
                f"such as G[0,10](x < 4) ({error})"
            ) from None
        return formula("".join((answer or "").split())), formula("".join(gold.split()))
    stated = answer if answer is not None else pl.stated_answer(text)
    return (pl.verifiers.strip_thinking(text) if stated is None else stated).strip().strip(
        "`$"
    ).strip(), gold


@pl.stage
class Aspects:
    """The weighted sum of aspects of a formula: atoms, template, length, tokens; exact, same (both
    0 or 1).
    """

    weights: tuple[tuple[str, float], ...] = WEIGHTS

    async def __call__(self, ctx: pl.Context | None, group: pl.Group) -> list[pl.Reward]:
        return [self.judge(pl.response_text(e), group.task) for e in group.episodes]

    def judge(self, text: str, task: pl.Task) -> pl.Reward:
        y, gold = read(text, task)
        parts = (
            {k: v for k, v in pl.verifiers.formula_aspects(y, gold).items() if k != "paper"}
            if y
            else dict.fromkeys(dict(WEIGHTS), 0.0)
        )
        parts["exact"] = float(y == gold)
        if "same" in dict(self.weights):
            parts["same"] = float(y == gold or is_same_formula(y, gold))
        return pl.Reward(total=sum(w * parts[k] for k, w in self.weights), parts=parts)


def is_same_formula(y: str, gold: str) -> bool:
    try:
        return pl.verifiers.are_equivalent(
            pl.verifiers.parse_formula(y), pl.verifiers.parse_formula(gold)
        )
    except pl.verifiers.NotFormula:
        return False


@pl.stage
class LearnedAspects:
    """The weighted sum of the sigmoids of reward models, one named after each aspect."""

    weights: tuple[tuple[str, float], ...] = WEIGHTS

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        scores = [await pl.Learned(name, squash=True)(ctx, group) for name, _ in self.weights]
        return [self.total(column) for column in zip(*scores, strict=True)]

    def total(self, scores: tuple[pl.Reward | pl.Fault, ...]) -> pl.Reward | pl.Fault:
        parts: dict[str, float] = {}
        for (name, _), each in zip(self.weights, scores, strict=True):
            if isinstance(each, pl.Fault):
                return each
            parts[f"learned/{name}"] = each.total
        return pl.Reward(
            total=sum(w * parts[f"learned/{name}"] for name, w in self.weights), parts=parts
        )


def propositions(task: pl.Task) -> float:
    return len(pl.verifiers.STL_ATOM.findall(str(task.answer)))


def length(task: pl.Task) -> float:
    return len(str(task.answer))


@pl.stage
class EasyFirst:
    """Tasks in blocks of `block`, within each the easy ones first."""

    difficulty: Callable[[pl.Task], float] = length
    block: int = 512
    draw: pl.Draw = pl.Shuffled()

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        waiting: list[pl.Task] = list(state.get("waiting", []))
        inner: pl.State = state.get("inner", {})
        while len(waiting) < n:
            drawn, inner = self.draw(ctx, key, self.block, inner)
            waiting += sorted(drawn, key=self.difficulty)
        return waiting[:n], {"waiting": waiting[n:], "inner": inner}


def improve(
    learned: bool = False,
    weights: tuple[tuple[str, float], ...] = WEIGHTS,
    kl: float = 0.05,
    semantic: float = 0.0,
) -> pl.Recipe:
    """PPO on four reward models named after the aspects, or on the aspects themselves."""
    extra = (("same", semantic),) if semantic else ()
    reward = LearnedAspects(weights) if learned else Aspects((*weights, *extra))
    return pl.vary(
        pl.recipe("ppo", kl=kl), collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward))
    )


def reward_model(
    aspect: Literal["atoms", "template", "length", "tokens"], candidates: int = 4, steps: int = 40
) -> pl.Recipe:
    """Ranks candidates of the start policy by one aspect."""
    return pl.Recipe(
        draw=EasyFirst(propositions if aspect == "atoms" else length, block=16 * steps),
        collect=pl.links(
            pl.Sample(n=candidates),
            pl.Offline("reward"),
            pl.Score(reward=Aspects(((aspect, 1.0),))),
        ),
        learners={
            "reward": pl.Learner(
                credit=pl.Compare(),
                objective=pl.BradleyTerry(),
                heads=("score",),
                optimiser=pl.AdamW(lr=5e-5),
            )
        },
        schedule=pl.Schedule(prompts=16, steps=steps),
    )


def build(
    weights: tuple[tuple[str, float], ...] = WEIGHTS,
    kl: float = 0.05,
    candidates: int = 4,
    steps: int = 40,
) -> pl.Pipeline:
    """`candidates` and `steps` are those of each reward model."""
    models = {name: pl.Output(name, "reward") for name, _ in WEIGHTS}
    parts = {
        name: pl.Part(reward_model(name, candidates, steps))
        for name in ("atoms", "template", "length", "tokens")
    }
    rl = improve(learned=True, weights=weights, kl=kl)
    return pl.Pipeline(parts={**parts, "rl": pl.Part(rl, models=models)})
