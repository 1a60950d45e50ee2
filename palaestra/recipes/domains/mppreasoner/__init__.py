"""MPPReasoner: a model reasons about a molecule by principles of chemistry before it says True or False of a
property, and is paid for the principles and groups that RDKit confirms (arXiv:2510.10248).

    <think>Like CCO it is small. It has an ester ... on balance likely true</think><answer>True</answer>

1. Prompts. A question shows the SMILES, the `neighbours` training molecules that are most alike, by the Tanimoto
   similarity of their Morgan fingerprints, with their answers, and with `picture` pixels the drawing, for a model
   that sees.
2. Imitation of chains of thought, three epochs in the paper: the column `demonstration`, or what `teacher` writes,
   which is shown the answer and the expert's notes (`notes=FILE.md`) and asked again until it ends in that
   answer. One whose answer is wrong or cannot be read is not imitated. The vision tower stays.
3. GRPO with principle-guided rewards (RLPGR), behind a gate:

       no <think> and <answer> that can be read          -1.5
       a wrong answer                                     -1
       else  2 + reasoning (consistent + compared) + chemistry (principle + structure)

   each term 0 or 1, both weights 0.25, at most 3. 0.01 KL (k3).

       consistent  what is weighed ("overall", "on balance") ends in a verdict ("likely true") that is the answer
       compared    the SMILES of a molecule that was shown is quoted
       principle   claims on Lipinski's rules, logP, hydrogen bonds, weight, aromaticity, polarity, steric
                   hindrance and flexibility: there are some, and RDKit confirms every one
       structure   groups, rings and atoms that are named: RDKit finds every one

    palaestra train mppreasoner --data molecules.csv --model DIR teacher="endpoint(url='http://HOST:PORT/v1',model='NAME')"
    palaestra train mppreasoner --data rows.jsonl --model DIR picture=384

`molecules.csv` is any table with a column of SMILES and one of a property with two classes, or of numbers; rows of
prompt, answer and `smiles` with a `demonstration` need no teacher. `imitate=False` leaves stage 2 out, for a model
that writes the form already.

Deviations. The released reward (rl/rlpgr.py at feabfac; `checks=released`) looks for substrings: "polar" is found in
"nonpolar", "ether" in "whether"; what is denied, and opposites in one text, count as said; a molecule in the middle
of a range passes at the mention of a word; and benzene is quoted where cyclohexane is shown. `checks=strict` reads
whole words with their denials, leaves out sentences on the molecules that were shown, and every claim must hold;
with `checks=sound` right subjects must outnumber wrong ones, so that claims which nearly all molecules satisfy make
up for a wrong one. `reasoning=0 chemistry=0` pays for form and answer alone, the control. The first releases
(ddd60b6, e390b4a) have no gate: `gated=False`. k is not in the code; 4 is ours, and so are words for the middle of
a range. At test time the evaluator "molecules" compares P(True) with P(False) behind the thoughts (ROC-AUC).

Without --data the questions are on the task `molecules`, in short prompts with two neighbours, and a program writes
thoughts of three claims, of which 0.6 are right; they quote no neighbour, as the small model cannot copy a SMILES.
`palaestra train mppreasoner --seed 0 checks=sound`: on 56 held-out molecules imitation brings an AUC of 0.72 and
64% right answers (95%: 51 to 76). After 24 steps of RL these are 0.72 and 64%; of the claims RDKit confirms 0.61,
before RL 0.47, and they tell less of the molecule, 1.6 in place of 2.0 bits: the model moves to claims that are
usually true. Rewards of training do not rise (0.59 to 0.58, means of six steps). One seed, no control beside it,
and strict checks were not run: no claim.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import palaestra as pl
from palaestra.recipes.domains.mppreasoner.exam import MoleculeExam
from palaestra.recipes.domains.mppreasoner.questions import WriteMoleculeQuestions, WriteThoughts
from palaestra.recipes.domains.mppreasoner.rewards import (
    Checks,
    CheckTrajectories,
    ChemistryShare,
    PrincipleReward,
)

EXAMPLES = (  # SMILES, answer, chain of thought
    ("CC(=O)OCC", "1", "Like CCO it is small. It has an ester. Overall it is likely true."),
    (
        "OCC(O)CO",
        "0",
        "It is hydrophilic, and has several hydroxyl groups. Overall it is likely false.",
    ),
    ("c1ccccc1C", "1", "It is small, aromatic, and nonpolar. On balance it is likely true."),
    ("NCC(=O)O", "0", "It is hydrophilic, with a carboxylic acid. Therefore it is likely false."),
)
CARD = pl.Card(
    title="MPPReasoner: principle-guided molecular reasoning",
    paper="arXiv:2510.10248",
    claim="Imitation of expert reasoning and RL with rewards for principles and structures that RDKit verifies "
    "predict molecular properties better, on properties of training and on others, with sound reasons.",
    source="released code (Jesse-zjx/MPPReasoner: rl/rlpgr.py in its three versions, rl/train.sh, sft/train.sh), "
    "with its checks mended; the abstract; k and the prompt are ours",
    size=pl.Size(
        setting="Qwen2.5-VL-7B, 16,000 trajectories, 3 epochs at lr 1e-5; then 300 steps of 128 prompts, mini-batch 64, "
        "8 answers, lr 1e-6, KL 0.01, 4,096 tokens each of prompt and answer, 8 A100",
        model="qwen2.5-7b",
        prompts=128,
        samples=8,
        tokens=4096,
        lr=1e-6,
    ),
    task="molecules",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                tuple(f"Is {s} permeable, 0 or 1?" for s, _, _ in EXAMPLES),
                "the question; of a table of molecules it is written from the property's name",
            ),
            pl.needs.NeededColumn(
                "answer",
                "any",
                tuple(a for _, a, _ in EXAMPLES),
                "the property's class, one of two",
            ),
            pl.needs.NeededColumn(
                "smiles", "text", tuple(s for s, _, _ in EXAMPLES), "the molecule"
            ),
            pl.needs.NeededColumn(
                "demonstration",
                "text",
                tuple(
                    f"<think>{t}</think><answer>{'True' if a == '1' else 'False'}</answer>"
                    for _, a, t in EXAMPLES
                ),
                "a chain of thought with the answer, of an expert or a larger model",
                otherwise="a teacher writes it, or imitate=False leaves the first stage out",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "teacher",
                "teacher",
                "writes the chains of thought that are imitated first; it is shown the answer",
                inert=None,
                example="endpoint(url='http://HOST:PORT/v1',model='NAME')",
                otherwise="the column `demonstration` is imitated",
            ),
        ),
        shows="chemistry",
        off={"chemistry": 0.0},
        own={
            "exam": 0,
            "neighbours": 1,
            "imitation.schedule.prompts": 4,
            "rl.schedule.prompts": 2,
            "rl.collect.links.0.n": 2,
        },
    ),
    use="It helps where a property follows from what RDKit can compute or find, a model knows these words, and reasons "
    "are asked for; where only accuracy counts, fingerprints with a random forest are cheaper.",
    lacks=(
        "The 16,000 trajectories and the eight data sets are not there: bring a table, and trajectories or a teacher.",
        "Without --data the property is computed from three descriptors of real molecules, the drawing is not "
        "shown, and a program writes the chains of thought: nothing there is about chemistry or medicine.",
        "One property in each table: the comparison of training properties with others is another `palaestra "
        "evaluate`.",
        "Numbers that a thought states (a weight, a logP) are not checked.",
        "A claim is read by words: one that nearly all molecules satisfy pays as well as another. `information` "
        "of the evaluator is 0 where every molecule is said to be the same.",
        "Several teachers are named one a run; which of their chains of thought is best is not judged.",
    ),
    grade="B",
)
WRITE = (
    "{prompt}\n\nThe right answer is {answer}. Write a chain of thought that leads to it, as if you had not been told, "
    "in the form above."
)


def build(
    neighbours: int = 4,
    picture: int = 0,
    positive: str = "",
    teacher: pl.Source | None = None,
    notes: str = "",
    imitate: bool = True,
    reasoning: float = 0.25,
    chemistry: float = 0.25,
    gated: bool = True,
    checks: Checks = "strict",
    samples: int = 8,
    kl: float = 0.01,
    minibatches: int = 2,
    exam: int = 64,
) -> pl.Pipeline:
    """Args:
    neighbours: similar training molecules in a prompt; 0 = none.
    picture: pixels of a side of the drawing in the prompt, for a model that sees pictures; 0 = none.
    positive: the answer that is True; "" = 1, yes, true, high, active, positive or good, else the last one.
    teacher: a language model that writes the chains of thought.
    notes: a file of an expert's notes on the property, which the teacher is shown.
    imitate: whether chains of thought are imitated first.
    reasoning, chemistry: what each term of these layers is worth; 0 = the layer is off.
    gated: whether a wrong answer earns nothing but -1.
    checks: how claims are read: strict (none may be wrong), sound (right ones outnumber wrong ones) or released.
    minibatches: optimiser steps of a step of RL.
    exam: held-out molecules that are measured; 0 = none.
    """
    pl.check_bounds("mppreasoner: samples", samples, least=2)
    write = WriteMoleculeQuestions(neighbours, positive, picture)
    reward = PrincipleReward(reasoning, chemistry, gated, checks)
    return pipeline(write, reward, teacher, notes, imitate, samples, kl, minibatches, exam)


def pipeline(
    write: WriteMoleculeQuestions,
    reward: PrincipleReward,
    teacher: pl.Source | None = None,
    notes: str = "",
    imitate: bool = True,
    samples: int = 8,
    kl: float = 0.01,
    minibatches: int = 2,
    exam: int = 64,
) -> pl.Pipeline:
    """Prompts, imitation and RL."""
    measured = {"molecules": MoleculeExam(exam)} if exam else {}
    write = replace(write, demonstrated=imitate and teacher is None)
    parts = {"prompts": pl.Part(write)}
    data = pl.Output("prompts", "questions")
    start = None
    if imitate:
        sft = imitation(teacher, notes, reward, measured, still=bool(write.picture))
        parts["imitation"] = pl.Part(sft, data=pl.Output("prompts", "trajectories"))
        start = pl.Output("imitation")
    parent = pl.recipe("grpo", kl=kl)
    learned = pl.vary(
        parent,
        collect=pl.links(pl.Sample(n=samples), pl.Score(reward=reward)),
        credit=pl.chain(ChemistryShare(), pl.Center("group"), pl.Scale("group")),
        update=pl.Plain(minibatches=minibatches),
        evaluate=measured,
    )
    parts["rl"] = pl.Part(learned, model=start, data=data)
    return pl.Pipeline(parts=parts)


def imitation(
    teacher: pl.Source | None,
    notes: str,
    reward: PrincipleReward,
    measured: Mapping[str, MoleculeExam],
    *,
    still: bool,
) -> pl.Recipe:
    """Imitates chains of thought. `still`: the part of the model that sees does not learn."""
    draw: Any = pl.Shuffled()
    if teacher is not None:
        known = f"Notes of an expert:\n{read_notes(notes)}\n\n" if notes else ""
        ask = known.replace("{", "{{").replace("}", "}}") + WRITE
        draw = pl.curriculum.WrittenColumn(
            "demonstration", ask, (teacher,), solved=True, tries=4, source=draw
        )
    elif notes:
        raise pl.UserError("mppreasoner: `notes` are for the teacher; name one, teacher=...")
    return pl.vary(
        pl.recipe("sft"),
        draw=draw,
        collect=pl.links(pl.Demonstrate(), CheckTrajectories(reward)),
        credit=pl.chain(ChemistryShare()),
        references=pl.curriculum.frozen_starts(teacher),
        evaluate=measured,
        **({"rates": {"tower": 0.0}} if still else {}),
    )


def read_notes(notes: str) -> str:
    path = Path(notes).expanduser()
    if not path.is_file():
        raise pl.UserError(f"mppreasoner: there is no file notes={notes}")
    return path.read_text(encoding="utf-8").strip()


def embedded(
    neighbours: int = 2,
    positive: str = "",
    reasoning: float = 0.25,
    chemistry: float = 0.25,
    gated: bool = True,
    checks: Checks = "strict",
    most: int = 400,
    samples: int = 6,
    **options: Any,
) -> pl.Pipeline:
    """On molecules of RDKit's package, with short prompts and chains of thought that a program writes."""
    author = None if options.get("teacher") is not None else WriteThoughts()
    write = WriteMoleculeQuestions(
        neighbours, positive, ask="{shown}{question}", shown="{rows}\n", most=most, author=author
    )
    reward = PrincipleReward(reasoning, chemistry, gated, checks)
    made = pipeline(write, reward, samples=samples, **options)
    few = {
        "imitation": {
            "schedule": pl.Schedule(prompts=16, steps=100),
            "optimiser": pl.AdamW(lr=1e-3, warmup=5),
        },
        "rl": {"schedule": pl.Schedule(prompts=8, steps=24), "optimiser": pl.AdamW(lr=2e-4)},
    }
    return pl.Pipeline(
        parts={
            name: replace(part, runnable=pl.vary(part.runnable, **few[name]))
            if name in few
            else part
            for name, part in made.parts.items()
        }
    )
