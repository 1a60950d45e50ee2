"""CORY: a model is doubled into a pioneer, who answers a question, and an observer, who answers it
after reading the pioneer's answer. Both are trained by PPO on the sum of what both earned, and they
exchange roles every few steps.

    y1 ~ pi_pioneer(y | q),   y2 ~ pi_observer(y | template(q, y1)),   r1 = r(q, y1),   r2 = r(q, y2)
    cooperative: each is paid r1 + r2;   independent: r1 and r2;   competitive: r1 - r2 and r2 - r1
    reward of token t: -kl (log pi - log pi_ref) of the agent's own tokens and prompt; the pay at the last

Both answers are scored on the plain question. The agents have weights, optimisers and value heads of
their own and one frozen reference, the start. The model "policy" is the pioneer of the first `swap`
steps, "partner" of the next, and so on: the weights stay with the name, and so does the optimiser's
state. Either alone is the result; the held-out problems are answered by "policy", without an observer
(arXiv:2410.06101; Harry67Hu/CORY: imdb_train/cory.py).

An answer that is empty, or whose thinking was never closed, leaves the observer the plain question. A
pair of which one answer has no reward, since something failed, trains nothing. "part/shared" in the
metrics is how far an agent's pay is from its own reward on average.
"""

import asyncio
import re
from dataclasses import replace
from typing import Any, ClassVar, Literal

import palaestra as pl

PARTNER = "partner"
TEMPLATE = (
    "{query}\n\nAnother agent answered this as follows:\n{answer}\n\nIt may be wrong. Give a better answer "
    "of your own."
)
UNREAD = (
    "cory: the environment does not begin with the task's prompt, so the observer cannot read the pioneer's "
    "answer; train on questions, or on an environment that shows Task.prompt"
)
HINT = "{query}\nhint:\n{answer}"

CARD = pl.Card(
    title="CORY: pioneer/observer co-evolution",
    paper="arXiv:2410.06101",
    claim="Two copies of a model that learn as pioneer and observer, and exchange roles, reach a better "
    "trade-off of reward and KL than PPO, and collapse less.",
    source="abstract and released code (Harry67Hu/CORY: imdb_train/cory.py)",
    size=pl.Size(
        setting="GPT-2 on IMDB (batch 256, 4 to 16 new tokens, lr 1.41e-5, adaptive KL weight from 0.4, exchange "
        "every 5 batches) and Llama-2-7b-chat on GSM8K",
        model="llama-2-7b",
        prompts=256,
        samples=1,
        lr=1.41e-5,
    ),
    needs=pl.needs.Requirements(
        shows="part/shared",
        off={"team": "independent"},
        own={"schedule.prompts": 4, "collect.links.0.n": 2, "swap": 1, "max_tokens": 12},
    ),
    use="It helps where PPO on one model drifts or collapses and twice the compute and memory can be paid; with "
    "a weak model the observer copies the pioneer's mistakes, and the shared pay is noise for the pioneer.",
    lacks=(
        "The weight of the KL is constant; the released code adapts it to a target.",
        "Rewards are whitened with the advantages, and not scaled by a running mean and deviation before.",
        "On the built-in sums nothing is shown: 20 steps moved held-out accuracy from 20.9% to 22.1% (512 "
        "problems, one seed, within its error); no arm was compared with PPO.",
        "The KL is estimated from the sampled tokens; the released code sums over the vocabulary.",
    ),
    grade="A",
)


