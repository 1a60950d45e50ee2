"""Self-rewarding: a model judges its own answers, without a reference answer, and is trained by
reinforcement on these verdicts.

To verify is easier than to generate: whether an expression uses the given numbers and hits the
target, or an antiderivative differentiates to the integrand, can be seen without finding one
(arXiv:2505.08827). Reward 1 if the judge calls an answer right, 0 if it calls it wrong, says
nothing or both, or the answer is empty; then GRPO. The judge is a frozen copy of the start: one
that is the policy would drift with it. A formal verifier trains nothing and audits everything:
`part/gold` beside `reward`,

    inflation = mean(self-reward) - mean(formal reward),

and `palaestra.judges.audit.judge_agreement` for precision and kappa. Inflation that rises for
several evaluations is hacking: stop. The judge sees the last line alone (`last_line`), defused, for
text that argues is what fools it. Another judge is given as `judge`:

    palaestra train self-rewarding --data F [judge="endpoint(url='http://HOST:PORT/v1',model='NAME')"]

The file needs prompts alone; with answers, or `--reward`, the audit is there too.
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
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "answer",
                "any",
                ("42", "39", "49"),
                "the right answer, which trains nothing and audits the judge (part/gold)",
                otherwise="the verdicts are not audited",
            ),
        ),
        models=(
            pl.needs.chat_model(
                "judge",
                "judge",
                "says whether a reply is right, without a reference",
                otherwise="a frozen copy of the start judges, as in the paper",
            ),
        ),
        shows="part/judge",
        never_off="The judge's verdict is the whole reward, and a judge that approves of nothing "
        "makes it 0.",
        own={
            "endpoint": "The sum is right. [[RIGHT]]",
            "collect.links.0.n": 2,
            "schedule.prompts": 4,
        },
    ),
    use="It helps where an answer is easier to check than to find and the model checks well; where it "
    "calls wrong answers right it learns these, which the audit shows.",
    lacks=(
        "The model writes no practice questions; they come from the file.",
        "The judge runs no program: it checks in words.",
        "The judge sees the last line of a reply alone, so an answer of several lines is cut.",
    ),
    grade="B",
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


def judge_in_words(client: pl.Source) -> pl.Judge:
    """Asks with a prompt in words for [[RIGHT]] or [[WRONG]]."""
    read = pl.judges.MarkedLabel((("RIGHT", 1.0), ("WRONG", 0.0)))
    return pl.Judge(client, ALONE, read, extract=pl.judges.last_line, unparsed=0.0)


def built_in_judge() -> pl.Judge:
    """The frozen start, in the words in which the built-in model has learned to judge."""
    return pl.Judge(
        pl.LocalModel("ref"),
        BUILT_IN,
        pl.judges.Text(self_verdict),
        extract=pl.judges.last_line,
        max_tokens=96,
        unparsed=0.0,
    )


def judged_by(reward: pl.RewardFn, frozen: bool) -> pl.Recipe:
    """The method's learner under a judge; `frozen`: the judge is the start of the policy."""
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True)),
        references={"ref": "policy"} if frozen else {},
    )


def build(judge: pl.Source | None = None) -> pl.Recipe:
    return judged_by(judge_in_words(judge or pl.LocalModel("ref")), frozen=judge is None)


def embedded() -> pl.Recipe:
    """On the embedded problem, where the built-in model judges in its own words."""
    return judged_by(built_in_judge(), frozen=True)
