"""I have problems with worked answers, as GSM8K has them, and a small model that gets some of them right."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from palaestra.toys.chain import ArithmeticChain

from tests.errands.shell import episodes, palaestra, steps, summary, train, write_rows

DATA = "--data train.jsonl --test-data test.jsonl --columns question=prompt,answer=####"
HELD_OUT = 48
FEW = "--evaluate 0 schedule.prompts=2 sample.n=2"  # a step of four answers


def row(split, i):
    """{"question": "4+7 mod 10", "answer": "4+7 = <<4+7=1>>1\\n#### 1"}"""
    problem = ArithmeticChain().task(split, i)
    lines = [re.sub("(.*)=(.*)", r"\1 = <<\1=\2>>\2", line) for line in ArithmeticChain().steps(problem)]
    return {"question": problem.prompt[-1].content, "answer": "\n".join([*lines, f"#### {problem.answer}"])}


def without_clocks(lines):
    return [{k: v for k, v in x.items() if k != "tokens_per_second" and not k.startswith("seconds")} for x in lines]


@pytest.fixture(scope="module", autouse=True)
def problems(folder):
    pytest.importorskip("peft")
    write_rows("train.jsonl", [row("train", i) for i in range(200)])
    write_rows("test.jsonl", [row("test", i) for i in range(HELD_OUT)])


@pytest.fixture(scope="module")
def gsm(problems):
    """What the command of the first errand said; its run is runs/gsm."""
    small = "schedule.prompts=8 sample.n=4 optimiser.lr=3e-3"
    return train(f"{DATA} --lora 16 --steps 8 --max-tokens 48 {small} --out runs/gsm")


def test_train_adapters_on_problems_like_gsm8k(gsm):
    """My answers end in `#### 18`, and the whole model does not fit: I train adapters, and want to see that it gets
    better on problems that it was not trained on.
    """
    result = summary("runs/gsm")
    before, after = result["accuracy_before"], result["accuracy_after"]
    assert before["n"] == after["n"] == HELD_OUT
    assert before["high"] < after["low"], (before, after)  # beyond chance
    assert gsm.line("held-out accuracy after").startswith(f"{100 * after['mean']:.1f}%")
    assert "reward" not in gsm.out
    # what was compared is what stands behind the marker, and nothing else of the working
    golds = {e["answer"] for e in episodes("runs/gsm")}
    assert golds <= set("0123456789") and len(golds) > 5
    assert all(e["reward"] == e["solved"] for e in episodes("runs/gsm"))
    assert len(steps("runs/gsm")) == 8 and {"report.html", "curve.png"} <= {p.name for p in Path("runs/gsm").iterdir()}


def test_pass_at_8(gsm):
    """How often is one of eight tries right, and is that number more than noise? The line to type is the one that the
    run printed.
    """
    inspect = gsm.line("inspect")
    assert inspect.endswith("--k 8") and "--test-data test.jsonl" in inspect
    said = palaestra(shlex.join([*shlex.split(inspect)[1:], "--n", "8", "--json"]))
    assert said.status == 0, said.err
    found = json.loads(said.out.splitlines()[-1])
    rates = [found[name] for name in ("pass@1", "pass@2", "pass@4", "pass@8", "maj@8", "greedy")]
    assert all(0 <= x["low"] <= x["mean"] <= x["high"] <= 1 and x["n"] == 8 for x in rates)
    assert all(x["of"] == "accuracy" and x["low"] < x["high"] for x in rates)
    assert found["pass@1"]["mean"] <= found["pass@2"]["mean"] <= found["pass@4"]["mean"] <= found["pass@8"]["mean"]
    assert found["pass@8"]["mean"] > 0.5
    # the same numbers for people, on the model that nobody trained
    table = palaestra(f"eval --model tiny {DATA} --max-tokens 48 --n 8 --k 2")
    percents = re.findall(r"pass@\d +([\d.]+)%  \(95%: ([\d.]+) to ([\d.]+)\)", table.out)
    assert len(percents) == 2 and "maj@2" in table.out and "greedy, accuracy" in table.out
    assert all(0 <= float(low) <= float(mean) <= float(high) <= 100 for mean, low, high in percents)


def test_take_the_trained_model_elsewhere(gsm):
    """I want the adapters merged into the weights, and load the folder with transformers alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = gsm.line("model")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert not hasattr(model, "peft_config") and not any("lora" in name for name, _ in model.named_parameters())
    right = 0
    for problem in [row("test", i) for i in range(8)]:
        asked = [{"role": "user", "content": problem["question"]}]
        ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            made = model.generate(**ids, max_new_tokens=48, do_sample=False)[0, ids["input_ids"].shape[1] :]
        text = tokenizer.decode(made, skip_special_tokens=True)
        right += text.strip().endswith(f"= {problem['answer'].rpartition('#### ')[2]}")
    assert right >= 6, right  # the adapters are in it: the model that nobody trained gets one or two
    # checkpoints in between are adapters alone, unless I ask for whole models
    train(f"{DATA} --lora 4 --steps 2 --checkpoint-every 1 {FEW} --out runs/thin")
    train(f"{DATA} --lora 4 --steps 2 --checkpoint-every 1 --merged {FEW} --out runs/thick")
    between = {
        run: {p.name for p in Path(run, "checkpoints", "step-1").iterdir()} for run in ("runs/thin", "runs/thick")
    }
    assert "model.safetensors" not in between["runs/thin"] and "model.safetensors" in between["runs/thick"]
    assert "adapter" in between["runs/thin"] & between["runs/thick"]
    AutoModelForCausalLM.from_pretrained("runs/thick/checkpoints/step-1")
    assert summary("runs/thin")["weights_sha256"] == summary("runs/thick")["weights_sha256"]


def test_go_on_at_another_rate(problems):
    """It is still getting better: two more steps, at half the rate. Did it go on from where it was?"""
    train(f"{DATA} --lora 4 --steps 2 {FEW} optimiser.lr=1e-3 --out runs/short")
    shutil.copytree("runs/short", "runs/slower")
    slower = train("--resume runs/slower --steps 4 optimiser.lr=5e-4")
    changed = [x for x in slower.err.splitlines() if x.startswith("changed: ")]
    assert changed == ["changed: steps 2 -> 4", "changed: learners.policy.optimiser.lr 0.001 -> 0.0005"]
    assert "resuming after step 2" in slower.err
    # where nothing but the length is changed, the run is that which was never interrupted, to the bit
    train("--resume runs/short --steps 4")
    train(f"{DATA} --lora 4 --steps 4 {FEW} optimiser.lr=1e-3 --out runs/whole")
    assert summary("runs/short")["weights_sha256"] == summary("runs/whole")["weights_sha256"]
    assert summary("runs/slower")["weights_sha256"] != summary("runs/whole")["weights_sha256"]
    whole, short, slower = (without_clocks(steps(f"runs/{name}")) for name in ("whole", "short", "slower"))
    assert [x["step"] for x in whole] == [1, 2, 3, 4] and short == whole
    # the third step sampled from the same weights, and moved them at the other rate
    assert [x.pop("lr") for x in slower] == [0.001, 0.001, 0.0005, 0.0005]
    assert {x.pop("lr") for x in whole} == {0.001}
    assert slower[:3] == whole[:3] and slower[3] != whole[3]
