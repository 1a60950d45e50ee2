"""Knowledge infused decoding: a frozen model speaks with what documents say of the words in its text.

Passages are looked up by the question, and pairs of their terms are an external memory; the terms of the
question and of the answer so far are the local one. At each token the words D that the external memory ties to
the local one are knowledge, and the keys and values H that the model holds of the text are moved:

    loss = -log sum over w in D of pi'(w) + kl * KL(pi' || pi),      dH <- dH - step_size * g / |g|^gamma
    p ~ pi'^fusion * pi^(1 - fusion)

pi' is the law of the next token on H + dH, `inner_steps` of gradient descent after pi; the log of the mass on D
is the reward, and the KL keeps the policy near (arXiv:2204.03084; formulas of the released code, see
`palaestra.engines.infused`). Of `tries` answers the one with the lowest perplexity under the model alone is given.
Nothing is trained.

    palaestra search --model DIR --data FILE --with "kid(docs='FOLDER')"      answers the rows of a file
    palaestra train kid --data FILE --docs FOLDER --model DIR                 compares it with the same decoding without knowledge

The second answers held-out questions both ways, with the same random numbers, and says for each the share of
answers that state the right one, nats a token under the model alone (the log of perplexity), the
probability that knowledge tokens gained, and seconds a token, of which KID takes several times as many.
A reply is right where a right answer's words stand anywhere in it, in one row: "yes" is right in "yes and no",
and --reward is not asked. Short answers such as numbers are better measured by `palaestra search --reward`.

On the built-in problem a small model first imitates answers to questions about a made-up wiki, of which the
held-out ones ask for facts that it was never told.
"""

import time
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Knowledge Infused Decoding",
    paper="arXiv:2204.03084",
    claim="Infusing retrieved knowledge into each step of decoding makes the text of a task-agnostic model "
    "more factual, without training.",
    source="released code (microsoft/KID: kid_policy.py, kid_agent.py, build_trie.py) and the abstract",
    size=pl.Size(
        setting="GPT-2 medium and BART on six knowledge-intensive tasks of generation, such as ELI5; 5 "
        "documents, 3 steps of 0.01, gamma 1.5, KL 0.01, fusion 0.99, top-k 20, top-p 0.92, 5 answers",
        samples=5,
    ),
    model="tiny-agent",
    task="wiki-few",
    needs=pl.needs.Requirements(
        columns=(pl.needs.QUESTION, pl.needs.GOLD_ANSWER),
        places=(
            pl.needs.NeededPlace(
                "documents",
                "from which knowledge is taken",
                built_in=("wiki-few", "wiki", "wiki-2", "wiki-far"),
            ),
        ),
        shows="gain",
        off={"inner_steps": 0},
        own={"model": "tiny-agent", "tasks": 3, "tries": 1, "max_tokens": 6},
    ),
    use="It helps a model that may not be trained and forgets names which documents have; where the documents "
    "fit into the prompt, showing them there is cheaper and usually better.",
    lacks=(
        "There is no open information extraction, coreference or tagger of nouns: a pair is two words of a "
        "sentence that are no stop words.",
        "Retrieval is BM25 over your documents, not a dense retriever over Wikipedia.",
        "The six tasks, the seven other ways to infuse knowledge and the human evaluation are not there; "
        "retrieved text in the prompt is not compared with.",
        "Encoder-decoder models such as BART are not decoded.",
        "Answers are decoded one after the other in this process; vLLM cannot move keys and values.",
    ),
    grade="B",
)


def states_gold(text: str, task: pl.Task) -> bool:
    """Whether a reply has one of the right answers in it."""
    golds = task.answer if isinstance(task.answer, list | tuple) else [task.answer]
    normal_text = pl.verifiers.normalise_text(text)
    return any(pl.verifiers.contains_term(str(g), normal_text) for g in golds)


