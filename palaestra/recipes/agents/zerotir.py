"""ZeroTIR: a base model that was never shown a tool learns by outcomes alone to run code, and how its
use of code grows with the steps is measured.

    R = 1 where the answer is right, in its form, and ended by the model itself, else 0
    A = (R - mean of its group) / standard deviation of the whole batch

(arXiv:2505.07773; released code yyht/openrlhf_async_pipline.) A reply is watched as a machine with
two states: in text, sampling stops where a ```python fence opens; in code, where it closes. The
program runs in the sandbox, its output is written behind and the reply goes on, at most 2 times;
then nothing stops any more. What keeps training stable:

    prompts    whose answers earn more than `easy` (0.8) on average are dropped and others drawn,
               three times; then the batch is filled with them
    answers    that were cut and are wrong, that are right though their fences, programs and outputs
               do not agree (the model wrote an output itself), or that repeat themselves, train
               nothing; the part "filtered" is their share

The law: over the steps t = 1, 2, ... of the run the share of answers that execute code, their length and
the accuracy are each fitted by y = a t^b, least squares of log y on log t, with a 95% interval of b
from Student's t, and ranked against the step (Spearman). "scaling/code/exponent", ".../low",
".../high" and ".../rank" are in the metrics from the fourth step on, over those before. Steps of one run are
not independent, so the interval is narrower than that of new runs.

    palaestra train zerotir --data problems.jsonl --model DIR [--reward math]

Long because the paper is as much about stability and measurement as about the reward: filters of answers and
of prompts, and the power laws of code use, length and accuracy, fitted as the run goes on.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="ZeroTIR: agent RL scaling law, spontaneous code execution",
    paper="arXiv:2505.07773",
    claim="With outcome rewards alone a base model comes to run code by itself, and code use, length and "
    "accuracy grow predictably with the training steps, above RL without the tool.",
    source="released code (yyht/openrlhf_async_pipline: math_tir.py, math_reward_tir.py, filter "
    "functions) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-7B and 32B base, 128 prompts x 16, batch 2,048, 8,192 tokens, lr 1e-6, no KL, "
        "clip 0.2 and 0.28, at most 2 executions, asynchronous with a queue of 1",
        model="qwen2.5-7b",
        prompts=128,
        samples=16,
        tokens=8192,
        lr=1e-6,
    ),
    model="tiny-agent",
    task="add(d=4)",
    world="interpreter(form='fence',calls=2,chars=1024,long='notice')",
    needs=pl.needs.Requirements(
        columns=(
            replace(pl.needs.PROMPT, examples=("4817+2525", "1208+3931", "9040+7609")),
            replace(pl.needs.ANSWER, examples=("7342", "5139", "16649")),
        ),
        places=(
            pl.needs.NeededPlace(
                "tools",
                "such as python",
                otherwise="programs stand in fences in the reply, as base models write them",
            ),
        ),
        shows="part/by_tool",
        off={"tool": False},
        own={
            "model": "tiny-agent",
            "tools": ("python",),
            "boxed": False,
            "samples": 3,
            "schedule.prompts": 4,
            "max_tokens": 40,
        },
    ),
    use="It helps where a base model writes code now and then by itself, as those trained on code do; "
    "where it never does, no reward can reach it.",
    lacks=(
        "The mathematical benchmarks and the models of the paper are not there.",
        "Answers are not filtered by the base model's perplexity, only by repetition.",
        "Rollouts beside the learning, with a queue, are a setting of the run (`schedule.lag=1`), and "
        "the executor is the sandbox of this machine, without a service that is far away.",
        "The comparison of algorithms is by fields of the recipe; no run of PPO is recorded.",
    ),
    grade="A",
)
BOXED = "Put the final answer in \\boxed{}."
NGRAM, REPEATED, LEAST_WORDS = 4, 0.3, 40  # words, share of different ones, of a text that is read
FILLED = 3  # draws
LEAST_STEPS = 3  # of a fit with an interval
SERIES = ("code", "length", "accuracy")


@pl.stage
class OutcomeInForm:
    """A link after `ToolUse`: R above. An answer is in its form where it stands in \\boxed{}, if
    `boxed`. `failing` is taken from a right answer of which more than one program was run and more
    than 90% failed (0 in the paper, 0.1 as an option of the release).
    """

    boxed: bool = True
    failing: float = 0.0

    def __post_init__(self) -> None:
        pl.check_bounds("zerotir: failing", self.failing, least=0, most=1)

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._paid, group.episodes)))

    def _paid(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        formed = not self.boxed or pl.verifiers.boxed_answer(e.text) is not None
        earned = e.solved and formed and e.status == "finished"
        made = e.facts.get("tool_calls", 0) - e.facts.get("tool_malformed", 0)
        fails = made > 1 and e.facts["tool_errors"] > 0.9 * made
        total = float(earned) - self.failing * (earned and fails)
        parts = {**e.reward.parts, "formed": float(formed)}
        return replace(e, reward=replace(e.reward, total=total, parts=parts, solved=e.solved))

    def first_step_note(self, groups: pl.Groups) -> str:
        answers = [e for g in groups for e in g.valid if e.reward is not None]
        right = sum(e.solved for e in answers)
        if not right or any(e.reward.parts.get("formed", 1.0) for e in answers if e.reward):
            return ""
        return (
            f"{right} of {len(answers)} answers of the first step are right and none stands in "
            "\\boxed{}, so all earned 0; ask for the box in the prompts, or pay without it: boxed=False"
        )


@pl.stage
class FilterAnswers:
    """Mutes answers that would teach something else than to solve; see the file. The part
    "filtered" is whether an answer is.
    """

    on: bool = True

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._filtered, group.episodes)))

    def _filtered(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        right = e.solved
        cut = e.status.startswith("truncated") and not right
        drop = self.on and (cut or (right and is_faked(e)) or repeats(e.text))
        parts = {**e.reward.parts, "filtered": float(drop)}
        return replace(e, muted=e.muted or drop, reward=replace(e.reward, parts=parts))


def is_faked(e: pl.Episode) -> bool:
    """Whether fences of programs, executions and outputs of an answer are not as many, or it wrote an
    output itself. Calls in the way of a model's family have no fences.
    """
    if "code_fences" not in e.facts:
        return False
    fences, outputs = e.facts["code_fences"], len(e.facts["outputs"])
    return bool(e.facts["faked_outputs"]) or fences != outputs


def repeats(text: str) -> bool:
    """Whether less than 30% of a text's runs of four words are different ones."""
    words = text.split()
    runs = [tuple(words[i : i + NGRAM]) for i in range(len(words) - NGRAM + 1)]
    return len(words) >= LEAST_WORDS and len(set(runs)) < REPEATED * len(runs)


