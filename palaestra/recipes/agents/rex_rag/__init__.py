"""REX-RAG: a wrong answer is taken back, a phrase of doubt put in its place, and the policy goes on.

Mixed sampling: of G answers to a prompt each wrong one is cloned with probability p. The clone says
what its original said up to the answer (behind its last thought, where it has one), then one of the
phrases, the probe, and the policy goes on from there. Clones are not cloned.

Filter: of all clones of a batch of N answers those floor(N k) are kept whose probes have the highest
mean log-prob under the policy; k is 0.08, and then 0.9 k + 0.1 (share of right clones) by the step.
Of a small batch, where N k < 1, one is kept all the same: the paper's 2560 answers keep some as well.

Policy correction: what was sampled comes from the mixture

    q = (1 - a) pi_old + a mu,         a = kept clones / (answers + kept clones)

with mu = 0 on the tokens of an answer, and on those of a clone

    pi_old / eps^(1/J)       on the J tokens before the probe: it began with a wrong answer, whose share is eps
    n(y_<=j) / n(y_<j)       on the probe: n counts the phrases that begin so
    pi_old                   behind it

and the loss is PPO's with rho = pi / q, plus 0.001 KL to the start (arXiv:2508.08149; released code
MiliLab/REX-RAG: dp_actor.py, ray_trainer.py, exploration_distribution.py, qa_em_format.py). The probe
is trained too, what documents say is not. On an answer rho begins at 1 / (1 - a), which takes a part of
the clip's range.

    palaestra train rex-rag --docs FOLDER --data questions.jsonl --model DIR [p=0.2] [form=0.2]

The reward is that of the answer plus `form` times the graded score of the tags (`tag_score`). "probed"
in the metrics is the share of trained tokens that are a kept clone's; "part/rescued" the share of right
answers among clones. Deviations: in eps^(1/J) the released code counts documents' tokens into J; it
takes n of the first token as all phrases (its phrases begin alike).
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.agents.rex_rag.probes import PHRASES, MixedCredit, ProbeSampling

CARD = pl.Card(
    title="REX-RAG: mixed sampling + policy correction",
    paper="arXiv:2508.08149",
    claim="Wrong answers that are taken back and resumed from a phrase of doubt, with importance sampling "
    "against the mixture, lead out of dead ends: more right answers over several hops.",
    source="released code (MiliLab/REX-RAG: search_r1/llm_agent/generation.py, verl/workers/actor, "
    "verl/trainer/ppo/ray_trainer.py, verl/utils/reward_score/qa_em_format.py) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-3B and 7B, NQ and HotpotQA, 5 answers, 5 turns, 3 passages, batch 512 in "
        "minibatches of 256, KL 0.001, lr 1e-6",
        model="qwen2.5-7b",
        prompts=512,
        samples=5,
        lr=1e-6,
        arguments={"update.minibatches": 2},
    ),
    model="tiny-agent",
    task="wiki-2",
    needs=pl.needs.Requirements(
        columns=(pl.needs.QUESTION, pl.needs.GOLD_ANSWER),
        places=(
            pl.needs.NeededPlace(
                "documents",
                "which the model searches",
                also=("tools",),
                built_in=("wiki-2", "wiki", "wiki-far"),
            ),
        ),
        shows="probed",
        off={"p": 0.0},
        own={
            "model": "tiny-agent",
            "env": "search(told=0,k=1,turns=3)",
            "p": 1.0,
            "keep": 0.5,
            "form": 0.0,
            "phrases": ("<search>",),
            "opening": "",
            "samples": 3,
            "schedule.prompts": 3,
        },
    ),
    use="It helps where the policy answers too early and the right answer is one more search away; where "
    "it is right or helpless, clones cost tokens and are filtered out.",
    lacks=(
        "The seven question sets and the retriever of the paper are not there.",
        "The wording of the paper's thirty phrases is not there: there are twelve of our own, and "
        "`phrases` replaces them.",
        "The variant on DAPO is not there.",
    ),
    grade="A",
)
TAG = re.compile(r"(</?(?:think|search|answer)>)")
AFTER = {  # tag -> (states in which it may stand, the state behind it)
    "<think>": (("start",), "in think"),
    "</think>": (("in think",), "after think"),
    "<search>": (("after think",), "in search"),
    "</search>": (("in search",), "searched"),
    "<answer>": (("after think",), "in answer"),
    "</answer>": (("in answer",), "end"),
}


def tag_score(turns: Sequence[str]) -> float:
    """How well messages keep to <think>, <search> and <answer>; up to 1.21179.

    Levels L of 0 to 1: the share of the six tags that occur; of tags that are closed; of characters
    that stand inside tags; of tags that stand where they may. With f_0 = L_0 and

        f_n = (0.01 + f_(n-1)^5) L_n,     score = 0.05 f_0 + 0.15 f_1 + 0.25 f_2 + 0.55 f_3
    """
    kinds, open_tags, n_tags, in_place, inside, whole = set[str](), 0, 0, 0, 0, 0
    state = "start"
    for text in turns:
        state = "start" if state == "searched" else state
        stack = list[str]()
        for part in filter(str.strip, TAG.split(text)):
            if part not in AFTER:
                whole += len(part)
                inside += len(part) if state.startswith("in ") else 0
                continue
            n_tags += 1
            kinds.add(part)
            name = part.strip("</>")
            if part.startswith("</") and name in stack:
                stack.remove(name)
            elif not part.startswith("</"):
                stack.append(name)
            states, after = AFTER[part]
            if state in states:
                state, in_place = after, in_place + 1
        open_tags += len(stack)
    share = lambda n, of: n / of if of else 0.0
    levels = (
        len(kinds) / len(AFTER),
        1 - share(open_tags, n_tags) if n_tags else 0.0,
        share(inside, whole),
        share(in_place, n_tags),
    )
    return graded(levels)


def graded(levels: Sequence[float]) -> float:
    """The score of four levels, see `tag_score`."""
    factor, score = levels[0], 0.05 * levels[0]
    for level, weight in zip(levels[1:], (0.15, 0.25, 0.55), strict=True):
        factor = (0.01 + factor**5) * level
        score += weight * factor
    return score


@pl.stage
class TagReward:
    """A link after `Score`: adds `form` times `tag_score` of what was said to the reward of an
    episode that searches documents, whose tags these are. What is right stays so. Part: "form".
    """

    form: float = 0.2

    def __post_init__(self) -> None:
        pl.check_bounds("rex-rag: form", self.form, least=0)

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._paid, group.episodes)))

    def _paid(self, e: pl.Episode) -> pl.Episode:
        if not self.form or not e.ok or e.reward is None or "outcomes" not in e.facts:
            return e
        texts = dict[int, str]()
        for s in (s for row in e.rows for s in row.segments if s.replies):
            texts[s.turn] = texts.get(s.turn, "") + s.text
        more = self.form * tag_score(list(texts.values()))
        parts = {**e.reward.parts, "form": more}
        paid = replace(e.reward, total=e.total + more, parts=parts, solved=e.solved)
        return replace(e, reward=paid)


def build(
    p: float = 0.2,
    keep: float = 0.08,
    form: float = 0.2,
    kl: float = 0.001,
    corrected: bool = True,
    phrases: tuple[str, ...] = PHRASES,
    opening: str = "<think> ",
    mark: str = "<answer>",
    samples: int = 5,
    turns: int = 0,
    right: float | None = None,
) -> pl.Recipe:
    """`p` = 0 clones nothing: GRPO with the reward of the form. A phrase stands behind `opening`,
    where no thought is open, in the place of an answer that begins with `mark`. `turns` 0 = as many
    as the world allows. `right`: the reward from which on an answer is right, None = as the reward says.
    """
    judge = pl.links(pl.Score(), TagReward(form))
    parent = pl.recipe("grpo", kl=kl)
    loss: Any = pl.Clipped(old="mixture")
    return pl.vary(
        parent,
        collect=pl.links(
            pl.Sample(n=samples, turns=turns),
            *judge.links,
            ProbeSampling(p, phrases, opening, mark, right, judge),
        ),
        credit=MixedCredit(parent.learners["policy"].credit, keep, 0.1, corrected, right),
        objective=loss + kl * pl.KL("k3") if kl else loss,
        needs=(("policy", "logp"), *(parent.learners["policy"].needs)),
        instruction=pl.rewards.THINK_FIRST if form else "",
    )


SEARCHES = tuple(f"<search>{relation} of" for relation in ("boss", "host", "heir", "twin"))


def embedded(**options: Any) -> pl.Recipe:
    """On questions of two hops over a small wiki. The small model writes no thoughts, so the phrases
    begin another search.
    """
    words: dict[str, Any] = {"p": 0.5, "keep": 0.2, "form": 0.0, "phrases": SEARCHES, "opening": ""}
    return pl.vary(build(**{**words, **options}), schedule=pl.Schedule(prompts=8, steps=30))
