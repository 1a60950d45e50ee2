"""A method whose reward reads a form tells the model of it, on data of a user that does not."""

import json
import re

import palaestra as pl
import pytest
from palaestra import catalogue
from palaestra.method import Recipe
from palaestra.rewards.answer_f1 import AnswerF1
from palaestra.run.setup import bench_of, describe_instruction, instruction_of
from palaestra.settings.fields import Settings
from palaestra.settings.overrides import recipe_of
from palaestra.types import Episode, Message, Reward, Row, Segment, Task

# the marks that each reward reads, by the method; whoever adds one adds a row
READS = {
    "ampo": ("\\boxed{}",),
    "deeptheorem": ("<answer>", "\\boxed{proved}"),
    "ghpo": ("\\boxed{}",),
    "humanomni-intent": ("<context>", "<think>", "<answer>"),
    "knowrl-factuality": ("<think>", "<answer>"),
    "mt-r1-zero": ("<think>", "<translate>"),
    "reasoning-sql": ("<reasoning>", "<answer>"),
    "recode": ("<think>", "<answer>", "```python"),
    "research": ("<think>", "\\boxed{}"),
    "rlpr": ("\\boxed{}",),
    "swe-rl": ("<think>", "<solution>", "<<<<<<< SEARCH", ">>>>>>> REPLACE"),
    "think2sql": ("<think>", "<answer>"),
    "ui-r1": ("<think>", "<answer>", "'coordinate': [x, y]"),
}
TAG = re.compile(r"<(think|answer|translate|reasoning|solution)>")


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "mine.jsonl"
    own = {"prompt": "Say it in <answer></answer>, after <think></think>. \\boxed{} too. 1 + 1?", "answer": "2"}
    rows = [
        {"prompt": "What is 1 + 2?", "answer": "3"},
        {"prompt": "What is 1 + 3?", "answer": "4", "system": "Be brief."},
        own,
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows * 4))
    return str(path)


@pytest.mark.parametrize("method", READS)
def test_the_instruction_names_what_the_reward_reads(method):
    recipe = pl.recipe(method)
    assert all(mark in recipe.instruction for mark in READS[method])


def test_every_recipe_that_pays_for_tags_is_listed():
    """A docstring that says which tags a reply has, and no instruction, is a form nobody is told."""
    exempt = {"internbootcamp", "l2t", "reasoning-cpt", "srpo-gream"}  # no default of theirs reads the tags
    for method in (entry.id for entry in catalogue.all_entries() if entry.built):
        module = catalogue.find(method)
        if method in exempt or not TAG.search(module.__doc__ or ""):
            continue
        made = module.build()
        assert not isinstance(made, Recipe) or made.instruction, method


@pytest.mark.parametrize("method", ["mt-r1-zero", "research"])
def test_prompts_of_a_users_data_end_with_it(data, method):
    settings = Settings(recipe=method, data=data, reward="exact")
    recipe = recipe_of(settings)
    bench, _ = bench_of(settings, instruction=instruction_of(recipe))
    tasks = [bench.tasks.task(s, i) for s in ("train", "test") for i in range(getattr(bench.tasks, SIZE[s]))]
    assert {t.prompt[-1].content.count(recipe.instruction) for t in tasks} == {0, 1}
    for task in tasks:
        bare = task.prompt[-1].content.startswith("What is 1 + 2?")
        assert (recipe.instruction in task.prompt[-1].content) == bare
    assert "instruction=" in describe_instruction(settings, recipe)


SIZE = {"train": "size", "test": "test_size"}


def test_an_empty_instruction_and_problems_of_the_house_change_nothing(data):
    off = Settings(recipe="mt-r1-zero", data=data, set={"instruction": ""})
    assert recipe_of(off).instruction == "" == describe_instruction(off, recipe_of(off))
    bench, _ = bench_of(off, instruction=instruction_of(recipe_of(off)))
    assert all("<translate>" not in bench.tasks.task("train", i).prompt[-1].content for i in range(bench.tasks.size))
    built_in = Settings(recipe="mt-r1-zero", task="chain")
    told, plain = (bench_of(built_in, instruction=text)[0].tasks for text in ("Say <x>.", ""))
    assert told.task("train", 0) == plain.task("train", 0)
    assert describe_instruction(built_in, recipe_of(built_in)) == ""


def test_a_thought_that_the_chat_template_opens_is_read_as_opened():
    def episode(*segments):
        return Episode(rows=(Row(segments=segments),), reward=Reward(total=0.0), facts={"answer": "\\boxed{7}"})

    prompt = Segment(ids=(1,), author="user", turn=0, text="1 + 6?")
    opened = Segment(ids=(2,), author="forced", turn=0, text="<think>\n")
    reply = Segment(ids=(3,), author="policy", turn=0, text="so</think>\\boxed{7}", logp=(-1.0,))
    task = Task(id="0", prompt=(Message(role="user", content="1 + 6?"),), answer="7")
    reward = AnswerF1(floor=0.1, think=True, boxed=True)
    assert reward._paid(episode(prompt, opened, reply), task).total == 1
    assert reward._paid(episode(prompt, reply), task).total == 0
