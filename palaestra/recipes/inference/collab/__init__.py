"""Collab: several frozen models, each aligned with a reward of its own, take turns at every token, so
that a target reward is met that none of them was aligned with (arXiv:2503.21720).

    J_j(s, z) = Q_j(s, z) - alpha KL(pi_j(.|s) || pi_ref(.|s))
    (j, z)    = argmax over agents j and tokens z among the likeliest of pi_j

Q_j(s, z) needs no training: agent j ends the text greedily after z, and the target reward judges
the end. All agents go on from the chosen token. Where every agent has one and the same candidate,
the search takes it without asking. pi_ref is the run's own model.

The agents are models that you have, fine-tunes of one base, and the target is the problem's reward,
or `target`: a function in a file, a verifier, a judge. A budget counts forwards: tokens that a model
has read or sampled, prompts left out. Without agents three fine-tunes of the embedded model are made
first (`toy.py`), and a target that wants something of each.

answers.jsonl in the run folder has every answer, its target, and the greedy answer of each agent alone.
`palaestra search --data FILE --with "collab(agents='DIR,DIR')" [--reward-model DIR]` decodes so within a
budget, beside other strategies of search.

Deviations: candidates are the nucleus of .95, at most four; ends of texts that are known are not
made again; a target that compares with the gold answer sees it while it decodes, a search with an
oracle.
"""

from dataclasses import replace

import palaestra as pl
from palaestra.recipes.inference.collab.program import ControlledDecoding
from palaestra.recipes.inference.collab.toy import three_agents

CARD = pl.Card(
    title="Collab: controlled decoding with a mixture of agents",
    paper="arXiv:2503.21720",
    claim="Choosing at every token which of several aligned models speaks, by an implicit Q function, "
    "gives a higher target reward than decoding with any one of them.",
    source="abstract and summaries (the objective by agent and token, implicit Q); candidates, horizon "
    "and alpha are ours",
    size=pl.Size(
        setting="7B models aligned with different preferences; up to 1.56 times the average reward "
        "and 71.89% wins and ties by GPT-4 against the best decoding before it",
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            replace(
                pl.needs.ANSWER, otherwise="--reward or target=FILE.py:NAME judges in its place"
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "model for each agent",
                "agents",
                "takes turns with the others, all fine-tunes of one base",
                inert="",
                example="DIR,DIR",
            ),
        ),
        shows="searches",
        off={"exam.method": "best of n"},
        own={"agents": "tiny,tiny", "exam.tasks": 2, "exam.forwards": 150, "max_tokens": 12},
    ),
    use="It helps where a reward judges whole texts, no one model meets it, and many forwards an "
    "answer are affordable; it trains nothing, so every answer pays the search again.",
    lacks=(
        "Agents need the vocabulary of the run's own model; others are refused.",
        "Judges of the paper's size and its comparison by GPT-4 were not run.",
    ),
    grade="B",
)


def build(
    agents: str = "",
    target: pl.RewardFn | None = None,
    alpha: float = 0.03,
    forwards: int = 1500,
    tasks: int = 24,
) -> pl.Pipeline:
    """`agents` are folders or hub ids, parted by commas; without any the run's model decodes alone. `forwards` is the
    budget of a problem, `tasks` are held-out problems.
    """
    paths = [path for x in agents.split(",") if (path := x.strip())]
    names = tuple(f"agent {i + 1}" for i in range(len(paths))) or ("policy",)
    exam = ControlledDecoding("collab", names, target, forwards=forwards, alpha=alpha, tasks=tasks)
    models = dict(zip(names, paths, strict=False))
    return pl.Pipeline(parts={"exam": pl.Part(exam, models=models)})


def embedded(tasks: int = 8, forwards: int = 1500, alpha: float = 0.03) -> pl.Pipeline:
    """Three fine-tunes of the embedded model are trained first, and decoded with."""
    return three_agents(tasks=tasks, forwards=forwards, alpha=alpha)
