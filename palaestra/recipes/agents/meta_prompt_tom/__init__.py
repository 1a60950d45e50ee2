"""Automated meta-prompt engineering: a judge measures traits of a text, compares them with those of texts
that people edited before they published them, and tells the writer what to change. No weight moves; the
prompt is what is optimised.

    v          traits of a text, each in [0, 1]: factualness, novelty, non-repetition, relevance
    h          the same of edited texts: their mean, or h <- (1 - s) h + s v(edited) in the order of the edits
    volume(v)  prod_k v_k
    L(v, h)    = (|volume(v) - volume(h)| / volume(h)  +  mean_k |v_k - h_k|) / 2
    round      write, measure v; L <= `threshold`: the text is aligned and done; else the judge's advice on
               the traits that are off is put behind the prompt, and the text is written again

After at most `rounds` rounds the text of the lowest L is kept, of equal ones the earlier (arXiv:2505.09024;
its formula could not be read, the one here joins the two terms that the abstract names). A volume is the
same where two traits are exchanged, so each trait counts on its own too. Where volume(h) is 0 the first
term is |volume(v)|.

    palaestra train meta-prompt-tom --data edits.jsonl --model DIR judge=DIR read=odds
    palaestra train meta-prompt-tom --data edits.jsonl --model DIR judge="endpoint(url='http://HOST:PORT/v1',model='NAME')"

`edits.jsonl` has a request (`prompt`) and the text that a person made of its draft (`edited`) in each row;
rows with `accepted` false do not count. h is that of training rows, and texts are written for held-out
ones. `read=odds` takes the judge's probability of "Yes" where a small local model writes no rating.
`traits="['tone: Is the tone warm?', ...]"` are traits of your own for a judge that is a model.

Without a judge four rules measure a text: the share of its numbers and names that the request has, the
share of its pairs of words that the request does not have, the share of its pairs of words that come for
the first time, and the share of the request's numbers and longer words that it uses.

The same number of rounds without any advice, from the same first text and with the same random numbers,
is the control: `advice_gain` is how much lower L is with advice, the mean over requests. A judge that
is asked often enough is deceived by some text: `auditor=` names a second one, who has no part in the
rounds and measures the first and the kept text. Every round of every request, with its advice, stands in
RUN/meta_prompts.jsonl.
"""

from dataclasses import replace
from typing import Any, Literal

import palaestra as pl
from palaestra.recipes.agents.meta_prompt_tom.program import MetaPrompt
from palaestra.recipes.agents.meta_prompt_tom.toy import WORDING_SHORT, ShowAdvice, WriteEdits
from palaestra.recipes.agents.meta_prompt_tom.traits import TRAITS

CARD = pl.Card(
    title="Automated meta-prompt engineering with a judge",
    paper="arXiv:2505.09024",
    claim="A judge that teaches a writer in context, by the traits of texts that people edited, writes what "
    "people expect: fully aligned in 53.8% of cases, after 4.38 rounds on average.",
    source="abstract and public summaries; the loss joins the two terms of the abstract by a formula of ours, "
    "and 0.05 is from the summaries",
    size=pl.Size(
        setting="articles of a live system at the US Open 2024, edited by people before publication; models "
        "not known to us"
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "edited",
                "text",
                (
                    "17 and 25 together make 42.",
                    "8 plus 31 is 39, as a child can count.",
                    "40 and 9 more: 49.",
                ),
                "the text as a person edited it",
            ),
            pl.needs.NeededColumn(
                "accepted",
                "true or false",
                (True, True, True),
                "whether the edited text was published",
                otherwise="it was",
            ),
        ),
        models=(
            pl.needs.chat_model(
                "judge",
                "judge",
                "measures the traits of a text, and says what to change",
                otherwise="four rules measure a text, and say which trait is off",
            ),
            pl.needs.NeededModel(
                "auditor",
                "auditor",
                "measures the first and the kept text, and has no part in the rounds",
                inert=None,
                otherwise="the rules audit a judge that is a model",
            ),
        ),
        shows="advice_gain",
        off={"advice": "none"},
        own={"tasks": 1, "rounds": 3, "edits": 2, "advice": "rules"},
    ),
    use="It helps a model that follows instructions, where people's edits go in one direction and the judge "
    "can see it; it cannot teach what the model cannot write when told.",
    lacks=(
        "The paper's loss on a Hilbert space could not be read: both of its terms are here, by formulas "
        "of ours.",
        "Nobody's neural states are measured, nor a model's: the expectation is the trait vector of edited "
        "texts.",
        "There is one expectation for all requests of a file; give each kind of text a file of its own.",
        "The built-in writer was shown what each advice means, and rules judge it: that advice beats plain "
        "retries there is so by construction, and the paper's 53.8% and 4.38 rounds are not comparable.",
        "Edits are read from a file; there is no editor in which people make them.",
    ),
    grade="B",
)


def build(
    judge: pl.Source | None = None,
    auditor: pl.Source | None = None,
    read: Literal["rating", "odds"] = "rating",
    traits: tuple[str, ...] = TRAITS,
    advice: Literal["judge", "rules", "none"] = "judge",
    rounds: int = 10,
    threshold: float = 0.05,
    smoothing: float = 0.0,
    edits: int = 32,
    temperature: float = 1.0,
    tasks: int = 32,
) -> MetaPrompt:
    """At most `rounds` texts for each of `tasks` held-out requests, by the traits of `edits` edited ones."""
    if min(rounds, edits, tasks) < 1:
        raise pl.UserError("rounds, edits and tasks are 1 or more")
    if threshold < 0 or not 0 <= smoothing <= 1:
        raise pl.UserError("threshold is 0 or more, and smoothing 0 to 1")
    if judge is None and tuple(traits) != TRAITS:
        raise pl.UserError(
            "the rules measure four traits of their own; give a judge for others, judge=DIR"
        )
    if not traits or any(":" not in trait for trait in traits):
        raise pl.UserError(
            "a trait is NAME: QUESTION, as in traits=\"['tone: Is the tone warm?']\""
        )
    return MetaPrompt(
        judge=judge,
        auditor=auditor,
        read=read,
        traits=tuple(traits),
        advice=advice,
        rounds=rounds,
        threshold=threshold,
        smoothing=smoothing,
        edits=edits,
        temperature=temperature,
        tasks=tasks,
    )


def embedded(steps: int = 60, tasks: int = 24, rounds: int = 6, **options: Any) -> pl.Pipeline:
    """The built-in model learns in `steps` steps what advice means, and writes on matches."""
    writer = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowAdvice()),
        optimiser=pl.AdamW(lr=1e-3, warmup=5),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )
    exam = build(tasks=tasks, rounds=rounds, **options)
    short = replace(exam, wording=WORDING_SHORT, heading="")
    edits = pl.Output("log", "edits")
    return pl.Pipeline(
        parts={
            "log": pl.Part(WriteEdits()),
            "writer": replace(pl.warm(writer), data=edits),
            "texts": pl.Part(short, model=pl.Output("writer"), data=edits),
        }
    )
