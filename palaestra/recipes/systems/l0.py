"""L0: an agent writes cells of a notebook, each step has a reward, and returns of all steps of a
batch are whitened together (arXiv:2506.23667).

    r_i = 0.8 QA_i + 0.1 format_i / n + 0.1 exec_i / n,      QA_n = 0.9 [exact match] + 0.1 [answered], QA_i = 0 before,
    G_i = r_i + gamma G_{i+1},      A_i = (G_i - mean) / std over all steps of the batch (ddof 1),

n = steps of the episode; format = one thought and one piece of code of useful length; exec = 1 -
errors / outputs of the cell. Every token of step i gets A_i; one on-policy policy gradient and a KL
(k3) to the start as a loss. Groups whose rewards are all equal are replaced by drawing again, three
times in all; then the batch is filled with them, for steps still differ where sums do not.

The cells run in sessions of the sandbox (`worlds.notebook`), at most two a core at once, without
network and with an empty environment; the released sandbox has both. Questions of a file are asked
in `worlds.notebook_questions`: tools run outside the sandbox, and a notepad stays where earlier cells are
left out. An environment without the facts "formed" and "clean" by turn is refused. A row is a
whole trajectory here, one step in the released code: with a token mean the loss is the same. The
weight of the KL is not known to us. `level="trajectory"` whitens sums of trajectories instead,
`shaped=False` takes the format and exec rewards away, and `quality="f1"` pays the F1 of the answer's
words in place of the exact match.
"""

from dataclasses import replace
from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="L-Zero: sandboxed concurrent agent worker pool, NB-Agent REPL",
    paper="arXiv:2506.23667",
    claim="An agent that acts by cells of a notebook learns to solve questions from verifiable "
    "rewards by step alone, in a sandboxed pool of workers.",
    source="released code (cmriat/l0: task_server.py, core_algos.py, advantage_calculation.py, "
    "nb_agent_reward.py, train_qa_reinforcepp_dynamic_7b.sh) and its abstract",
    size=pl.Size(
        setting="Qwen2.5-7B-Instruct, 64 prompts x 4, prompt 16,384, response 3,072, at most 8 "
        "steps, lr 1e-6, KL to the start, one update; 16 GPUs; HotpotQA and other questions",
        model="qwen2.5-7b",
        prompts=64,
        samples=4,
        tokens=24576,  # 8 steps of 3,072
        lr=1e-6,
        arguments={"collect.sample.max_tokens": 3072},
    ),
    task="lookup",
    world="notebook",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("Who wrote Emma?", "What is 17 * 25?", "k7+p2"),
                "the question; the third is one of values that a tool knows",
            ),
            pl.needs.NeededColumn(
                "answer",
                "any",
                ("Jane Austen", "425", "61"),
                "the right answer, or a list of them",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "tools",
                "which cells may call, such as a search",
                otherwise="cells have Python alone",
            ),
            pl.needs.NeededPlace(
                "environment",
                "in which turns are cells of code, with the facts `formed` and `clean` by turn",
                built_in=("lookup",),
                flag="--env notebook",
            ),
        ),
        shows="part/steps",
        off={"shaped": False},
        own={
            "env": "notebook(told=False,turns=2,seconds=1)",
            "model": "tiny-agent",
            "schedule.prompts": 3,
            "collect.links.0.n": 2,
            "pool.size": 2,
            "max_tokens": 48,
        },
    ),
    use="It helps where steps can be checked by themselves, as cells of code can; elsewhere only the "
    "answer is paid.",
    lacks=(
        "The tools of the paper, web search and a reader of pages, are yours to bring with "
        "--tools.",
        "The pool of sandboxed workers is in the process that samples, at most two sessions a "
        "core at once; the paper's agents run on machines of their own.",
    ),
    grade="B",
)


