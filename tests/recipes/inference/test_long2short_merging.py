"""Long to short by merging: the line between two models, what lies above it, and the arms of its claim."""

import asyncio
import copy

import palaestra
import pytest
import torch
from palaestra.claims.inference.long2short_merging import EXPERIMENT
from palaestra.errors import UserError
from palaestra.models.arithmetic import HEAD, Average, PermuteUnits, TaskArithmetic, Ties, untie_head, weights_of
from palaestra.models.load import load, trainable_copy
from palaestra.pipeline import Output
from palaestra.recipes.inference import long2short_merging as l2s
from palaestra.recipes.inference.long2short_merging import exam, merges
from palaestra.rollout.collect import Sample
from palaestra.run.evaluation import attempt_tasks


def test_a_mixture_lies_on_the_line():
    ends = ({"short": 6.0, "long": 18.0}, {"short": 0.6, "long": 1.0})
    at = lambda length, accuracy: exam.above_line({**ends[0], "merged": length}, {**ends[1], "merged": accuracy})
    assert at(12.0, 0.8) == pytest.approx(0.0) and at(9.0, 1.0) == pytest.approx(0.3)
    assert at(12.0, 0.5) == pytest.approx(-0.3)
    assert at(30.0, 1.0) == pytest.approx(0.0), "longer than the long one: no credit for it"
    assert at(3.0, 0.6) == pytest.approx(0.0)


def test_the_ways_of_the_released_code():
    how = {n: w.how for n, w in l2s.WAYS.items()}
    assert how["ties"] == Ties(removed=0.8, scale=1.0) and how["task-arithmetic"] == TaskArithmetic(0.7)
    assert how["dare"].drop == 0.3


def matrices():
    """A base and two models of one matrix and one vector: singular values of the differences are 3, 1 and 2, 0."""
    base = {"w": torch.eye(2), "b": torch.zeros(2)}
    return base, [
        {"w": torch.eye(2) + torch.diag(torch.tensor([3.0, 1.0])), "b": torch.ones(2)},
        {"w": torch.eye(2) + torch.tensor([[0.0, 2.0], [0.0, 0.0]]), "b": torch.zeros(2)},
    ]


def test_lore_by_hand():
    """mu a tenth of the largest singular value: 3, 1 become 2.7, 0.7 and 2 becomes 1.8."""
    base, models = matrices()
    made = merges.LoRE(mu=0.1, scale=1.0)(base, models)
    assert torch.allclose(made["w"], torch.tensor([[3.7, 1.8], [0.0, 1.7]])) and made["b"].tolist() == [1, 1]
    whole, sum_of_all = merges.LoRE(mu=0.0, scale=0.7)(base, models), TaskArithmetic(0.7)(base, models)
    assert all(torch.allclose(whole[n], sum_of_all[n]) for n in base)


def test_twin_by_hand():
    """All singular values kept is the average; the shared part alone is the base, with the largest one beside it."""
    base, models = matrices()
    all_kept, mean = merges.Twin(rank=1.0)(base, models), Average()(base, models)
    assert all(torch.allclose(all_kept[n], mean[n], atol=1e-6) for n in base)
    one = merges.Twin(TaskArithmetic(0.0), rank=0.5, weights=(1.0, 0.0))(base, models)
    assert torch.allclose(one["w"], torch.tensor([[4.0, 0.0], [0.0, 1.0]]), atol=1e-6)
    with pytest.raises(UserError, match="one for each"):
        merges.Twin(weights=(1.0,))(base, models)


def test_activations_hold_changes_back(two):
    """omega 1 is the merge itself; with omega 0 the column with the largest input stays the base's."""
    program = merges.ActivationInformed(("short", "long"), Average(), omega=0.0, tasks=2)
    scales = program._scales(two)
    base = weights_of(two.model("policy").module)
    assert scales and all(x.shape == base[n].shape[1:] and x.min() == 0 and x.max() <= 1 for n, x in scales.items())
    name, scale = next(iter(scales.items()))
    models = [weights_of(two.model(n).module) for n in ("short", "long")]
    moved = {n: t + 1 for n, t in base.items()}
    made = palaestra.models.Relaxed(lambda *_: dict(moved), scales)(base, models)
    assert torch.allclose(made[name] - base[name], scale.to(base[name].dtype).expand_as(base[name]), atol=1e-5)
    same = merges.ActivationInformed(("short", "long"), Average(), omega=1.0, tasks=2)._scales(two)
    assert all((x == 1).all() for x in same.values())


def test_data_need_two_models(tmp_path):
    """`train long2short-merging --data F` was a traceback."""
    (tmp_path / "f.jsonl").write_text("".join(f'{{"prompt": "1 + {i}", "answer": "{i + 1}"}}\n' for i in range(12)))
    with pytest.raises(UserError, match="short=DIR"):
        palaestra.train("long2short-merging", data=str(tmp_path / "f.jsonl"), out=tmp_path / "run", quiet=True)


