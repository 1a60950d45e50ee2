"""Self-rewarding: a model judges its own answers, without a reference, and learns from the verdicts.

To verify is easier than to generate: whether an expression uses the given numbers and hits the target, or an antiderivative
differentiates to the integrand, can be seen without finding one (arXiv:2505.08827). Reward 1 if the judge calls an answer right,
0 if it calls it wrong, says nothing or both, or the answer is empty; then GRPO. The judge is a frozen copy of the start: one
that is the policy would drift with it. A formal verifier trains nothing and audits everything: `part/gold` beside `reward`,

    inflation = mean(self-reward) - mean(formal reward),

and `palaestra.judges.audit.agreement` for precision and kappa. Inflation that rises for several evaluations is hacking:
stop. The judge sees the last line alone (`last_line`), defused, for text that argues is what fools it; a client other than the
built-in model is asked with a prompt in words.
"""

from palaestra.card import Card, Size
from palaestra.context import Source
from palaestra.judges.pointwise import Judge
from palaestra.judges.prompt import CARE, last_line
from palaestra.judges.reading import MarkedLabel, Text
from palaestra.judges.standin import Grader, last_digit
from palaestra.ledger.experiment import Cell, Experiment, Final, Greater, Logged
from palaestra.recipes.base import grpo
from palaestra.rollout.collect import Sample, Score, links
from palaestra.services.chat.local import LocalModel
from palaestra.services.chat.scripted import Scripted
from palaestra.step import Recipe
from palaestra.toys.base import final
from palaestra.types import stage
from palaestra.update import AdamW
from palaestra.values import vary

CARD = Card(
    id="self-rewarding",
    family="rewards",
    title="Self rewarding, self improving (Countdown, integration)",
    paper="arXiv:2505.08827",
    parent="grpo",
    claim="A model that judges its own answers without references improves by its verdicts where verifying is the easier part.",
    changes={
        "collect": "the reward is a frozen copy's verdict on the answer, without a reference; the truth is only logged"
    },
    source="abstracts of v1 and v2; prompts, the frozen judge and the audit are inferred",
    paper_scale="Qwen2.5-7B on Countdown and integration with synthetic questions; DeepSeek-R1-Distill-Qwen-7B in v2",
    size=Size(model="qwen2.5-7b"),
)

ALONE = f"""Is the response to the question right? Check the response step by step; there is no reference answer. {CARE}

<question>{{question}}</question>
<response>{{response}}</response>

{{instruction}}"""
BUILT_IN = "judge:\n{question}\n{response}"  # the words in which the built-in model has learned to judge


def self_verdict(text: str) -> float | None:
    return {"right": 1.0, "wrong": 0.0}.get(final(text) or "")


def judge(client: Source | None = None) -> Judge:
    """Of the frozen start in the built-in model's words, or of another client in words for everybody."""
    if client is None:
        return Judge(LocalModel("ref"), BUILT_IN, Text(self_verdict), extract=last_line, max_tokens=96, unparsed=0.0)
    read = MarkedLabel((("RIGHT", 1.0), ("WRONG", 0.0)))
    return Judge(client, ALONE, read, extract=last_line, unparsed=0.0)


def build(client: Source | None = None) -> Recipe:
    return vary(
        grpo.build(),
        collect=links(Sample(n=8), Score(reward=judge(client), shadow=True)),
        references={} if client else {"ref": "policy"},
    )


@stage
class Inflation:
    """Mean self-reward less mean formal reward over the last `last` steps."""

    last: int = 10

    def __call__(self, cell: Cell) -> float:
        return Logged("reward", self.last)(cell) - Logged("part/gold", self.last)(cell)


def errs(error: float) -> Scripted:
    """A judge that verifies without a reference, and errs in this share of its verdicts."""
    return Scripted(Grader(error=error, yes="[[RIGHT]]", no="[[WRONG]]"), name=f"errs {error:g}")


LAZY = Scripted(Grader(check=last_digit, yes="[[RIGHT]]", no="[[WRONG]]"), name="lazy")

EXPERIMENT = Experiment(
    claim="On `add`, held-out accuracy rises by training on a judge that errs in one of ten verdicts and sees no reference.",
    arms={
        "start": vary(grpo.build(), optimiser=AdamW(lr=0.0)),
        "errs 1%": build(errs(0.01)),
        "errs 10%": build(errs(0.1)),
        "errs 25%": build(errs(0.25)),
        "lazy judge": build(LAZY),
        "built-in model": build(),
        "formal": grpo.build(),
    },
    expect=Greater("errs 10%", "start", by=0.05),
    falsified_if="accuracy is less than five points above the start",
    measure=Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    task="add",
    tokens=16_000,
    evaluate=128,
    samples=4,
    seconds=25.0,
    controls={"inflation": Inflation(), "self-reward": Logged("reward"), "true reward": Logged("part/gold")},
    note="The paper's judge is a 7B model; here a stand-in that checks the sum and errs. The lazy judge looks at the last digit "
    "alone, so one column is enough for it: the exploit is there to be found, and its inflation shows it. The built-in model "
    "judges no better than a coin.",
)