@pl.stage
class StepRewards:
    """Rewards by step from the facts "formed" and "clean" and from whether the episode is solved
    and "answered". Their sum is the total; whether it is solved stays as it was. The part "steps" is
    what format and execution paid. `part` is paid in place of whether it is solved, where named.

    Raises UserError where they are to be paid and the world has no such facts.
    """

    answer: float = 0.8
    format: float = 0.1
    execution: float = 0.1
    exact: float = 0.9  # of QA; the rest is for any answer
    part: str = ""

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._paid, group.episodes)))

    def _paid(self, e: pl.Episode) -> pl.Episode:
        ends = step_ends(e)
        if not e.ok or e.reward is None or not ends:
            return e
        self._check(e)
        n, solved = len(ends), e.solved
        right = e.reward.parts[self.part] if self.part else solved
        answered = bool(e.facts.get("answered", e.status == "finished"))
        quality = self.answer * (self.exact * right + (1 - self.exact) * answered)
        formed, clean = (_by_step(e, name, n) for name in ("formed", "clean"))
        paid = [
            (self.format * f + self.execution * c) / n for f, c in zip(formed, clean, strict=True)
        ]
        steps = sum(paid)
        paid[-1] += quality
        events = tuple(
            pl.Event(row=row, token=token, value=r, part="step")
            for (row, token), r in zip(ends, paid, strict=True)
        )
        parts = {
            "right": float(solved),
            "answered": float(answered),
            "formed": sum(formed) / n,
            "clean": sum(clean) / n,
            "steps": steps,
        }
        reward = replace(e.reward, total=sum(paid), parts=parts, events=events, solved=solved)
        return replace(e, reward=reward)

    def _check(self, e: pl.Episode) -> None:
        lacking = [name for name in ("formed", "clean") if name not in e.facts]
        if lacking and (self.format or self.execution):
            raise pl.UserError(
                f"l0 pays steps by the fact {lacking[0]!r}, which this environment does not give; ask "
                "questions of --data without --env, give the fact by turn, or pay the answer alone "
                "with shaped=false"
            )


def step_ends(episode: pl.Episode) -> list[tuple[int, int]]:
    """Row and place in its training view of the last token of every step, in order."""
    ends: list[tuple[int, int, int]] = []
    for r, row in enumerate(episode.rows):
        at = 0
        for s in row.segments:
            at += 0 if s.hidden else len(s.ids)
            if s.trained and s.ids:
                ends.append((s.turn, r, at - 1))
    return [(r, at) for _, r, at in sorted(ends)]


def _by_step(episode: pl.Episode, name: str, n: int) -> list[float]:
    """A fact by turn; 0 for turns that the world says nothing of."""
    held = [float(x) for x in episode.facts.get(name, ())][:n]
    return held + [0.0] * (n - len(held))


@pl.stage
class DrawAgain:
    """Groups with different rewards, from up to `batches` draws; what is missing then are groups
    with equal ones, the first drawn first.
    """

    size: int = 16
    batches: int = 3

    async def __call__(
        self, ctx: pl.Context | None, groups: list[pl.Group], state: pl.State
    ) -> tuple[list[pl.Group] | None, list[pl.Group], pl.State]:
        drawn = state.get("drawn", 0) + 1
        mixed = [*state.get("mixed", []), *filter(pl.curriculum.is_mixed, groups)]
        equal = [*state.get("equal", []), *(g for g in groups if not pl.curriculum.is_mixed(g))]
        if len(mixed) < self.size and drawn < self.batches:
            return None, [], {"mixed": mixed, "equal": equal, "drawn": drawn}
        return [*mixed, *equal][: self.size], [], {}


def build(
    level: Literal["step", "trajectory"] = "step",
    shaped: bool = True,
    gamma: float = 1.0,
    kl: float = 0.001,
    batches: int = 3,
    quality: Literal["exact", "f1"] = "exact",
) -> pl.Recipe:
    """`level` is what credit is given to; without `shaped` only the answer is paid, by `quality`."""
    returns = (pl.credit.TurnReturns(gamma),) if level == "step" else ()
    part = "f1" if quality == "f1" else ""
    paid = StepRewards(part=part) if shaped else StepRewards(format=0.0, execution=0.0, part=part)
    read = (pl.rewards.AnswerF1(),) if part else ()
    loss = pl.Reinforce(reduce="tokens")
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=4), pl.Score(), *read, paid),
        pool=DrawAgain(batches=batches),
        credit=pl.chain(*returns, pl.Center("batch"), pl.Scale("batch", ddof=1, eps=1e-9)),
        objective=loss + kl * pl.KL("k3", reduce="tokens") if kl else loss,
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
    )


def embedded() -> pl.Pipeline:
    """On T-lookup, from the small agent, which writes cells already."""
    learned = pl.override(build(), "pool.size", 4)
    learned = pl.vary(learned, schedule=pl.Schedule(prompts=6, steps=20))
    return pl.Pipeline(parts={"rl": pl.Part(learned, model="tiny-agent")})
