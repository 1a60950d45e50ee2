"""Methods at the size of their papers, built on no memory: what reaches the recipe, what it weighs, what is said."""

import importlib
import json
from dataclasses import replace

import pytest
from palaestra import catalogue, values
from palaestra.card import Size
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.planning import paper
from palaestra.settings import overrides

from tests.rows import every

FAMILIES = ("base", "objectives", "rewards")
BUILT = [e for e in catalogue.all_entries() if e.built]
SIZED = [e for e in BUILT if (size := importlib.import_module(e.module).CARD.size) and size.model]
OPEN = [e for e in BUILT if e.family in FAMILIES and e not in SIZED]
TOLD = [e for e in SIZED if importlib.import_module(e.module).CARD.size.arguments]


def size(method: str) -> Size:
    return catalogue.find(method).CARD.size


def flat(method: str) -> dict:
    return values.flatten(paper.build_at_size(method, size(method), {}))


@pytest.mark.by_row
@pytest.mark.parametrize("entry", SIZED, ids=lambda e: e.id)
def test_it_builds_at_the_size_of_its_paper(entry):
    """Models, heads and references on no memory; what is only said for other sizes is refused here."""
    found, said = paper.dry_run(entry.id), size(entry.id)
    # 16 bytes for each of 124, or 494, million weights
    least = 1 if said.model in ("gpt2", "qwen2.5-0.5b") else 10
    assert found["training_state_gb"] > 0 and found["frozen_gb"] + found["training_state_gb"] > least
    for name, given in {
        "prompts": said.prompts,
        "samples": said.samples,
        "answer_tokens": said.tokens,
        "lr": said.lr,
    }.items():
        assert not given or found[name] == given, name
    if said.answers:
        assert found["prompts"] * found["samples"] == said.answers
    text = paper.show(found)
    assert len(text.splitlines()) < 20 and max(map(len, text.splitlines())) <= 110
    assert ("not known" in text) == bool(found["unknown"])


@every("entry", TOLD, ids=lambda e: e.id)
def test_what_a_paper_sets_reaches_the_recipe_and_is_no_default(entry):
    said = size(entry.id)
    whole, takes = paper.build_at_size(entry.id, said, {}), overrides.arguments(entry.id)
    assert set(paper.settings(entry.id, said.arguments, whole)) == set(said.arguments)
    for name in said.arguments:
        less = {k: v for k, v in said.arguments.items() if k != name}
        without = paper.build_at_size(entry.id, replace(said, arguments=less), {})
        assert values.describe(without) != values.describe(whole), name
        if name not in takes:
            assert values.flatten(whole)[values.find(whole, name)] == said.arguments[name]


LEARNER = "learners.policy"


@every(
    "method, expected",
    [
        ("dr-grpo", {f"{LEARNER}.objective.length": 3000, "collect.links.0.max_tokens": 3000}),
        ("effective-rank", {f"{LEARNER}.credit.links.2.stride": 40, f"{LEARNER}.objective.parts.1.weight": 1e-3}),
        ("attention-rhythm", {f"{LEARNER}.credit.links.2.near": 10, f"{LEARNER}.credit.links.2.far": 50}),
        ("cola", {f"{LEARNER}.heads": ("latent-64",), "collect.then.links.0.n": 4}),
        ("tempo", {"collect.links.0.max_tokens": 8192, "collect.links.0.n": 7, f"{LEARNER}.update.minibatches": 8}),
        ("confucius3", {"schedule.prompts": 32, "pool.size": 32, "collect.links.0.n": 8, f"{LEARNER}.objective.length": 16384}),
        ("srpo-gream", {"schedule.prompts": 256, "pool.size": 256, "references.ref": "policy"}),
        ("tba", {"collect.links.0.n": 24, "pool.samples": 20, "pool.size": 7, "pool.fill": 500}),
        ("critique-coder", {"collect.links.0.n": 8, f"{LEARNER}.update.minibatches": 2}),
        ("igpo", {"collect.links.0.n": 16, "schedule.prompts": 32, f"{LEARNER}.objective.parts.2.weight": 1e-3}),
        ("general-reasoner", {f"{LEARNER}.objective.parts.1.weight": 1e-4, f"{LEARNER}.objective.parts.2.weight": 1e-3}),
        ("recode", {f"{LEARNER}.objective.parts.1.weight": 1e-3, f"{LEARNER}.optimiser.lr": 5e-5}),
    ],
)  # fmt: skip
def test_settings_of_papers_in_the_flattened_recipe(method, expected):
    found = flat(method)
    assert {k: found.get(k) for k in expected} == expected


def test_a_dry_run_counts():
    """DeepSeekMath: 30 layers of 4 x 4096^2 + 3 x 4096 x 11008, 2 x 102400 x 4096 for the vocabulary, 61 norms."""
    found = paper.dry_run("grpo", {"kl": "0"})
    weights = 30 * (4 * 4096**2 + 3 * 4096 * 11008) + 2 * 102400 * 4096 + 61 * 4096
    assert found["parameters"] == found["trained"] == {"policy": weights} and found["frozen"] == {"policy": 0}
    assert found["tokens_per_step"] == 16 * 64 * 1024
    assert found["pflop_per_step"] == round(8 * weights * 2**20 / 1e15, 1)
    fewer = paper.dry_run("grpo", {"schedule.prompts": "4", "collect.links.0.n": "2"})
    assert (fewer["prompts"], fewer["samples"]) == (4, 2)
    assert fewer["parameters"] == {"policy": weights, "ref": weights} and fewer["frozen_gb"] == round(
        2 * weights / 1e9, 1
    )
    assert fewer["settings"]["kl"] == {"value": 0.04, "default": 0.0}
    assert fewer["settings"]["collect.links.0.n"] == {"value": 2, "default": 8}