@pl.stage
class CompareInfusion:
    """A program: held-out questions are answered with and without knowledge, by the same random numbers.

    Args:
        infusion: how they are answered.
        retrieved: passages that are looked up for each.
        tries: answers to each.
        tasks: held-out questions.
    """

    infusion: pl.engines.Infusion = pl.engines.Infusion()
    retrieved: int = 5
    tries: int = 5
    tasks: int = 32

    async def run(self, ctx: pl.Context) -> pl.Result:
        world = ctx.bench.world
        index = world.index if isinstance(world, pl.worlds.Search) else None
        if not isinstance(index, pl.services.BM25):
            raise pl.UserError(
                f"{ctx.bench.name} has no documents, from which kid takes knowledge; give --docs FOLDER"
            )
        ctx.say(
            "note: a reply counts as right where the words of a right answer stand in it; --reward is not asked"
        )
        there = ctx.with_bench(replace(ctx.bench, world=pl.worlds.Question()))
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        ways = {"plain": replace(self.infusion, inner_steps=0), "infused": self.infusion}
        measured = {name: await self._answer(there, index, tasks, x) for name, x in ways.items()}
        for name, numbers_of in measured.items():
            ctx.log({"way": name, **numbers_of})
        rate = {
            n: {"of": "accuracy"} | pl.stats.proportion(int(x["right"]), len(tasks)).json()
            for n, x in measured.items()
        }
        return pl.Result(
            metrics={
                **pl.ends.at_ends(rate["plain"], rate["infused"]),
                **{f"{n}_{k}": v for n, x in measured.items() for k, v in x.items()},
                "sampled_tokens": ctx.sampled_tokens,
            }
        )

    async def _answer(
        self,
        ctx: pl.Context,
        index: pl.services.BM25,
        tasks: list[pl.Task],
        way: pl.engines.Infusion,
    ) -> dict[str, float]:
        """Means over the questions: of the chosen answer `right` (a count), `gain` and `changed`
        (`InfusedAnswer`), `nats`, `tokens`, and seconds a token of all answers.
        """
        begun, tokens, chosen = time.monotonic(), 0, list[tuple[bool, Any]]()
        for i, task in enumerate(tasks):
            question, dialect = pl.tasks.question_text(task), ctx.engine().dialect
            pieces = dialect.extend(task.prompt, first=True, closed=False)
            prompt = tuple(i for p in pieces for i in p.ids)
            passages = index.search(question, self.retrieved)
            trie = pl.engines.KnowledgeTrie.of(text for _, text, _ in passages)
            writer = pl.engines.InfusedWriter(
                way, ctx.model("policy"), dialect, prompt, trie, question
            )
            key = (*ctx.key("kid", i), "infused")
            with ctx.phase("forward"):
                made = [writer.answer(ctx.bench.max_tokens, (*key, n)) for n in range(self.tries)]
                answers = writer.with_nats([x for x in made if x.ids])
            if not answers:
                raise pl.Fault("kid", f"the prompt of task {task.id!r} fills the context")
            best = answers[pl.engines.least_surprising(answers)]
            tokens += sum(len(x.ids) for x in answers)
            chosen.append((states_gold(ctx.decode(best.ids), task), best))
        seconds = time.monotonic() - begun
        mean = lambda name: float(np.mean([getattr(x, name) for _, x in chosen]))
        return {
            "right": float(sum(right for right, _ in chosen)),
            "gain": mean("gain"),
            "changed": mean("changed"),
            "nats": mean("nats"),
            "tokens": float(np.mean([len(x.ids) for _, x in chosen])),
            "seconds_per_token": seconds / max(1, tokens),
        }


@pl.stage
class ShowAnswer:
    """Adds the right answer as the reply, without a search."""

    recorded: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        asked = ctx.with_bench(replace(ctx.bench, world=pl.worlds.Question()))
        return await pl.Demonstrate()(asked, key, group)


def build(
    retrieved: int = 5,
    hops: int = 1,
    inner_steps: int = 3,
    step_size: float = 0.01,
    gamma: float = 1.5,
    kl: float = 0.01,
    fusion: float = 0.99,
    top_k: int = 20,
    top_p: float = 0.92,
    no_repeat: int = 2,
    whole: bool = True,
    tries: int = 5,
    temperature: float = 1.0,
    tasks: int = 32,
) -> CompareInfusion:
    """See `palaestra.engines.infused.Infusion`; `tasks` are held-out questions."""
    pl.check_bounds("kid: tasks", tasks, least=1)
    pl.check_bounds("kid: tries", tries, least=1)
    pl.check_bounds("kid: retrieved", retrieved, least=1)
    infusion = pl.engines.Infusion(
        hops=hops,
        inner_steps=inner_steps,
        step_size=step_size,
        gamma=gamma,
        kl=kl,
        fusion=fusion,
        top_k=top_k,
        top_p=top_p,
        no_repeat=no_repeat,
        whole=whole,
        temperature=temperature,
    )
    return CompareInfusion(infusion, retrieved, tries, tasks)


def embedded(
    steps: int = 40,
    inner_steps: int = 3,
    step_size: float = 0.4,
    retrieved: int = 1,
    tries: int = 3,
    tasks: int = 16,
) -> pl.Pipeline:
    """On the wiki: the small model learns in `steps` steps to answer at once, and is decoded with.

    Its memory is small beside that of the paper's models, so a step moves it further.
    """
    form = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowAnswer()),
        optimiser=pl.AdamW(lr=1e-3, warmup=5),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )
    exam = build(retrieved, inner_steps=inner_steps, step_size=step_size, tries=tries, tasks=tasks)
    return pl.Pipeline(parts={"form": pl.warm(form), "kid": pl.Part(exam, model=pl.Output("form"))})
