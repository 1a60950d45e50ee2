"""I have pairs: of two answers to a prompt, which one people prefer. Here they prefer the one that shows its steps."""

from pathlib import Path
from statistics import fmean

import pytest
from palaestra.toys.chain import ArithmeticChain

from tests.errands.shell import episodes, palaestra, summary, train, write_rows

RM_PPO = """
import palaestra as pl


def build():
    reward = pl.Learner(credit=pl.Compare(), objective=pl.BradleyTerry(center=0.01), heads=("score",))
    model = pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Recorded()),
        learners={"reward": reward},
        schedule=pl.Schedule(prompts=8, steps=10),
        optimiser=pl.AdamW(lr=1e-3),
    )
    policy = pl.vary(
        pl.recipe("ppo", kl=0.05),
        collect=pl.links(pl.Sample(n=4), pl.Score(reward=pl.Learned("judge"))),
        schedule=pl.Schedule(prompts=4, steps=3),
    )
    return pl.Pipeline(
        parts={
            "rm": pl.Part(model, data="pairs.jsonl"),
            "rl": pl.Part(policy, data="problems.jsonl", models={"judge": pl.Output("rm", "reward")}),
        }
    )
"""
HELD_OUT = 16


@pytest.fixture(scope="module", autouse=True)
def files(folder):
    chain = ArithmeticChain(operands=(3, 4))
    problems = [chain.task("train", i) for i in range(100)]
    asked = [
        {"prompt": p.prompt[-1].content, "split": "test" if i < HELD_OUT else "train"} for i, p in enumerate(problems)
    ]
    worked = ["\n".join([*chain.steps(p), f"= {p.answer}"]) for p in problems]
    pairs = zip(asked, worked, problems, strict=True)
    write_rows("pairs.jsonl", [{**a, "chosen": w, "rejected": f"= {p.answer}"} for a, w, p in pairs])
    write_rows("problems.jsonl", [{**a, "answer": p.answer} for a, p in zip(asked, problems, strict=True)])
    Path("rm_ppo.py").write_text(RM_PPO)


def test_a_reward_model_and_ppo_against_it(files):
    """The reward model is judged by held-out pairs, the policy by its answers, and neither by the other's measure."""
    said = train(f"rm_ppo.py --evaluate {HELD_OUT} --max-tokens 40 --out runs/rm-ppo")
    parts = summary("runs/rm-ppo")["parts"]
    assert [k for k in parts["rm"] if k.endswith("_after")] == ["ranking_after", "margin_after"]
    ranking, margin = parts["rm"]["ranking_after"], parts["rm"]["margin_after"]
    assert ranking["n"] == margin["n"] == HELD_OUT and ranking["mean"] > 0.9 and margin["low"] > 0
    assert said.line("part rm: held-out pairs ranked right after").startswith(f"{100 * ranking['mean']:.1f}%")
    assert [k for k in parts["rl"] if k.endswith("_after")] == ["accuracy_after"]
    assert said.line("part rl: held-out accuracy after").startswith(
        f"{100 * parts['rl']['accuracy_after']['mean']:.1f}%"
    )
    # what PPO was paid is that model's score: it pays steps
    rewards = {True: [], False: []}
    for e in episodes("runs/rm-ppo/rl"):
        rewards["\n" in e["text"].strip()].append(e["reward"])
    assert fmean(rewards[True]) > fmean(rewards[False]) + 0.1, rewards
    # what to type with the whole folder is said
    wrong = palaestra("eval --model runs/rm-ppo --data problems.jsonl")
    assert wrong.status == 2 and wrong.err.strip().endswith("; runs/rm-ppo/rl/checkpoints/step-3 is one")


def test_dpo(files):
    """The same pairs without a reward model. Nothing says what is right, so no accuracy is printed, and no command that
    would ask for one.
    """
    said = train(f"dpo pairs=data --data pairs.jsonl --steps 6 --evaluate {HELD_OUT} schedule.prompts=8 --out runs/dpo")
    result = summary("runs/dpo")
    assert [k for k in result if k.endswith("_after")] == ["ranking_after", "margin_after"]
    assert result["margin_before"]["mean"] == 0  # the policy is its own reference at first
    assert result["ranking_after"]["mean"] > 0.9 and result["margin_after"]["low"] > 0
    assert said.line("held-out pairs ranked right after").startswith(f"{100 * result['ranking_after']['mean']:.1f}%")
    assert "accuracy" not in said.out and "palaestra eval" not in said.out
    assert "palaestra eval" not in Path("runs/dpo/report.html").read_text()


def test_pairs_without_a_side_are_named(files):
    write_rows("half.jsonl", [{"prompt": f"{n}+1", "chosen": "= 1"} for n in range(20)])
    said = palaestra("train dpo pairs=data --data half.jsonl --out runs/half")
    assert said.status == 2 and not Path("runs/half").exists()
    assert (
        said.err
        == "palaestra: half.jsonl:1: a pair has chosen and rejected, and this no 'rejected'; it has prompt, chosen (also "
        "half.jsonl:2 and half.jsonl:3). 17 more records are at fault\n"
    )
