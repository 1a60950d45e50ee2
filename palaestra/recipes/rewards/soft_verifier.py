"""Soft verifier: a second model that knows the reference answer grades the last line of a reply, and
the reward is how sure it is.

The verifier reads question, reference and the last non-empty line of the response, and says one
label c, which is sampled. With P its probabilities (arXiv:2503.23829v2, eqs. 1 to 6):

    soft     r = P(yes) if c is yes, 1 - P(no) if c is no, 0 for any other word
    binary   r = 1 if c is yes, else 0
    r_final  = (r - mean) / std over the batch (0 where std = 0)  -  0.01 log pi(y | x) / pi_ref(y | x),  then REINFORCE

Where P leaks to other words the printed form is not monotone (P(yes) = .6, P(no) = .3: a "no" pays
.7, a "yes" .6); `form="normalised"` pays P(yes) / (P(yes) + P(no)), which is the same without a
leak. An empty response is worth 0 without a call; labels and tags that a response prints are
defused. Openers such as ":" or "Thought process:" are known to be accepted by generative verifiers
(arXiv:2507.08794): audit yours with `palaestra.judges.audit.attack_reward`. The verifier is the
user's:

    palaestra train soft-verifier --data F verifier="endpoint(url='http://HOST:PORT/v1',model='NAME')"

An endpoint has to show log-probabilities for the soft forms; a folder is loaded as a frozen model.
One of one's own is distilled from a grader's labels by `Verdicts`, `Imitate` and `Imitation`
(`palaestra.judges.train`), format errors included.
"""

from typing import Literal

import palaestra as pl

Form = Literal["soft", "normalised", "binary"]
CARD = pl.Card(
    title="RLVR across diverse domains with soft generative reward",
    paper="arXiv:2503.23829",
    claim="A generative verifier's probability is a better reward than string matching where "
    "answers are free in form.",
    source="full text of v2; the normalised form is an addition",
    size=pl.Size(
        setting="Qwen2.5-7B, 30k prompts x 4, one epoch, batch 128, lr 5e-7, 1,024 tokens; "
        "verifier 7B, distilled from 72B",
        model="qwen2.5-7b",
        prompts=128,
        samples=4,
        tokens=1024,
        lr=5e-7,
        beside={"verifier": 7.0},
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "answer",
                "any",
                ("42", "39", "49"),
                "the reference answer, in free form, which the verifier is shown",
            ),
        ),
        models=(
            pl.needs.chat_model(
                "verifier",
                "verifier",
                "says whether the last line of a reply agrees with the reference",
            ),
        ),
        shows="part/judge",
        never_off="It is the verifier's probability of a yes, which no model makes exactly 0; "
        "`form=binary` rounds it.",
        own={"form": "normalised", "collect.links.0.n": 2, "schedule.prompts": 4},
    ),
    use="It helps where right answers are written in many ways, so that no rule compares them, and a "
    "model is at hand that does; where a rule can compare them it costs a second model for nothing.",
    lacks=(
        "The distilled verifier of the paper is not made by this recipe; palaestra.judges.train "
        "is how one is.",
        "RLOO and REINFORCE++ in the place of REINFORCE.",
        "The verifier sees the last line of a reply alone, so an answer of several lines is cut.",
    ),
    grade="B",
)


def grader(client: pl.Source, form: Form = "soft") -> pl.Judge:
    """The verifier as a reward."""
    read = {
        "soft": pl.judges.Odds("YES", "NO", form="sampled"),
        "normalised": pl.judges.Odds("YES", "NO"),
        "binary": pl.judges.MarkedLabel((("YES", 1.0), ("NO", 0.0))),
    }
    return pl.Judge(
        client=client,
        template=pl.judges.GRADE_PROMPT,
        read=read[form],
        extract=pl.judges.last_line,
        temperature=1.0,
        unparsed=0.0,
    )


def build(verifier: pl.Source | None = None, form: Form = "soft", beta: float = 0.01) -> pl.Recipe:
    """Without a `verifier` the policy's start, frozen, is asked."""
    frozen = {} if verifier else {"verifier": "policy"}
    made = recipe_with_reward(grader(verifier or pl.LocalModel("verifier"), form), beta)
    return pl.vary(made, references={**made.references, **frozen})


def embedded(form: Form = "soft", beta: float = 0.01) -> pl.Recipe:
    """On the embedded problem, with a program for the verifier that is right nine times in ten."""
    program = pl.Scripted(pl.judges.Grader(error=0.1), name="grader")
    return build(program, form, beta)


def recipe_with_reward(reward: pl.RewardFn, beta: float = 0.01) -> pl.Recipe:
    """The method's learner under any reward."""
    return pl.vary(
        pl.recipe("reinforce"),
        collect=pl.links(pl.Sample(n=4), pl.Score(reward=reward)),
        credit=pl.chain(
            pl.Center("batch"), pl.Scale("batch", ddof=0, eps=1e-9), pl.credit.LessKL(beta)
        ),
        needs=(("ref", "logp"),),
        references={"ref": "policy"},
    )
