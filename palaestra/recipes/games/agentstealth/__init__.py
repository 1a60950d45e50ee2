"""AgentStealth: a small model learns to rewrite texts so that it cannot guess itself who wrote them. Three
stages:

    workflow   a teacher rewrites, an attacker guesses each attribute three times, and it goes on by what was
               guessed, with lessons from rewrites that hid something and that did not (`workflow`)
    sft        the small model imitates the selected rewrites and what the attacks guessed right
    rl         GRPO on the rewrites: R = (P + U) / 2 (`privacy`), where the attacker is the model itself, as it
               is now, at temperature 0.7

    palaestra train agentstealth --data profiles.jsonl --model DIR teacher="endpoint(url='http://HOST:PORT/v1',model='NAME')"
    palaestra train agentstealth --data profiles.jsonl --model DIR rounds=0      (rl alone)
    palaestra train agentstealth --data profiles.jsonl --model DIR attacker=DIR2 judge=DIR3 floor=0.5

A row is {"prompt": "the text", "attributes": {"city": "Oslo", "age": 34}}: what is known of its author, for the
attacker's guesses to be compared with; the model that rewrites is not shown it. (tsinghua-fib-lab/AgentStealth.)
Use it on texts whose authors agree, or on made-up ones; the attacker is a means to test rewrites, and no tool to
look for people.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.games.agentstealth.roles import (
    HIDDEN,
    INSTRUCTION,
    Attacker,
    JudgeByModel,
    JudgeByRule,
    StealthExam,
    StealthReward,
    fill,
)
from palaestra.recipes.games.agentstealth.toy import SAMPLE, ShowRoles, WriteProfiles
from palaestra.recipes.games.agentstealth.workflow import StealthWorkflow

CARD = pl.Card(
    title="AgentStealth: adversarial anonymisation",
    paper="arXiv:2506.22508",
    claim="A small model that runs on a device, trained by imitation of a workflow of attacks and rewrites and then by "
    "its own attacks, hides more of its users' attributes and keeps more of their texts than anonymisers before.",
    source="abstract; weights of the guesses, R, the alignment of lines and the sampling of the attack as in the released "
    "code (tsinghua-fib-lab/AgentStealth, rl/train.py and rl/function.py)",
    size=pl.Size(
        setting="Llama-3.1-8B-Instruct; LoRA r=8, lr 1e-4, 3 epochs of imitation, then LoRA r=16, lr 1e-4, two "
        "rewrites a text, 200 steps, 1,024 new tokens",
        model="llama-3.1-8b",
        lr=1e-4,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("I sail the fjord to work.", "My vines froze again.", "Class was loud today."),
                "a text of one author",
            ),
            pl.needs.NeededColumn(
                "attributes",
                "record",
                ({"city": "Oslo", "age": 34}, {"job": "winemaker"}, {"job": "teacher"}),
                "what is to be hidden of its author, by name",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "teacher",
                "teacher",
                "rewrites in the workflow",
                inert=None,
                otherwise="the run's model rewrites",
            ),
            pl.needs.NeededModel(
                "attacker",
                "attacker",
                "guesses the attributes",
                inert=None,
                otherwise="the model itself guesses, as it is at that step",
            ),
            pl.needs.NeededModel(
                "examiner",
                "examiner",
                "guesses the attributes of held-out profiles, and takes no part in training",
                inert=None,
                otherwise="the attacker does",
            ),
            pl.needs.NeededModel(
                "judge",
                "judge",
                "says whether a guess is right, where the rule says no",
                inert=None,
                otherwise="the rule says it: the same words, or a number within 5",
            ),
        ),
        shows="part/attack",
        off={"adversarial": False},
        own={
            "rounds": 0,
            "exam": 2,
            "endpoint": "city: Rome; Paris; Bergen\nage: 20; 50; 70\njob: cook; smith; nurse\nno",
            "schedule.prompts": 4,
            "samples": 2,
            "max_tokens": 12,
        },
    ),
    use="It helps where texts are to be passed on without their authors' attributes, and a small model has to do it "
    "locally; utility can outweigh privacy in the reward, so look at part/first_guess, and set a floor.",
    lacks=(
        "The two data sets of the paper and its baselines are not here, and no comparison with them.",
        "Held-out profiles are attacked by the attacker of the run; name an examiner=DIR2 that took no part in "
        "training, or what they show may be how to mislead this attacker.",
        "On the built-in authors 20 steps raised R of 24 held-out rewrites from 0.65 to 0.85 and P from 0.32 to 0.84, and "
        "lowered U from 0.98 to 0.86; the attacker's first guess was right of 83% of them before and of 8% after (one seed). "
        "Chance is 25%, and the attacker is the model itself: part of this is an attacker that is misled. Since then guesses are "
        "read in more forms, and these numbers were not taken again.",
        "The wording of all questions, and how lessons gain and lose, are ours. The released code shows the attacker's "
        "inferences to the small model too, and lets the attacker reason first; here the workflow's teacher alone sees them, "
        "and the attacker only guesses.",
        "The released code imitates every attack of the workflow, and leaves attributes without a guess out of the mean; here "
        "the lines of an attack whose first guess is right are imitated, and an attribute without a guess counts as not hidden.",
        "Who may be hurt by a failed rewrite is not weighed: each attribute counts alike.",
    ),
    grade="B",
)

EXAM = 24  # made-up authors that are held out


def build(
    teacher: pl.Source | None = None,
    attacker: pl.Source | None = None,
    judge: pl.Source | None = None,
    adversarial: bool = True,
    floor: float = 0.0,
    rounds: int = 5,
    profiles: int = 64,
    drop: float = 0.075,
    memory: bool = True,
    samples: int = 4,
    hidden: str = "",
    imitate: int = 40,
    examiner: pl.Source | None = None,
    exam: int = 64,
) -> pl.Pipeline:
    """`rounds` 0 leaves out the workflow and its imitation, of `imitate` steps. `floor` of P, below which utility
    does not count. `exam` held-out profiles measure it, attacked by the `examiner`, or else the attacker. `hidden`
    names what the model is asked to hide, in words. Two `samples`, as in the paper, make
    every advantage of a group plus or minus one.
    """
    pl.check_bounds("agentstealth: rounds", rounds, least=0)
    pl.check_bounds("agentstealth: profiles", profiles, least=1)
    pl.check_bounds("agentstealth: samples", samples, least=2)
    pl.check_bounds("agentstealth: floor", floor, least=0, most=1)
    same_value = JudgeByRule() if judge is None else JudgeByModel(judge)
    attack = Attacker(attacker or pl.LocalModel(), same_value)
    asked = fill(INSTRUCTION, {"hidden": hidden or HIDDEN})
    examined = StealthReward(Attacker(examiner or attack.source, same_value), floor)
    measure = StealthExam(examined, exam) if exam else None
    rl = learned(StealthReward(attack, floor, adversarial), samples, asked, measure)
    if not rounds:
        return pl.Pipeline(parts={"rl": pl.Part(rl)})
    workflow = StealthWorkflow(
        teacher or pl.LocalModel(), attack, asked, profiles, rounds, drop, memory
    )
    sft = pl.vary(
        pl.recipe("sft"),
        optimiser=pl.AdamW(lr=1e-4),
        schedule=pl.Schedule(prompts=16, steps=imitate),
    )
    return pl.Pipeline(
        parts={
            "workflow": pl.Part(workflow),
            "sft": pl.Part(sft, data=pl.Output("workflow", "selected")),
            "rl": pl.Part(rl, model=pl.Output("sft")),
        }
    )


def learned(
    reward: StealthReward,
    samples: int,
    instruction: str,
    exam: StealthExam | None,
    **more: Any,
) -> pl.Recipe:
    """GRPO on rewrites, measured on held-out profiles."""
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=samples), pl.Score(reward=reward)),
        instruction=instruction,
        evaluate={"profiles": exam} if exam else {},
        **more,
    )


def embedded(
    adversarial: bool = True,
    floor: float = 0.0,
    samples: int = 6,
    imitate: int = 150,
    steps: int = 20,
) -> pl.Pipeline:
    """On made-up authors and their stones. The built-in model is shown both roles for `imitate` steps, rewriting as often
    as copying, and then learns by its own attacks; held-out texts are rewritten as they are sampled in training.
    """
    shows = pl.vary(
        pl.recipe("sft"),
        collect=ShowRoles(),
        schedule=pl.Schedule(prompts=16, steps=imitate),
        optimiser=pl.AdamW(lr=2e-3, warmup=5),
    )
    reward = StealthReward(Attacker(template=SAMPLE), floor, adversarial)
    rl = learned(
        reward,
        samples,
        "",
        StealthExam(StealthReward(reward.attacker, floor), EXAM, temperature=1.0),
        schedule=pl.Schedule(prompts=8, steps=steps),
        optimiser=pl.AdamW(lr=2e-4),
    )
    profiles = pl.Output("written", "profiles")
    return pl.Pipeline(
        parts={
            "written": pl.Part(WriteProfiles()),
            "shown": replace(pl.warm(shows), data=profiles),
            "rl": pl.Part(rl, model=pl.Output("shown"), data=profiles),
        }
    )
