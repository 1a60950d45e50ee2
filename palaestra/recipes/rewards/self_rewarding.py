"""Self-rewarding: a model judges its own answers, without a reference, and learns from the
verdicts.

To verify is easier than to generate: whether an expression uses the given numbers and hits the
target, or an antiderivative differentiates to the integrand, can be seen without finding one
(arXiv:2505.08827). Reward 1 if the judge calls an answer right, 0 if it calls it wrong, says
nothing or both, or the answer is empty; then GRPO. The judge is a frozen copy of the start: one
that is the policy would drift with it. A formal verifier trains nothing and audits everything:
`part/gold` beside `reward`,

    inflation = mean(self-reward) - mean(formal reward),

and `palaestra.judges.audit.judge_agreement` for precision and kappa. Inflation that rises for
several evaluations is hacking: stop. The judge sees the last line alone (`last_line`), defused, for
text that argues is what fools it; a client other than the built-in model is asked with a prompt in
words.
"""

import palaestra as pl

CARD = pl.Card(
    title="Self rewarding, self improving (Countdown, integration)",
    paper="arXiv:2505.08827",
    claim="A model that judges its own answers without references improves by its verdicts where "
    "verifying is the easier part.",
    source="abstracts of v1 and v2; prompts, the frozen judge and the audit are inferred",
    size=pl.Size(
        setting="Qwen2.5-7B on Countdown and integration with synthetic questions; "
        "DeepSeek-R1-Distill-Qwen-7B in v2",
        model="qwen2.5-7b",
    ),
)

ALONE = f"""Is the response to the question right? Check the response step by step; there is no reference answer. \
{pl.judges.CAUTION}

<question>{{question}}</question>
<response>{{response}}</response>

{{instruction}}"""
# the words in which the built-in model has learned to judge
BUILT_IN = "judge:\n{question}\n{response}"


def self_verdict(text: str) -> float | None:
    return {"right": 1.0, "wrong": 0.0}.get(pl.tasks.final_answer(text) or "")


def judge(client: pl.Source | None = None) -> pl.Judge:
    """Of the frozen start in the built-in model's words, or of another client in words for
    everybody.
    """
    if client is None:
        return pl.Judge(
            pl.LocalModel("ref"),
            BUILT_IN,
            pl.judges.Text(self_verdict),
            extract=pl.judges.last_line,
            max_tokens=96,
            unparsed=0.0,
        )
    read = pl.judges.MarkedLabel((("RIGHT", 1.0), ("WRONG", 0.0)))
    return pl.Judge(client, ALONE, read, extract=pl.judges.last_line, unparsed=0.0)


def build(client: pl.Source | None = None) -> pl.Recipe:
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=judge(client), shadow=True)),
        references={} if client else {"ref": "policy"},
    )