@pl.stage
class DropEasy:
    """Keeps groups that earn at most `easy` on average, from up to three draws; what is missing then are
    the others, those that earn least first. `size` 0 = as many as a step draws.
    """

    easy: float = 0.8
    size: int = 0

    def __post_init__(self) -> None:
        pl.check_bounds("zerotir: easy", self.easy, least=0, most=1)

    def fit_to_run(self, prompts: int, max_tokens: int) -> "DropEasy":
        return self if self.size else replace(self, size=prompts)

    async def __call__(
        self, ctx: pl.Context | None, groups: list[pl.Group], state: pl.State
    ) -> tuple[list[pl.Group] | None, list[pl.Group], pl.State]:
        drawn, size = state.get("drawn", 0) + 1, self.size or len(groups)
        kept = [*state.get("kept", []), *(g for g in groups if mean_reward(g) <= self.easy)]
        easy = [*state.get("easy", []), *(g for g in groups if mean_reward(g) > self.easy)]
        if len(kept) < size and drawn < FILLED:
            return None, [], {"kept": kept, "easy": easy, "drawn": drawn}
        return [*kept, *sorted(easy, key=mean_reward)][:size], [], {}


def mean_reward(group: pl.Group) -> float:
    """Of a group's judged answers; 0 without any."""
    earned = [e.total for e in group.valid if e.reward is not None]
    return sum(earned) / len(earned) if earned else 0.0