def test_adapters_are_trained_and_what_is_below_them_is_frozen():
    """Qwen2.5-32B: 64 layers; an adapter of rank r between m and n has r (m + n) weights. Biases are none here."""
    width, middle, keys = 5120, 27648, 8 * 128
    base = 64 * (2 * width * width + 2 * width * keys + 3 * width * middle) + 2 * 152064 * width + 129 * width
    adapters = 64 * 16 * (2 * (width + width) + 2 * (width + keys) + 3 * (width + middle))
    found = paper.dry_run("loop")
    assert found["trained"] == {"policy": adapters} and found["frozen"] == {"policy": base}
    assert found["training_state_gb"] == round(16 * adapters / 1e9, 1) == 2.1
    assert found["frozen_gb"] == round(2 * base / 1e9, 1) == 65.5
    token = 2 * (base + adapters) + 2 * (base + adapters) + 2 * base + 4 * adapters  # sampled, read, gradients
    assert found["pflop_per_step"] == round(40 * 6 * 32000 * token / 1e15, 1)


def test_a_reference_beside_adapters_takes_no_memory_of_its_own():
    found = paper.dry_run("recode")
    assert found["frozen"]["ref"] == found["trained"]["ref"] == 0 and found["frozen_gb"] == 15.2
    whole = paper.dry_run("recode", {"kl": 0.0})
    assert "ref" not in whole["parameters"] and whole["frozen_gb"] == 15.2
    assert found["pflop_per_step"] > whole["pflop_per_step"]  # but it reads
    assert "(shared, without adapters)" in " ".join(paper.show(found).split())


def test_below_a_latent_head_nothing_is_trained():
    """Codes, the inverse model's view of the vocabulary, then layers of the model's width with their biases."""
    k, d, v = 64, 896, 151936
    head = k * d + v * k + 2 * (d * k + k) + 2 * (2 * d * d + d) + 2 * (d * d + d)
    found = paper.dry_run("cola", model="qwen2.5-0.5b")
    assert found["trained"] == {"policy": head, "ref": 0}
    assert found["frozen"]["policy"] == found["frozen"]["ref"] == found["parameters"]["ref"]
    assert (
        paper.dry_run("agro", model="qwen2.5-0.5b")["trained"]["policy"] == found["frozen"]["policy"]
    )  # no run freezes another's model
    assert found["beside_gb"] == {"world and inverse model": 2.0, "policy over codes": 4.0}


@every("entry", OPEN, ids=lambda e: e.id)
def test_a_method_without_a_size_says_why_and_what_to_do(entry):
    with pytest.raises(UserError, match="so there is nothing to build") as refused:
        paper.dry_run(entry.id)
    if entry.shape == "program":
        assert f"palaestra show {entry.id}" in str(refused.value)
        return
    assert f"palaestra doctor {entry.id} --paper --model qwen2.5-7b" in str(refused.value)
    found = paper.dry_run(entry.id, model="qwen2.5-0.5b")
    assert found["unknown"] == ["prompts", "samples", "tokens", "lr"] and found["trained"]


# studies whose recipes are arms, all of which are run
OF_ARMS = {"pivot", "selftok"}
PROGRAMS = [e for e in BUILT if e.shape == "program" and e.id not in OF_ARMS]


@every("entry", [e for e in PROGRAMS if e not in SIZED], ids=lambda e: e.id)
def test_a_program_that_holds_no_recipe_says_so(entry):
    for model in ("", "qwen2.5-0.5b"):
        with pytest.raises(UserError, match="is a program that holds no recipe"):
            paper.dry_run(entry.id, model=model)


def test_a_program_that_holds_a_recipe_is_built_by_it():
    """Guru trains one recipe on each domain: what a step of it takes."""
    given = {"recipe.schedule.prompts": "4"}
    found = paper.dry_run("guru", given, model="qwen2.5-0.5b", tokens=100)
    assert (found["prompts"], found["samples"], found["answer_tokens"]) == (4, 8, 100)
    assert [name for name, n in found["trained"].items() if n] == ["policy"] and found["tokens_per_step"] == 3200
    assert found["frozen"]["weak"] > 0, "a copy of the start filters"


def test_recipes_in_a_program_take_the_size_of_the_paper():
    scaled = paper.scale_to_paper(catalogue.recipe("guru"), Size(prompts=3, samples=5, tokens=77, lr=1e-6))
    found = values.flatten(scaled)
    assert found["recipe.schedule.prompts"] == 3 and found["recipe.learners.policy.optimiser.lr"] == 1e-6
    assert (found["recipe.collect.links.0.n"], found["recipe.collect.links.0.max_tokens"]) == (5, 77)


def test_another_model_rank_or_length_may_be_asked_for(capsys):
    asked = ["doctor", "dr-grpo", "--paper", "--model", "qwen2.5-1.5b", "--lora", "8", "--max-tokens", "500", "--json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["lora"], found["answer_tokens"], found["prompts"]) == ("qwen2.5-1.5b", 8, 500, 128)
    assert found["trained"]["policy"] < 0.02e9 < found["frozen"]["policy"]
    assert main(["doctor", "dr-grpo", "--paper"]) == 0
    printed = capsys.readouterr().out
    assert "length 3,000 (default none)" in printed and "128 prompts x 8 answers x 3,000 tokens = 3.1 M" in printed
    assert main(["doctor", "dr-grpo", "--paper", "--model", "gpt-5"]) == 2
    assert "dimensions are not known here; --paper knows qwen2.5-0.5b" in capsys.readouterr().err
