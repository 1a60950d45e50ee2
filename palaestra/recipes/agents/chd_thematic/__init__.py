"""Automated thematic analysis: language models in several roles find the themes of interview transcripts.

    coders     each identity reads every transcript in chunks and writes codes: a label, and the lines that
               show it. A code that quotes a line which is not there is dropped; equal labels are one code
               with a count.
    themes     theme agents join codes that mean the same, and name and define a theme of them
    review     a reviewer for each criterion of qualitative research scores the themes and deletes, merges,
               splits or adds some, until all scores pass, or `rounds` are over

(arXiv:2506.23998.) Nothing is trained.

    palaestra train chd-thematic --model DIR transcripts=FOLDER
    palaestra train chd-thematic transcripts=FOLDER human=themes.jsonl coder=DIR theme=DIR feedback=DIR

A transcript is a file of the folder. `identities` and `criteria` are lists of your own; `human` is a file
with the `name` (and `definition`) of themes that people found, with which themes are compared: the pairs of
the greatest similarity, at `threshold` or more, count as matches. Words are compared, or `matcher=DIR` says
whether two themes mean the same.

RUN/themes.json has the themes with their codes and lines, RUN/codes.jsonl all codes. With `pairs=true`
theme agents answer twice, and RUN/pairs.jsonl has both replies as `first` and `second`; where people rename
the better one `chosen` and the other `rejected`,

    palaestra train dpo pairs=data --data rated.jsonl --model DIR

makes a model of it that is the next analysis' `theme=`.

Transcripts are other people's words. They stay on this machine: an endpoint elsewhere is refused unless
`send=true` says that they may go there. The run folder holds quotations, so keep it as safe as the transcripts.
What comes out describes what people said; it is no medical advice, and a person has to read the lines behind
a theme before it is used.

Without transcripts the run analyses made-up diaries with six planted themes. There the built-in model
first imitates what each agent says.
"""

from dataclasses import replace

import palaestra as pl
from palaestra.recipes.agents.chd_thematic.program import (
    CRITERIA,
    IDENTITIES,
    ThematicAnalysis,
)
from palaestra.recipes.agents.chd_thematic.toy import (
    BATCH,
    CODERS,
    PROMPTS,
    WriteReplies,
    imitate_agents,
)

OWN = "the run's own model does it"
CARD = pl.Card(
    title="Automated multi-agent thematic analysis",
    paper="arXiv:2506.23998",
    claim="Language models in several roles analyse clinical narratives from end to end without coding by "
    "hand, and roles and feedback bring their themes closer to those that people find.",
    source="abstract and public summaries (roles, chunk size, quotation ids, feedback operations); the names "
    "of criteria, prompts and caps are ours",
    size=pl.Size(setting="interviews on congenital heart disease, agents by GPT-4o"),
    needs=pl.needs.Requirements(
        columns=(),
        models=(
            pl.needs.NeededModel(
                "coder", "coder", "codes transcripts under each identity", inert=None, otherwise=OWN
            ),
            pl.needs.NeededModel(
                "theme agent", "theme", "joins codes into themes", inert=None, otherwise=OWN
            ),
            pl.needs.NeededModel(
                "reviewer", "feedback", "scores and changes themes", inert=None, otherwise=OWN
            ),
            pl.needs.NeededModel(
                "matcher",
                "matcher",
                "says whether a theme means the same as a person's",
                inert=None,
                otherwise="their words are compared",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "documents",
                "a folder of transcripts",
                flag="transcripts=FOLDER",
                otherwise="made-up diaries are analysed",
            ),
        ),
        shows="themes_changed",
        off={"rounds": 0},
        own={
            "endpoint": "care: q1\nwaiting: q2\nkindness | | c1\nbeing late | | c2\nscore 5\n"
            "merge t1 t2: time",
            "diaries": 2,
            "rounds": 1,
        },
    ),
    use="It helps to get an overview of many transcripts, by a model that follows a form; themes are as good "
    "as the model's reading, and people check the lines behind them.",
    lacks=(
        "Reinforcement from people's feedback, which the authors report as in progress, is no part of the "
        "run: `pairs=true` writes what people choose from, and `palaestra train dpo` learns their choice.",
        "On the built-in diaries each coder was shown other themes, and reviewers what to delete: that four "
        "coders find more than one there is so by construction. With seed 0 review raised precision from 0.86 "
        "to 1, but deleted one right theme too: recall 0.83 from 1, F1 0.91 from 0.92.",
        "No clinical narratives are built in, and agreement with analyses by people was not measured.",
        "Without a matcher themes are compared by their words, not by what they mean.",
    ),
    grade="B",
)


def build(
    transcripts: str = "",
    human: str = "",
    coder: pl.Source | None = None,
    theme: pl.Source | None = None,
    feedback: pl.Source | None = None,
    matcher: pl.Source | None = None,
    identities: tuple[str, ...] = IDENTITIES,
    criteria: tuple[str, ...] = CRITERIA,
    rounds: int = 3,
    passing: int = 4,
    chunk: int = 1500,
    batch: int = 40,
    threshold: float = 0.7,
    pairs: bool = False,
    send: bool = False,
    temperature: float = 0.0,
    reply: int = 512,
    diaries: int = 8,
) -> ThematicAnalysis:
    """The analysis of a folder of transcripts; of `diaries` made-up ones without."""
    if not identities or not criteria or min(chunk, batch, reply, diaries) < 1 or rounds < 0:
        raise pl.UserError(
            "identities and criteria are lists of one or more; chunk, batch, reply and diaries are 1 or more, "
            "rounds 0 or more"
        )
    if not 1 <= passing <= 5 or not 0 < threshold <= 1:
        raise pl.UserError("passing is a score from 1 to 5, and threshold above 0 and at most 1")
    if human and not transcripts:
        raise pl.UserError(
            "human names people's themes of transcripts; give these, transcripts=FOLDER"
        )
    return ThematicAnalysis(
        transcripts=transcripts,
        diaries=diaries,
        human=human,
        coder=coder,
        theme=theme,
        feedback=feedback,
        matcher=matcher,
        identities=tuple(identities),
        criteria=tuple(criteria),
        rounds=rounds,
        passing=passing,
        chunk=chunk,
        batch=batch,
        threshold=threshold,
        pairs=pairs,
        send=send,
        temperature=temperature,
        reply=reply,
    )


def embedded(
    steps: int = 200,
    identities: tuple[str, ...] = CODERS,
    rounds: int = 2,
    pairs: bool = False,
) -> pl.Pipeline:
    """The built-in model learns in `steps` steps what agents say, and analyses twelve made-up diaries."""
    analysis = build(
        identities=identities,
        criteria=("points",),
        rounds=rounds,
        batch=BATCH,
        reply=96,
        pairs=pairs,
        diaries=12,
    )
    exam = replace(analysis, prompts=PROMPTS)
    return pl.Pipeline(
        parts={
            "written": pl.Part(WriteReplies()),
            "shown": replace(pl.warm(imitate_agents(steps)), data=pl.Output("written", "replies")),
            "analysis": pl.Part(exam, model=pl.Output("shown")),
        }
    )