@pl.stage
class FittedDraw:
    """Draws as `draw` does, and logs the fits of what `ScalingSeries` keeps: see `power_law`."""

    draw: pl.Draw

    def __call__(self, ctx: Any, key: pl.Key, n: int, state: pl.State) -> Any:
        return self.draw(ctx, key, n, state)

    def draw_numbers(self, state: pl.State) -> dict[str, float]:
        kept = state.get("scaling", [])
        fits = {name: power_law([row[i] for row in kept]) for i, name in enumerate(SERIES)}
        return {f"scaling/{name}/{k}": x for name, fit in fits.items() for k, x in fit.items()}


@pl.stage
class ScalingSeries:
    """Keeps of every step the share of answers that execute code, the mean length in tokens and the
    accuracy.
    """

    def __call__(self, seen: Sequence[pl.Group], examples: Any, state: pl.State) -> pl.State:
        answers = [e for g in seen for e in g.valid if e.reward is not None]
        if not answers:
            return state
        executes = [
            e.facts.get("tool_calls", 0) > e.facts.get("tool_malformed", 0) for e in answers
        ]
        row = tuple(
            float(np.mean(x))
            for x in (executes, [e.n_sampled for e in answers], [e.solved for e in answers])
        )
        return {**state, "scaling": [*state.get("scaling", []), row]}


def power_law(values: Sequence[float]) -> dict[str, float]:
    """The exponent b of y = a t^b, t = 1, 2, ..., with its 95% interval, and Spearman's rank
    correlation of y and t. The fit leaves out steps of 0, which have no logarithm; {} for fewer than
    three others, or where y never changes.
    """
    y_T = np.asarray(values, float)
    t_T = np.arange(1, len(y_T) + 1)
    above = y_T > 0
    n = int(above.sum())
    if n < LEAST_STEPS or np.ptp(y_T) == 0:
        return {}
    x, y = np.log(t_T[above]), np.log(y_T[above])
    spread = float(((x - x.mean()) ** 2).sum())
    exponent = float(((x - x.mean()) * (y - y.mean())).sum()) / spread
    rest = y - y.mean() - exponent * (x - x.mean())
    error = math.sqrt(float((rest**2).sum()) / (n - 2) / spread)
    half = pl.stats.t_quantile(0.975, n - 2) * error
    rank = float(np.corrcoef(pl.stats.ranks(y_T), t_T)[0, 1])
    return {"exponent": exponent, "low": exponent - half, "high": exponent + half, "rank": rank}


def build(
    easy: float = 0.8,
    filtered: bool = True,
    failing: float = 0.0,
    boxed: bool = True,
    tool: bool = True,
    samples: int = 16,
) -> pl.Recipe:
    """`easy` 1 keeps all prompts, `filtered` False trains on all answers, `tool` False trains without
    the tool, the paper's ZeroRL. `boxed` asks behind the questions for the box that it pays for.
    """
    sample = pl.Sample(n=samples)
    return pl.vary(
        pl.recipe("grpo"),
        draw=FittedDraw(pl.Shuffled()),
        observe=ScalingSeries(),
        collect=pl.links(
            sample if tool else pl.worlds.Unaided(sample),
            pl.Score(),
            pl.rewards.ToolUse(),
            OutcomeInForm(boxed, failing),
            FilterAnswers(filtered),
        ),
        pool=DropEasy(easy),
        credit=pl.chain(pl.Center("group"), pl.Scale("batch")),
        objective=pl.Clipped(low=0.2, high=0.28, reduce="tokens"),
        instruction=BOXED if boxed else "",
    )


def embedded(samples: int = 8, **options: Any) -> pl.Pipeline:
    """On sums of two numbers of four digits. The small model never saw a fence, so first it is shown
    answers, one in ten of which runs a program: rare, as in a base model's corpus.
    """
    sft = pl.vary(
        pl.recipe("sft"),
        schedule=pl.Schedule(prompts=16, steps=120),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
    )
    learned = pl.vary(
        build(samples=samples, **{"boxed": False, **options}),
        schedule=pl.Schedule(prompts=8, steps=30),
    )
    worked, plain = (
        f"interpreter(form='fence',calls=2,told=False,worked={share})" for share in (0.1, 0.0)
    )
    return pl.Pipeline(
        parts={
            "shown": pl.Part(sft, task="add(d=4)", env=worked, shared=True),
            "rl": pl.Part(learned, model=pl.Output("shown"), task="add(d=4)", env=plain),
        }
    )
