"""VeriPrefer: DPO on pairs of Verilog designs that a simulator ranks.

For each specification with its reference design,

    1. stimuli for the inputs of the reference: every value, or random steps; with `bench=MODEL` that model
       lists test points and writes stimuli for them first, and is shown what does not fit, `repairs` times
    2. the reference is simulated: its outputs are the checks
    3. the bench has to tell `kills` of the reference's mutants (an operator, constant or edge changed) from
       it; while it does not, there are more stimuli, and a task whose bench stays weak makes no pair
    4. n answers of the policy, simulated with the same stimuli:

       score = 0 if it does not compile, else (checks passed) / (checks)

    5. DPO on the best against the worst of a prompt where the scores differ, the pairs with the largest
       difference first: `strongest` is the share of a step's pairs that is learned from

       loss = -log sigmoid(beta [(log pi - log ref)(better) - (log pi - log ref)(worse)])

(abstract and released code of VeriPrefer, arXiv:2504.15804; its benches are self-checking programs judged by
a commercial simulator.) A design that uses a system task ($finish, $display, $system, ...), includes a
file or does not end in time has failed. The reference and an answer are simulated apart, so no answer sees
an expected value.

    palaestra train veriprefer --data designs/ --model DIR

`designs/` holds a specification (.txt, .md) and a design (.v, .sv) for each item, beside each other under
one name or in a folder of their own; or --data names a file with the columns prompt and answer. Needs Icarus
Verilog (`apt install iverilog`). Without --data, the digits that the built-in model answers are written as
a table in Verilog, so that each wrong digit fails a check.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl

CARD = pl.Card(
    title="VeriPrefer: Verilog DPO with testbench feedback",
    paper="arXiv:2504.15804",
    grade="B",
    claim="DPO on pairs ranked by test benches writes more functionally correct Verilog than supervised "
    "fine-tuning.",
    source="abstract and released code (CatIIIIIIII/VeriPrefer); the steps of the bench pipeline follow the "
    "abstract, stimuli in place of self-checking benches are ours",
    size=pl.Size(
        setting="Mistral-7B-v0.2, CodeLlama-7B, DeepSeek-Coder-7B-v1.5, CodeQwen1.5-7B, Qwen2.5-Coder 7B and "
        "14B; 2 answers at temperature 0.7, LoRA on all linear layers, beta 0.1, lr 5e-6, 10 epochs, batch 4",
        model="qwen2.5-7b",
        prompts=4,
        samples=2,
        tokens=2048,
        lr=5e-6,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                (
                    "Write the Verilog module add(input [1:0] a, input [1:0] b, output [2:0] s), which adds.",
                    "Write the Verilog module invert(input a, output y), which inverts.",
                ),
                "a specification with the ports of the module",
            ),
            pl.needs.NeededColumn(
                "answer",
                "text",
                (
                    "module add(input [1:0] a, input [1:0] b, output [2:0] s); assign s = a + b; endmodule",
                    "module invert(input a, output y); assign y = ~a; endmodule",
                ),
                "a reference design in Verilog",
            ),
            pl.needs.NeededColumn(
                "stimuli",
                "text",
                ("a=1 b=3\na=2 b=2", "a=0\na=1"),
                "stimuli of the bench, a line each with values of inputs",
                otherwise="they are random, or every value where the inputs have few bits",
            ),
            pl.needs.NeededColumn(
                "clock",
                "text",
                ("", ""),
                "the input that is the clock",
                otherwise="it is known by its name (clk, clock) or by the edges that the design waits for",
            ),
        ),
        models=(
            pl.needs.chat_model(
                "bench writer",
                "bench",
                "lists test points and writes stimuli for them",
                otherwise="stimuli are random, or every value where the inputs have few bits",
            ),
        ),
        shows="part/mutants_killed",
        off={"mutants": 0},
        own={"schedule.prompts": 2, "n": 2, "mutants": 2},
    ),
    use="It helps where the model writes designs that compile and some pass; where none passes a check, or "
    "all pass all, there is no pair.",
    lacks=(
        "A bench is a list of stimuli whose checks the reference gives; no self-checking bench in Verilog is "
        "written, and with it go its compiler errors and their repair.",
        "Coverage of lines, conditions, toggles, states and branches is not measured: Icarus Verilog has "
        "none. The share of mutants killed stands for it.",
        "Supervised fine-tuning before it is another run, `palaestra train sft`.",
        "Pairs are made anew in each step from the policy's answers, where the paper makes them once.",
        "VCS, the data sets pyra and the benchmarks (VerilogEval, RTLLM) are not there.",
        "Designs with inout ports, several clocks or arrays as ports are refused or driven as data.",
        "Without --data, no model writes Verilog: digits are put into a table.",
    ),
)
ASK = "Write the module in one ```verilog block."
POINTS = (
    "A digital design is specified so:\n\n{spec}\n\nIts inputs are {inputs}. List in words, one line each, "
    "the functional test points that a test bench must cover."
)
STIMULI = (
    "A digital design is specified so:\n\n{spec}\n\nIts inputs are {inputs}, and a clock, where there is one, ticks "
    "once a step. Test points:\n\n{points}\n\n"
    "Write stimuli that cover them, one step a line, values as NAME=NUMBER, for example\n{example}\n"
    "An input that a line leaves out keeps its value. Write only these lines."
)


@pl.stage
class WriteStimuli:
    """Stimuli of a model for tasks that have none, as their column `stimuli`: test points, then steps.

    Steps that do not fit are shown to the model with what is wrong, `repairs` times; then the task has the
    random ones alone.
    """

    writer: pl.Source
    repairs: int = 2

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task = group.task
        if task.meta.get("stimuli") or "module" not in str(task.answer):
            return group
        text = await self.write(ctx, task)
        if not text:
            ctx.say(f"veriprefer: no stimuli of the bench writer fit {task.id}; random ones stand")
            return group
        return replace(group, task=replace(task, meta={**task.meta, "stimuli": text}))

    async def write(self, ctx: pl.Context, task: pl.Task) -> str:
        """Stimuli that fit; "" where none did."""
        client = ctx.client(self.writer)
        inputs = pl.verifiers.inputs_of(str(task.answer), str(task.meta.get("clock") or ""))
        spec = next((m.content for m in reversed(task.prompt) if m.role == "user"), "")
        named = ", ".join(f"{name} ({bits} bits)" for name, bits in inputs.items())
        points = await client.chat(
            pl.ChatRequest(
                messages=pl.services.question_messages(POINTS.format(spec=spec, inputs=named))
            )
        )
        asked = STIMULI.format(
            spec=spec,
            inputs=named,
            points=points.text.strip(),
            example=" ".join(f"{name}=0" for name in inputs),
        )
        for _ in range(self.repairs + 1):
            reply = await client.chat(pl.ChatRequest(messages=pl.services.question_messages(asked)))
            try:
                pl.verifiers.read_stimuli(reply.text, inputs)
            except ValueError as error:
                asked += f"\n\nYou wrote:\n{reply.text.strip()[:2000]}\nThat does not fit: {error}."
            else:
                return reply.text
        return ""


@pl.stage
class MuteWeakBenches:
    """Mutes the episodes of a task whose bench tells fewer than `kills` of the mutants from the reference."""

    kills: float

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        shares = [
            e.reward.parts["mutants_killed"]
            for e in group.episodes
            if e.reward is not None and "mutants_killed" in e.reward.parts
        ]
        if not shares or shares[0] >= self.kills:
            return group
        ctx.say(
            f"veriprefer: the bench of {group.task.id} tells {shares[0]:.0%} of the mutants from the "
            "reference, too few; its answers make no pair"
        )
        return replace(group, episodes=tuple(replace(e, muted=True) for e in group.episodes))


@pl.stage
class StrongestPairs:
    """The pairs of `pairs` with the largest difference, the column `gap`, first; at least one.

    share: of a step's pairs that is kept.
    """

    share: float = 1.0
    pairs: pl.credit.Prefer = pl.credit.Prefer()

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples, state = self.pairs(groups, signals, state)
        gaps = {str(x.unit): float(x.columns["gap"]) for x in examples}
        ranked = sorted(gaps, key=lambda unit: -gaps[unit])
        kept = ranked[: max(1, round(self.share * len(ranked)))]
        return [x for unit in kept for x in examples if str(x.unit) == unit], state


def build(
    bench: pl.Source | None = None,
    n: int = 2,
    temperature: float = 0.7,
    mutants: int = 8,
    kills: float = 0.5,
    strongest: float = 1.0,
    repairs: int = 2,
    seconds: float = 8.0,
    beta: float = 0.1,
) -> pl.Recipe:
    """`mutants` are of each reference at most, 0 = benches are not tested; `seconds` is the limit of
    one simulation; the other arguments are those of the steps above.
    """
    pl.check_bounds("veriprefer: n", n, least=2)
    pl.check_bounds("veriprefer: mutants", mutants, least=0)
    pl.check_bounds("veriprefer: kills", kills, least=0, most=1)
    pl.check_bounds("veriprefer: strongest", strongest, above=0, most=1)
    name = f"verilog(mutants={mutants}, kills={kills}, seconds={seconds})"
    reward = pl.Rewritten(pl.Verified(name), unless="stimuli", write=pl.rewards.AsDesign())
    links: list[Any] = [pl.Sample(n=n, temperature=temperature), pl.Score(reward=reward)]
    if bench is not None:
        links.insert(1, WriteStimuli(bench, repairs))
    if mutants and kills:
        links.append(MuteWeakBenches(kills))
    return pl.vary(
        pl.recipe("dpo", beta=beta),
        collect=pl.links(*links),
        credit=StrongestPairs(strongest),
        instruction=ASK,
    )


def embedded(n: int = 8, temperature: float = 1.0, **options: Any) -> pl.Recipe:
    """On the built-in problem, whose model hardly ever answers two things at 0.7."""
    recipe = build(n=n, temperature=temperature, **options)
    return pl.vary(recipe, schedule=pl.Schedule(prompts=8, steps=20), instruction="")
