"""The claim of rl-tango: RL Tango: generator and verifier trained together."""

from palaestra.catalogue import recipe
from palaestra.claims.starts import judging_start
from palaestra.credit.links import chain
from palaestra.ledger.experiment import Balanced, Experiment, Final, Greater, Moving
from palaestra.pipeline import Output, Part, Pipeline
from palaestra.recipes.rewards.rl_tango import Z, build
from palaestra.step import Recipe, Schedule
from palaestra.values import override, vary


def shrink(learned: Recipe) -> Pipeline:
    """8 prompts x 8 answers, from a start that judges."""
    rl = override(vary(learned, schedule=Schedule(prompts=8)), "collect.links.0.n", 8)
    return Pipeline(parts={"shown": Part(judging_start()), "rl": Part(rl, model=Output("shown"))})


EXPERIMENT = Experiment(
    claim="Over the first 20 generator steps, outcomes are 5 points better with a verifier that learns than with GRPO.",
    arms={
        "grpo": shrink(vary(recipe("grpo"), credit=chain(*Z))),
        "tango": shrink(build(warmup=20)),
        "fixed": shrink(build(warmup=20, learns=False)),
        "unbalanced": shrink(build(warmup=20, balanced=False)),
        "merged": shrink(build(warmup=20, apart=False)),
    },
    expect=Greater("tango", "grpo", by=0.05),
    falsified_if="with the verifier's verdicts the mean outcome of these steps is not 5 points higher",
    measure=Moving(20),
    metric="mean outcome of the 1,280 answers of the generator's first 20 steps (temperature 1)",
    task="chain(operands=(2,3))",
    tokens=100_000,
    evaluate=128,
    seconds=80.0,
    controls={
        "accuracy at the end": Final(),
        "balanced accuracy of the verifier": Balanced(),
    },
    note="80 steps of imitated verdicts, half of them worked, come first in every arm, for the built-in model's are a coin. The "
    "verifier is a copy of this start; 20 updates of it alone come before the 20 steps, which with its own among them take 46. A "
    "step is judged by whether the verifier's own working has it. 5 points, as the paper's Tango is 9 ahead after 200 steps. At "
    "equal sampled tokens, the verdicts' included, GRPO makes more steps: `accuracy at the end` compares that.",
)