@pl.stage
class TakesTurns:
    """0 for `every` steps, 1 for the next `every`, and so on; `every` 0 = always 0."""

    every: int = 5
    clock: ClassVar[str] = "every"

    def at(self, step: int) -> float:
        return float(step // self.every % 2) if self.every > 0 else 0.0


@pl.stage
class Pioneer:
    """A cast in which the seats of the policy are taken by the agent that pioneers.

    Args:
        turn: 0 = the model "policy" pioneers, 1 = its partner.
    """

    turn: Any = TakesTurns()

    def __call__(
        self, ctx: pl.Context, key: pl.Key, sampling: pl.Sampling, seats: Any
    ) -> dict[str, pl.Player]:
        name = PARTNER if self.turn else "policy"
        agent = pl.rollout.EnginePlayer(
            engine=ctx.engine(name), sampling=sampling, name=name, policy=name
        )
        return {seat: agent if p.policy else p for seat, p in seats.items()}


Team = Literal["cooperative", "independent", "competitive"]


def shared_pay(pioneer: float, observer: float, team: Team) -> tuple[float, float]:
    """What pioneer and observer are paid for rewards r1 and r2: see the module."""
    if team == "cooperative":
        return pioneer + observer, pioneer + observer
    if team == "competitive":
        return pioneer - observer, observer - pioneer
    return pioneer, observer


def observer_task(task: pl.Task, answer: str, template: str) -> pl.Task:
    """The task as the observer reads it; without an answer to read the plain one. Raises UserError
    for a task without a question.
    """
    text = pl.verifiers.strip_thinking(answer).strip("\n").replace(pl.PICTURE_MARK, "")
    if not text.strip():
        return task
    query = next((m for m in reversed(task.prompt) if m.role == "user"), None)
    if query is None:
        raise pl.UserError(UNREAD)
    texts = {"query": query.content, "answer": text}
    content = re.sub(r"\{(query|answer)\}", lambda m: texts[m[1]], template)
    return pl.tasks.rephrase(task, content)


@pl.stage
class Observe:
    """Adds an observer's answer behind every scored answer of a pioneer, and shares their rewards.

    Args:
        turn: as of the `Pioneer`; the other agent observes.
        team: how the rewards are shared.
        template: what the observer reads: {query} and {answer} stand for the question and the
            pioneer's answer. "" = the observer does not see the answer.
    """

    turn: Any = TakesTurns()
    team: Team = "cooperative"
    template: str = TEMPLATE

    def __post_init__(self) -> None:
        if self.template and not all(x in self.template for x in ("{query}", "{answer}")):
            raise pl.UserError(
                "cory: template needs {query} and {answer}, where the question and the pioneer's answer go"
            )

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        pioneers = list(group.episodes)
        scored = [i for i, e in enumerate(pioneers) if e.ok and e.reward is not None]
        observers = await asyncio.gather(
            *(self._observe(ctx, (*key, i), group.task, pioneers[i]) for i in scored)
        )
        both = replace(group, episodes=(*pioneers, *observers))
        scored_observers = (await pl.Score()(ctx, key, both)).episodes[len(pioneers) :]
        seconds = list[pl.Episode]()
        for i, observer in zip(scored, scored_observers, strict=True):
            pioneers[i], second = self.share(pioneers[i], observer)
            seconds.append(second)
        return replace(group, episodes=(*pioneers, *seconds))

    async def _observe(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, pioneer: pl.Episode
    ) -> pl.Episode:
        answer = pl.response_text(pioneer)
        observer = observer_task(task, answer, self.template) if self.template else task
        sample = pl.Sample(n=1, cast=Pioneer(1 - self.turn))
        (e,) = (await sample(ctx, key, pl.Group(task=observer))).episodes
        if observer != task and e.rows and e.rows[0].segments[:1] == pioneer.rows[0].segments[:1]:
            raise pl.UserError(UNREAD)
        return replace(e, prompt=observer.prompt)

    def share(self, pioneer: pl.Episode, observer: pl.Episode) -> tuple[pl.Episode, pl.Episode]:
        """Both with what they are paid; the pioneer as failed where the observer has no reward."""
        if pioneer.reward is None or observer.reward is None or not observer.ok:
            why = str(observer.facts.get("error", observer.status))
            return pl.rollout.apply_reward(pioneer, pl.Fault("observer", why)), observer
        r1, r2 = pioneer.reward.total, observer.reward.total
        first, second = shared_pay(r1, r2, self.team)

        def paid(e: pl.Episode, own: float, pay: float) -> pl.Episode:
            assert e.reward is not None
            parts = {**e.reward.parts, "pioneer": r1, "observer": r2, "shared": abs(pay - own)}
            return replace(e, reward=replace(e.reward, total=pay, parts=parts, solved=e.solved))

        return paid(pioneer, r1, first), paid(observer, r2, second)


def build(
    team: Team = "cooperative",
    swap: int = 5,
    kl: float = 0.05,
    template: str = TEMPLATE,
) -> pl.Recipe:
    """`swap` steps are between exchanges, 0 = none. `kl` is the weight of the KL in the reward.
    `template` "" hides the pioneer's answer.
    """
    ppo = pl.recipe("ppo", kl=kl)
    agent, turn = ppo.learners["policy"], TakesTurns(swap)

    def learner(name: str) -> pl.Learner:
        needs = tuple((name if model == "policy" else model, what) for model, what in agent.needs)
        return replace(agent, credit=pl.credit.Own(name, agent.credit), needs=needs)

    return pl.vary(
        ppo,
        collect=pl.links(
            pl.Sample(n=4, cast=Pioneer(turn)), pl.Score(), Observe(turn, team, template)
        ),
        learners={name: learner(name) for name in ("policy", PARTNER)},
    )


def embedded(template: str = HINT, **options: Any) -> pl.Recipe:
    """On the embedded problem, whose small model knows hints and no prose."""
    made = build(template=template, **options)
    learners = {n: replace(x, optimiser=pl.AdamW(lr=2e-5)) for n, x in made.learners.items()}
    schedule = pl.Schedule(prompts=12, steps=20)
    return pl.vary(made, learners=learners, schedule=schedule)
