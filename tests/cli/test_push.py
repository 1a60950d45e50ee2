"""A pushed model is what was trained, its card what was measured; nothing else leaves the machine."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import ModelCard
from palaestra.cli import main as cli
from palaestra.cli import push
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.settings.fields import Settings
from palaestra.store.folder import read_run
from palaestra.view.model_card import command, model_card, settings_of
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.hub_server import hub

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"
MODEL = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}
MODEL |= {"chat_template.jinja", "README.md"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of three steps, measured in between; its adapters name a folder of this machine."""
    folder = tmp_path_factory.mktemp("push") / "my-run"
    words = [
        "train",
        "grpo",
        "--smoke",
        "--merged",
        "--lora",
        "2",
        "--evaluate",
        "4",
        "--seed",
        "3",
        "--evaluate-every",
        "1",
    ]
    assert cli.main([*words, "kl=0.1", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def push_to(monkeypatch, capfd):
    """The command with the real client, told where the hub is: status, standard output, error."""

    def call(known, *words, token=TOKEN, offline=False):
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", os.devnull)
        for api in (huggingface_hub.hf_api.api, huggingface_hub.whoami.__self__):
            monkeypatch.setattr(api, "endpoint", known.url)
        monkeypatch.setenv("HF_TOKEN", token)
        status = cli.main(["push", *map(str, words)])
        return status, *capfd.readouterr()

    return call


def test_the_hub_gets_the_model_and_nothing_else(run, push_to):
    with hub(TOKEN) as known:
        status, out, err = push_to(known, run, "--private", "--json")
    assert status == 0, err
    told = json.loads(out.splitlines()[-1])
    assert told["url"] == f"{known.url}/ada/my-run" and told["repo"] == "ada/my-run" and told["step"] == 2
    assert known.created["name"] == "my-run"
    assert known.created.get("private") is True or known.created.get("visibility") == "private"
    assert set(known.files) == set(told["files"]) == MODEL
    saved = run / "checkpoints" / "step-2"
    for name in ("model.safetensors", "tokenizer.json", "chat_template.jinja"):
        assert known.files[name] == (saved / name).read_bytes()
    everything = b"".join(known.files.values())
    for secret in (str(run), str(Path.home()) + "/", TOKEN, "optimisers"):
        assert secret.encode() not in everything
    assert TOKEN not in out + err


def test_a_pushed_model_loads(run, push_to, tmp_path):
    with hub(TOKEN) as known:
        status, _, err = push_to(known, run / "checkpoints" / "step-1", "team/other")
    assert status == 0, err
    assert known.created["organization"] == "team"
    assert known.created.get("private") is None and known.created.get("visibility") is None
    for name, content in known.files.items():
        (tmp_path / name).write_bytes(content)
    weights = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    for name, tensor in load_file(run / "checkpoints" / "step-1" / "model.safetensors").items():
        assert (weights[name] == tensor).all()
    assert load(str(tmp_path)).tokenizer("1").input_ids == load("tiny").tokenizer("1").input_ids


@pytest.mark.parametrize(
    ("refuse", "token", "offline", "status", "says"),
    [
        ({}, "hf_wrong_one", False, 2, "does not know you; set HF_TOKEN"),
        ({}, "", False, 2, "does not know you; set HF_TOKEN"),
        ({}, TOKEN, True, 2, "HF_HUB_OFFLINE is set"),
        ({"/api/repos/create": 403}, TOKEN, False, 2, "push to team/x: "),
        ({"/api/models/team/x/commit": 501}, TOKEN, False, 1, "hub: push to team/x: "),
    ],
)
def test_what_the_hub_refuses_is_said_in_a_line(run, push_to, refuse, token, offline, status, says):
    with hub(TOKEN, refuse) as known:
        found, out, err = push_to(known, run, "team/x", token=token, offline=offline)
    lines = [line for line in err.splitlines() if line.startswith("palaestra: ")]
    assert found == status and len(lines) == 1 and says in lines[0], err
    assert TOKEN not in out + err and not known.files


def test_a_token_in_an_error_is_taken_out(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert push.secret_free(f"bad {TOKEN}!") == "bad HF_TOKEN!"
    monkeypatch.setenv("HF_TOKEN", "")
    assert push.secret_free("fine") == "fine"


def test_a_model_that_sees_goes_with_its_processor(run, monkeypatch, tmp_path, capsys):
    shutil.copytree(run / "checkpoints" / "step-2", tmp_path / "sees")
    for name in ("processor_config.json", "preprocessor_config.json"):
        (tmp_path / "sees" / name).write_text(json.dumps({"size": 9, "_name_or_path": "/here"}))
    sent = push.contents(tmp_path / "sees")
    assert json.loads(sent["processor_config.json"]) == json.loads(sent["preprocessor_config.json"]) == {"size": 9}
    found = push.find(run)
    monkeypatch.setattr(push, "find", lambda _: replace(found, model=tmp_path / "sees"))
    assert cli.main(["push", str(run), "--dry-run", "--json"]) == 0
    card = json.loads(capsys.readouterr().out.splitlines()[-1])["card"]
    assert "pipeline_tag: image-text-to-text" in card and "CausalLM" not in card and "AutoTokenizer" not in card
    assert '\nprocessor = AutoProcessor.from_pretrained("my-run")\n' in card
    assert '\nmodel = AutoModelForImageTextToText.from_pretrained("my-run")\n' in card
    (tmp_path / "sees" / "processor_config.json").write_text(json.dumps({"feature_extractor": {}}))
    assert cli.main(["push", str(run), "--dry-run", "--json"]) == 0
    card = json.loads(capsys.readouterr().out.splitlines()[-1])["card"]
    assert "pipeline_tag: audio-text-to-text" in card and "AutoProcessor" in card
    assert '\nmodel = AutoModelForMultimodalLM.from_pretrained("my-run")\n' in card


# ---- the card


def test_a_dry_run_sends_nothing(run, capsys):
    assert cli.main(["push", str(run), "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["sent"] is False and set(told["files"]) == MODEL and "url" not in told
    assert cli.main(["push", str(run), "--dry-run"]) == 0
    assert told["card"] in capsys.readouterr().out


def test_the_card_says_what_was_measured(run):
    found = read_run(run)
    summary = {
        **found.summary,
        "accuracy_before": {"mean": 0.25, "low": 0.21, "high": 0.29, "n": 512},
        "accuracy_after": {"mean": 0.9875, "low": 0.97, "high": 0.995, "n": 512},
        "caveat": "37 of the held-out problems are also drawn in training",
    }
    text = model_card(replace(found, summary=summary), 2, "ada/my-run")
    card = ModelCard(text)
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_name) == (
        "accuracy",
        0.9875,
        "chain",
    )
    assert "95% interval 0.9700 to 0.9950, n = 512" in result.metric_name
    assert card.data.library_name == "transformers" and card.data.tags == [
        "palaestra",
        "grpo",
        "reinforcement-learning",
    ]
    assert (
        "| before training | 25% | 21% to 29% | 512 |" in text
        and "| after training | 98.8% | 97% to 99.5% | 512 |" in text
    )
    assert "Better, beyond what chance explains" in text and "one run with one seed" in text
    assert "Mind that 37 of the held-out problems are also drawn in training." in text
    assert "https://arxiv.org/abs/2402.03300" in text and summary["weights_sha256"] in text
    words = "--lora 2 --steps 2 --evaluate 4 --evaluate-every 1 --seed 3 kl=0.1 collect.links.0.n=2 schedule.prompts=2"
    assert f"\npalaestra train grpo {words}\n" in text


def test_a_number_of_another_step_is_not_the_model_s(run):
    found = read_run(run)
    measured = dict(found.evaluations)
    changed = replace(found, evaluations=[(at, replace(e, mean=0.5 + at / 10)) for at, e in measured.items()])
    text = model_card(changed, 1, "ada/x")
    assert "| after training | 60% |" in text and "step 1 of 2" in text and found.summary["weights_sha256"] not in text
    unmeasured = replace(changed, evaluations=[e for e in changed.evaluations if e[0] != 1])
    text = model_card(unmeasured, 1, "ada/x")
    assert "after training" not in text and "whether the model became better is not known" in text
    assert not ModelCard(text).data.eval_results
    stopped = model_card(replace(unmeasured, summary={}), 1, "ada/x")
    assert "the run had not ended" in stopped
    other = replace(unmeasured, summary={**found.summary, "accuracy_before": {}})  # it went on with another problem
    assert "before training" not in model_card(other, 1, "ada/x")


def test_a_mean_reward_is_no_accuracy(run):
    found = read_run(run)
    reward = {"reward_before": {"mean": -0.5, "low": -0.6, "high": -0.4, "n": 9}}
    reward["reward_after"] = {"mean": 0.25, "low": 0.1, "high": 0.4, "n": 9}
    kept = {k: v for k, v in found.summary.items() if not k.startswith("accuracy")}
    text = model_card(replace(found, of="reward", summary={**kept, **reward}), 2, "ada/x")
    assert "| Mean held-out reward |" in text and "| before training | −0.5 | −0.6 to −0.4 | 9 |" in text
    assert not ModelCard(text).data.eval_results


def test_the_command_names_no_folder(run, tmp_path, monkeypatch):
    (tmp_path / "r.py").write_text(
        "from palaestra.recipes.base import grpo\n\n\ndef build(where: str = ''):\n    return grpo.build()\n"
    )
    settings = replace(
        settings_of(read_run(run)),
        recipe=str(tmp_path / "r.py"),
        model=str(tmp_path),
        data=f"{tmp_path}/my problems.jsonl",
        reward=f"{tmp_path}/score.py:score",
        set={"where": f"{tmp_path}/there"},
    )
    told = command(settings)
    assert told.startswith("palaestra train r.py --data 'my problems.jsonl' --reward score.py:score --model ")
    assert str(tmp_path.parent) not in told and told.endswith("where=there")
    assert command(replace(settings, recipe=str(tmp_path / "gone.py"))) == ""
    monkeypatch.setattr(Settings, "precision", "float32")  # elsewhere than on some processors
    for model in ("smollm2", "ada/base"):
        told = command(replace(Settings(), model=model, recompute=True))
        assert told == f"palaestra train grpo --model {model} --recompute --seed 0"


def test_a_path_that_would_leave_the_machine_stops_it(run, tmp_path, capsys):
    told = tmp_path / "told"
    shutil.copytree(run, told)
    summary = json.loads((told / "summary.json").read_text())
    (told / "summary.json").write_text(json.dumps({**summary, "caveat": f"see {told}/notes"}))
    assert cli.main(["push", str(told), "--dry-run"]) == 2
    assert "README.md names" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"README\.md names .* of this machine"):
        push.check_paths({"README.md": f"see {run.resolve()}/x".encode()}, run)
    push.check_paths({"README.md": b"see runs/x"}, run)
    settings = json.dumps({"model_type": "llama", "_name_or_path": str(run), "is_local": True})
    (tmp_path / "config.json").write_text(settings)
    assert json.loads(push.clean_config(tmp_path / "config.json")) == {"model_type": "llama"}


# ---- which model


def test_parts_and_learners_of_a_run(tmp_path, capsys):
    """Of a pipeline the last part's model; of several learners the policy."""
    place = tmp_path / "pipe"
    assert cli.main(["train", "sft-grpo", "--smoke", "--evaluate", "4", "--out", str(place)]) == 0
    whole, part = push.find(place), push.find(place / "rl" / "checkpoints" / "step-1")
    assert whole.model == (place / "rl" / "checkpoints" / "step-2").resolve() and whole.run.parts
    assert part.step == 1 and part.run.config["recipe"] == "sft-grpo"
    capsys.readouterr()
    assert cli.main(["push", str(place / "rl"), "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["repo"] == "pipe-rl" and "of the part `rl` of a pipeline" in told["card"]
    saved = tmp_path / "saved"
    for name in ("policy", "critic"):
        shutil.copytree(part.model, saved / name)
    assert push.learner(saved) == saved / "policy"
    shutil.move(saved / "policy", saved / "second")
    with pytest.raises(UserError, match="name one of its models"):
        push.learner(saved)


def test_what_is_no_model_is_said(run, tmp_path, capsys):
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    (broken / "checkpoints" / "step-2" / "model.safetensors").write_bytes(b"x")
    cases = {
        tmp_path / "none": "no such folder",
        tmp_path: "is not a run folder",
        broken / "checkpoints" / "step-2": "the checkpoint is damaged: model.safetensors has 1 bytes",
    }
    for folder, says in cases.items():
        assert cli.main(["push", str(folder), "--dry-run"]) == 2
        assert says in capsys.readouterr().err
    assert push.find(broken).step == 1  # the newest whole one
    shutil.rmtree(broken / "checkpoints")
    assert cli.main(["push", str(broken), "--dry-run"]) == 2 and "it has no checkpoint" in capsys.readouterr().err
