"""ReCode: GRPO on the form of a reply and on how much its code looks like the migrated code.

Release notes of a library and old code are given, the migrated code is wanted in
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

Migrations have the columns `old` and `answer`: the verifier `api-migration`. For any other task
with a text as its answer the answer line is the code, and working before it is the thinking.
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
)


@pl.stage
class Migrated:
    """The reward for a task whose answer is a text: the answer line is the code, lines before it
    are the thinking.
    """

    exact: bool = False
    gate: bool = True  # without it a missing answer line is merely unlike

    def __call__(self, text: str, task: pl.Task) -> dict[str, float]:
        said, lines = pl.tasks.final_answer(text), pl.tasks.answer_lines(text)
        form = (
            said is not None
            and len(lines) > 1
            and sum(line.startswith("= ") for line in lines) == 1
        )
        alike = 0.0 if said is None else pl.verifiers.edit_similarity(said, str(task.answer))
        code = 3.5 * (float(alike == 1) if self.exact else alike) - 1.5
        code = -2.0 if said is None and self.gate else code
        return {"total": (1.0 if form else -1.0) + code, "format": float(form), "similarity": alike}


def build(
    exact: bool = False,
    gate: bool = True,
    kl: float = 0.0,
    variant: Literal["paper", "released"] = "paper",
) -> pl.Recipe:
    """`exact` is EM*; without `gate` what cannot be read costs no more than what is unlike (not for
    code). `kl`: 0.001 there.
    """
    released = ", released=True" if variant == "released" else ""
    code = pl.Verified(f"api-migration(exact={exact}{released})", paper=True)
    reward = pl.Where("old", code, pl.Verify(Migrated(exact, gate)))
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True)),
    )
