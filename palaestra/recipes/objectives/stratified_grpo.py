"""Stratified GRPO: answers are compared with answers of the same structure.

Strata B_k = episodes of one prompt with the same number of searches: the fact `fact` of an
environment, else the number of turns before the last one, which is that of calls. Stratified advantage
normalisation (arXiv:2510.06214)

    A_SAN,i = (R_i - mean_{B_k} R) / (std_{B_k} R + eps),   A = alpha A_SAN + (1 - alpha) A_GRPO,

because R_i - mean R = (R_i - mean_{B_k} R) + (mean_{B_k} R - mean R), and the last term is one
offset for a whole stratum. Within a stratum nothing is said for or against searching more: only the
global term, 1 - alpha, says it. A stratum of one or of equal rewards has A_SAN = 0; with one
stratum the method is GRPO. ddof 0 makes the unit variances of the paper exact.

The number "strata" of a step is how many strata a group has beside the first, over its tokens.
"""

import palaestra as pl

CARD = pl.Card(
    title="Stratified GRPO (stratified advantage normalisation)",
    paper="arXiv:2510.06214",
    claim="Normalising advantages among trajectories with the same number of searches teaches a "
    "search agent more than GRPO.",
    source="secondary summaries of the paper and an independent implementation; alpha and strata "
    "of one are not known",
    size=pl.Size(
        setting="search agents (Qwen2.5-3B as recalled, not verified) on seven single- and "
        "multi-hop QA sets, up to 11.3 points over GRPO (abstract, v1); alpha is not known",
        model="qwen2.5-3b",
    ),
    task="hop-noisy",
    needs=pl.needs.Requirements(
        columns=(pl.needs.QUESTION, pl.needs.GOLD_ANSWER),
        places=(
            pl.needs.NeededPlace(
                "documents",
                "which the model searches: episodes with equally many searches are compared",
                also=("tools",),
                built_in=("hop-noisy", "hop", "wiki-2"),
            ),
        ),
        shows="strata",
        off={"fact": ""},
        own={"model": "tiny-agent", "schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps where the number of searches says little about how good an answer is; where one more "
    "search is what there is to learn, it hears a fifth of that.",
    lacks=(
        "The paper's alpha is not known.",
        "Strata are numbers of calls; their placement and outcomes count only where an "
        "environment gives the fact `stratum`.",
    ),
    grade="A",
)


def build(alpha: float = 0.8, ddof: int = 1, fact: str = "searches") -> pl.Recipe:
    stratum = pl.Stratum(fact)
    within = (pl.Center(stratum), pl.Scale(stratum, ddof=ddof))
    overall = (pl.Center("group"), pl.Scale("group", ddof=ddof))
    return pl.vary(
        pl.recipe("grpo"), credit=pl.chain(pl.credit.Blend(((alpha, within), (1 - alpha, overall))))
    )
