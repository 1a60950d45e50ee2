"""ReCode: the model is given release notes and old code, writes the migrated code, and is rewarded
for its form and for how much its code looks like the right one.

The code is wanted in
<think>..</think><answer>```python..```.

    r = form + code,    form = +1 if the reply is one think block and one answer block, else -1
    code = -2                         no Python block, or one that does not parse
           3.5 sim - 1.5              ES*: sim = 1 - Levenshtein / longer length, without comments and blank lines
           2 if equal, else -1.5      EM*, the ablation

(arXiv:2506.20495; zjunlp/ReCode, src/GRPO/reward.py). Two empty programs have sim 1, where the
released formula divides by zero; comments are found by Python's tokenizer, where the released
pattern takes an apostrophe in a comment for a string and deletes the code behind it. With
`variant="released"` it does, so that two programs which begin with such a comment are equal. The
released prompt ends with <think>, so a reply that opens it again has no form; here a reply may open
it or not, but only once. A small change makes a copy of the old code worth nearly all: compare with
the copy (`Delta`).

The prompt of a record holds the notes and the old code and asks for that form; its answer is the
migrated code, in Python.
"""

from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="ReCode: rule-based RL for code API updates",
    paper="arXiv:2506.20495",
    claim="Edit similarity to the migrated code teaches API changes where exact match is too "
    "sparse.",
    source="released code (zjunlp/ReCode), its two failures mended",
    size=pl.Size(
        setting="Qwen2.5-Coder-7B, 2,000 migrations, a prompt x 8, KL .001, LoRA 64, lr 5e-5, "
        "1,024 tokens, 5,000 steps; DAPO as well",
        model="qwen2.5-7b",
        prompts=1,
        samples=8,
        tokens=1024,
        lr=5e-5,
        lora=64,
        arguments={"kl": 1e-3, "optimiser.warmup": 150},
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                (
                    "np.float is removed; use float. Migrate: x = np.float(3)",
                    "df.append is removed; use pd.concat. Migrate: df = df.append(row)",
                ),
                "release notes, the old code, and the form that is asked for",
            ),
            pl.needs.NeededColumn(
                "answer",
                "text",
                ("x = float(3)", "df = pd.concat([df, row])"),
                "the migrated code, which must be Python",
            ),
        ),
        shows="part/paper",
        never_off="A reply without code is paid the least, which is not 0; the reward is the method.",
        own={"collect.links.0.n": 2, "schedule.prompts": 4},
    ),
    use="It helps where a few thousand migrations are known and the model rarely writes one exactly; a "
    "copy of the old code is already worth much where little changes.",
    lacks=(
        "DAPO, the paper's second learner.",
        "The 2,000 migrations of the paper and CodeUpdateArena.",
    ),
    grade="B",
)
ASK = (
    "Reason in <think></think>, then write the migrated code in <answer></answer>, in a block that "
    "begins with ```python and ends with ```."
)


@pl.stage
class Migrated:
    """The reward for a task whose answer is a text: the answer line is the code, lines before it
    are the thinking.
    """

    exact: bool = False
    gate: bool = True  # without it a missing answer line is merely unlike

    def __call__(self, text: str, task: pl.Task) -> dict[str, float]:
        answer, lines = pl.tasks.final_answer(text), pl.tasks.answer_lines(text)
        form = (
            answer is not None
            and len(lines) > 1
            and sum(line.startswith("= ") for line in lines) == 1
        )
        alike = 0.0 if answer is None else pl.verifiers.edit_similarity(answer, str(task.answer))
        code = 3.5 * (float(alike == 1) if self.exact else alike) - 1.5
        code = -2.0 if answer is None and self.gate else code
        return {"total": (1.0 if form else -1.0) + code, "format": float(form), "similarity": alike}


def build(
    exact: bool = False, kl: float = 0.0, variant: Literal["paper", "released"] = "paper"
) -> pl.Recipe:
    """`exact` is EM*. `kl`: 0.001 there."""
    return rewarded(migration(exact, variant), kl)


def migration(exact: bool, variant: Literal["paper", "released"] = "paper") -> pl.Verified:
    released = ", released=True" if variant == "released" else ""
    return pl.Verified(f"api-migration(exact={exact}{released})", paper=True)


def rewarded(reward: pl.RewardFn, kl: float) -> pl.Recipe:
    """The method's learner under a reward."""
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True)),
        instruction=ASK,
    )


def embedded(exact: bool = False, gate: bool = True, kl: float = 0.0) -> pl.Recipe:
    """On the embedded problem, whose answer line is the code. Without `gate` what cannot be read
    costs no more than what is unlike.
    """
    return rewarded(pl.Where("old", migration(exact), pl.Verify(Migrated(exact, gate))), kl)
