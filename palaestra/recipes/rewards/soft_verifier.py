"""Soft verifier: a model that knows the reference grades the last line of an answer, and is paid by
how sure it is.

The verifier reads question, reference and the last non-empty line of the response, and says one
label c, which is sampled. With P its probabilities (arXiv:2503.23829v2, eqs. 1 to 6):

    soft     r = P(yes) if c is yes, 1 - P(no) if c is no, 0 for any other word
    binary   r = 1 if c is yes, else 0
    r_final  = (r - mean) / std over the batch (0 where std = 0)  -  0.01 log pi(y | x) / pi_ref(y | x),  then REINFORCE

Where P leaks to other words the printed form is not monotone (P(yes) = .6, P(no) = .3: a "no" pays
.7, a "yes" .6); `form="normalised"` pays P(yes) / (P(yes) + P(no)), which is the same without a
leak. An empty response is worth 0 without a call; labels and tags that a response prints are
defused. Openers such as ":" or "Thought process:" are known to be accepted by generative verifiers
(arXiv:2507.08794): audit yours with `palaestra.judges.audit.attack_reward`. `client` is the
verifier; the default is a stand-in that is right nine times in ten. A verifier of one's own is
distilled from a grader's labels by `Verdicts`, `Imitate` and `Imitation`
(`palaestra.judges.train`), format errors included.
"""

from typing import Literal

import palaestra as pl

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
)
STANDIN = pl.Scripted(pl.judges.Grader(error=0.1), name="grader")


def verifier(
    client: pl.Source = STANDIN, form: Literal["soft", "normalised", "binary"] = "soft"
) -> pl.Judge:
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


def build(
    client: pl.Source = STANDIN,
    form: Literal["soft", "normalised", "binary"] = "soft",
    beta: float = 0.01,
) -> pl.Recipe:
    return recipe_with_reward(verifier(client, form), beta)


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