@pytest.fixture
def two(context):
    """A context whose short and long models are the policy, the one with other units."""
    ctx = context("add(d=1)")
    ctx.models["long"] = trainable_copy(ctx.model("policy"))
    ctx.models["short"] = trainable_copy(ctx.model("policy"))
    own = weights_of(ctx.model("policy").module)
    moved = PermuteUnits()(own, [own])
    for name, p in ctx.models["short"].module.named_parameters():
        p.data.copy_(moved[name])
    return ctx


def test_the_exam_leaves_the_policy_as_it_was(two):
    before = {n: t.clone() for n, t in weights_of(two.model("policy").module).items()}
    found = asyncio.run(exam.MergeExam(tasks=6, shares=(0.0, 0.5, 1.0)).run(two)).metrics
    assert all(torch.equal(t, before[n]) for n, t in weights_of(two.model("policy").module).items())
    assert found["accuracy"]["short"] == found["accuracy"]["long"] == found["accuracy"]["merged"] == 1.0
    assert found["above_line"] == 0 and found["shorter"] == 0 and list(found["line"]) == ["0", "0.5", "1"]
    assert found["barrier"] > 0.05 and found["line"]["0"]["loss"] == pytest.approx(found["line"]["1"]["loss"], abs=1e-4)
    assert found["length_by_domain"] == {"add(d=1)": found["length"]["merged"]}
    greedy = asyncio.run(attempt_tasks(two, 6, Sample(n=1, temperature=0.0)))
    assert exam.mean_length(greedy) == found["length"]["merged"]


def as_released(ctx):
    """A long model with a special token, a template and three rows of its own; a short one with an untied head."""
    long, short = ctx.models["long"], ctx.models["short"]
    for model, token in ((long, "<|thinks|>"), (short, "<|answers|>")):
        model.tokenizer = copy.deepcopy(model.tokenizer)
        model.tokenizer.add_special_tokens({"additional_special_tokens": [token]})
    long.tokenizer.chat_template += "{# long #}"
    long.module.resize_token_embeddings(len(long.module.get_input_embeddings().weight) + 3)
    untie_head(short.module)
    with torch.no_grad():
        short.module.get_output_embeddings().weight += 1.0


def test_models_that_differ_in_special_tokens_rows_and_a_tied_head_are_merged(two, tmp_path):
    """The vocabularies of R1-Distill and Qwen2.5-Math are unequal as a whole, and were refused."""
    as_released(two)
    said, two.say, two.out = [], lambda text: said.append(text), tmp_path
    program = l2s.build("average", template="long").parts["merged"].runnable
    folder = asyncio.run(program.run(two)).artifacts["policy"]
    made = load(folder)
    own = weights_of(two.model("policy").module)
    (table,) = (n for n in own if n.endswith("embed_tokens.weight"))
    assert torch.allclose(made.module.get_output_embeddings().weight, own[table] + 0.5, atol=1e-5)
    assert torch.allclose(made.module.get_input_embeddings().weight, own[table], atol=1e-6)
    assert made.tokenizer.chat_template.endswith("{# long #}") and "<|thinks|>" in made.tokenizer.get_vocab()
    assert "answers" not in str(made.tokenizer.get_added_vocab()) and HEAD not in own, "the base stays tied"
    for text in ("<|thinks|>", "<|answers|>", "it is untied", f"and {len(own[table]) + 3} rows"):
        assert any(text in line for line in said), (text, said)
    two.models["policy"] = made
    assert 0 <= asyncio.run(exam.MergeExam(tasks=2, shares=(0.0, 1.0)).run(two)).metrics["barrier"] < 20


def test_ordinary_tokens_with_other_ids_are_refused(two):
    class Moved:
        """Its tokenizer calls two ordinary tokens by each other's id."""

        def __init__(self, inner):
            self.inner, vocabulary = inner, inner.get_vocab()
            one, other = sorted(set(vocabulary) - set(inner.get_added_vocab()))[:2]
            self.vocabulary = vocabulary | {one: vocabulary[other], other: vocabulary[one]}

        def get_vocab(self):
            return self.vocabulary

        def get_added_vocab(self):
            return self.inner.get_added_vocab()

    two.models["long"].tokenizer = Moved(two.model("policy").tokenizer)
    with pytest.raises(UserError, match="another vocabulary"):
        asyncio.run(l2s.WAYS["average"].run(two))


def test_arms_differ_in_the_merge_alone():
    assert not EXPERIMENT.lacks()
    for name, arm in EXPERIMENT.every_arm.items():
        short, long = (arm.parts[n].runnable for n in ("short", "long"))
        assert (short, long) == tuple(l2s.embedded().parts[n].runnable for n in ("short", "long")), name
        assert arm.parts["exam"].runnable.tasks == 256
    unrelated = EXPERIMENT.arms["unrelated"].parts
    assert unrelated["merged"].models["short"] == Output("elsewhere") == unrelated["exam"].models["short"]
    assert unrelated["merged"].runnable.how == Average()
    assert EXPERIMENT.every_arm["start"].parts["exam"].model is None


def test_a_mixture_answers_with_both(two):
    found = asyncio.run(exam.MergeExam(tasks=16, shares=(0.0, 1.0), mix=0.5).run(two)).metrics
    assert found["accuracy"]["merged"] == 1.0 and found["above_line"] == 0
