"""ToRL: reinforcement learning from a base model that runs programs while it reasons.

    right answer   R = 1,     else R = -1
    and R = R - penalty where the last program of the answer did not run,     penalty = 0 (0.5 in the
    paper's ablation)

GRPO on R (arXiv:2503.23383; released code GAIR-NLP/ToRL). The policy writes a program in a fence and
then the line ```output; sampling stops there, the sandbox runs the program, its output is written
behind and the reply goes on. The output carries no gradient. An answer runs at most C programs (1 by
default), then code is text like any other; of an error only the last line is shown; of a long
output the beginning and the end; each program starts in an empty world.

    palaestra train torl --data problems.jsonl --model DIR [--reward math] [penalty=0.5]
    palaestra train torl ... --env "interpreter(calls=3,keep=True,chars=500)"
    palaestra train torl ... --tools python --tool-turns 1

The second command allows three programs in one session, whose names live on. The third has the
program written as a call in the way of the model's family, for models that were taught calls.

Deviations: an answer that ran no program has no penalty (the release gives it one), only what is
said after the last output is the answer, and a failed program shows what it printed before the last
line of its error.
"""

from dataclasses import replace

import palaestra as pl

CARD = pl.Card(
    title="ToRL: tool-integrated RL",
    paper="arXiv:2503.23383",
    claim="A base model learns by outcomes alone when to run programs and which, and solves more than "
    "without them and than models that were shown tools.",
    source="released code (GAIR-NLP/ToRL: vllm_rollout_spmd.py, math_verifier.py, torl_1.5b.sh) and "
    "the abstract",
    size=pl.Size(
        setting="Qwen2.5-Math-1.5B and 7B base, 28,740 problems, 128 prompts x 16, minibatch 1,024, "
        "3,072 tokens, lr 1e-6, no KL, C = 1",
        model="qwen2.5-7b",
        prompts=128,
        samples=16,
        tokens=3072,
        lr=1e-6,
        arguments={"update.minibatches": 2},
    ),
    model="tiny-agent",
    task="add(d=4)",
    world="interpreter",
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
            "samples": 3,
            "schedule.prompts": 4,
            "max_tokens": 40,
        },
    ),
    use="It helps where answers need exact computation and the model has seen code; where a model never "
    "writes a program there is nothing to reinforce, and where a program is not needed it costs tokens.",
    lacks=(
        "The 28,740 problems and Qwen2.5-Math are not there.",
        "What emerges in long training (choosing when to call, leaving programs that do not help) is "
        "counted by the share of answers that ran one, and not analysed further.",
    ),
    grade="A",
)


@pl.stage
class ExecutabilityReward:
    """A link after `Score`: R above. The part "unexecutable" is what was taken for a program that
    did not run.
    """

    penalty: float = 0.0

    def __post_init__(self) -> None:
        pl.check_bounds("torl: penalty", self.penalty, least=0)

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._paid, group.episodes)))

    def _paid(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        taken = self.penalty * pl.rewards.last_call_failed(e.facts)
        total = (1.0 if e.solved else -1.0) - taken
        parts = {**e.reward.parts, "unexecutable": taken}
        return replace(e, reward=replace(e.reward, total=total, parts=parts, solved=e.solved))


def build(penalty: float = 0.0, tool: bool = True, samples: int = 16) -> pl.Recipe:
    """`penalty` is taken for a last program that did not run; `tool` False trains without the tool,
    the paper's arm.
    """
    sample = pl.Sample(n=samples)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            sample if tool else pl.worlds.Unaided(sample),
            pl.Score(),
            pl.rewards.ToolUse(),
            ExecutabilityReward(penalty),
        ),
    )


def embedded(penalty: float = 0.0, tool: bool = True, samples: int = 8) -> pl.Pipeline:
    """On sums of two numbers of four digits. The small model never saw a fence, so first it is shown
    programs for half of the sums, and for the others the answer alone.
    """
    sft = pl.vary(
        pl.recipe("sft"),
        schedule=pl.Schedule(prompts=16, steps=100),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
    )
    learned = pl.vary(build(penalty, tool, samples), schedule=pl.Schedule(prompts=8, steps=25))
    worked = "interpreter(told=False,worked=0.5)"
    return pl.Pipeline(
        parts={
            "shown": pl.Part(sft, task="add(d=4)", env=worked, shared=True),
            "rl": pl.Part(
                learned,
                model=pl.Output("shown"),
                task="add(d=4)",
                env="interpreter(told=False)",
            ),
        }
    )
