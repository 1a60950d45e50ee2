"""ASearcher: agents that search for many turns, episodes that wait for nobody, and a loss for samples
of several versions of the weights.

    A = score - mean of the group,    score = F1 where the form was kept, else 0,
    r = pi / prox,    w = prox / mu, 0 where above 5,
    L = mean over the policy's tokens of w max(-A r, -A clip(r, 1 - e, 1 + e)),    e = 0.4,

mu samples, prox is the policy before the update (arXiv:2508.07976, with the decoupled loss of AReaL,
arXiv:2505.24298). Groups with equal scores are drawn again. An episode that needs more than `turns`
is cut and scores 0. New episodes start as long as

    min(C - running, (eta + version + 1) B - (accepted + running)) > 0,

the formula `capacity` of `palaestra/planning/costs.py`. Here eta is `lag`: so many steps are sampled
ahead, so the bound on samples is the same; C is tickets, not episodes: a cluster's workers times
their depth (docs/cluster.md). There a step takes its own samples, in the order of issue. What a C
of its own brings, or the order of landing in a window anchored at the oldest, is simulated by
`palaestra plan --concurrent N --order window`. New weights reach samples under way where
`schedule.in_flight` is set.

    palaestra train asearcher --docs FOLDER --data QUESTIONS.jsonl --model DIR

A message searches, opens a page or answers: `<open>PAGE</open>` shows a document of the folder in parts of
three passages, at most 8 openings an episode (`--env "search(opens=8,passages=3)"`; the released agent reads ten parts
of 25,000 characters). "part/opens" is the share of an episode's calls that open.

    palaestra train asearcher --docs FOLDER --model DIR write=200 [writer="endpoint(url='http://HOST:PORT/v1',model='NAME')"]

writes questions about 200 seed documents first (`WriteSearchQuestions` in `writing.py`, after the released
qa_synthesis_agent.py): a question about one document is rewritten by injecting facts of other documents and by
making details vaguer, and a version is kept where the documents lead to its answer, the writer calls it valid, no
other answer is right, and of `tries` answers without documents no more are right than before; the question is
kept where none is. The writer is the model itself, as it is at the start, unless `writer` names another.
RUN/questions/questions.jsonl has them with the documents that they rest on (`gold`), so that any method that searches
learns from it with the same `--docs`; dropped.jsonl says which check the other seeds failed. Questions of
`--data` join them, and then the held-out ones are theirs alone. There documents have links to choose another one by;
here it is searched by the name of the entity. What the released code leaves out is left out: entities that come from
memory. It has a second, larger model as the judge of answers, where words are compared here.

Left out: a model as the judge, summaries of opened pages, and the 0.5 that an agent loses which calls a valid
question invalid.
"""

from dataclasses import replace

import palaestra as pl
from palaestra.recipes.systems.asearcher.writing import WriteSearchQuestions

ASKED = {"write": (0,)}  # where the questions are the user's alone

CARD = pl.Card(
    title="ASearcher: large-scale asynchronous agentic search RL",
    paper="arXiv:2508.07976",
    claim="Fully asynchronous training makes long turn limits affordable, and long turn limits are "
    "what hard search questions need.",
    source="released code (inclusionAI/ASearcher: workflow_api.py, functional.py, actor.py, "
    "train/asearcher.py, train/search_agent.py, asearcher_web_16nodes.yaml, qa_synthesis_agent.py)",
    size=pl.Size(
        setting="Qwen2.5-7B, 128 prompts x 16, at most 32 turns, eta 4, e 0.4, lr 5e-6, no KL; 16 "
        "nodes of 8 GPUs; QwQ-32B with up to 128 turns",
        model="qwen2.5-7b",
        prompts=128,
        samples=16,
        tokens=32768,
        lr=5e-6,
        arguments={"turns": 32},
    ),
    model="tiny-agent",
    task="wiki-far",
    world="page-search",
    needs=pl.needs.Requirements(
        columns=(
            replace(pl.needs.PROMPT, when=ASKED),
            replace(pl.needs.ANSWER, when=ASKED),
        ),
        models=(
            pl.needs.chat_model(
                "writer",
                "writer",
                "writes questions about the documents, where `write` is above 0",
                otherwise="the model itself, as it is at the start, writes them",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "tools",
                "which search your documents",
                also=("documents",),
                built_in=("wiki-far",),
            ),
        ),
        shows="age_mean",
        off={"lag": 0},
        own={"model": "tiny-agent", "lag": 1, "schedule.prompts": 4, "pool.size": 1},
    ),
    use="It helps where questions need many searches and episodes differ much in length; short "
    "questions gain nothing from a long limit.",
    lacks=(
        "Questions were written by a scripted writer in the tests alone: how many of a language model's pass the "
        "checks, and what training on them brings, is not measured.",
        "Pages are documents of your folder; addresses of the web are a tool of yours.",
        "No model judges answers, and opened pages are not summarised.",
    ),
    grade="B",
)


@pl.stage
class CountOpens:
    """A link after `Score`: the part "opens" is the share of an episode's calls that open a page."""

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._told, group.episodes)))

    def _told(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None or "opens" not in e.facts:
            return e
        share = e.facts["opens"] / max(1, e.facts["tool_calls"])
        return replace(e, reward=replace(e.reward, parts={**e.reward.parts, "opens": share}))


def searcher(
    lag: int = 4, turns: int = 16, decoupled: bool = True, clip: float = 0.4, cap: float = 5.0
) -> pl.Recipe:
    """What learns to search, see `build`."""
    ppo = pl.Clipped(low=clip, high=clip, reduce="tokens")
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            pl.Sample(n=8, turns=turns), pl.Score(), pl.rewards.AnswerF1(), CountOpens()
        ),
        pool=pl.Mixed(size=8),
        credit=pl.chain(pl.Center("group")),
        objective=pl.objective.TIS(ppo, cap=cap, drop=True) if decoupled else ppo,
        needs=(("policy", "logp"),) if decoupled else (),
        schedule=pl.Schedule(prompts=16, steps=50, lag=lag),
    )


def build(
    lag: int = 4,
    turns: int = 16,
    decoupled: bool = True,
    clip: float = 0.4,
    cap: float = 5.0,
    write: int = 0,
    writer: pl.Source | None = None,
    rewrites: int = 6,
    tries: int = 8,
    known: int = 0,
) -> pl.Recipe | pl.Pipeline:
    """Args:
    lag: eta.
    decoupled: False = PPO's ratio against the sampler, pi / mu, and no w.
    write: seed documents about which questions are written first; 0 = none are.
    writer: who writes them; None = the model itself, as it is at the start.
    rewrites: tried of each question.
    tries: answers without documents, of which at most `known` may be right.
    """
    learned = searcher(lag, turns, decoupled, clip, cap)
    if not write:
        return learned
    agent = WriteSearchQuestions(
        pl.LocalModel() if writer is None else writer, write, rewrites, tries, known
    )
    asked = pl.Part(
        learned,
        data=pl.Output("questions", "questions"),
        docs=pl.Output("questions", "documents"),
        env="page-search",
    )
    return pl.Pipeline(parts={"questions": pl.Part(agent), "rl": asked})
