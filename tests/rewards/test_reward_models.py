"""Reward models: losses by hand, heads at the end of a text, training on right and wrong answers, and a policy trained by one."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.context import Bench
from palaestra.credit.preferences import Compare, Rate, add_marker, weight
from palaestra.credit.rows import Imitate
from palaestra.errors import Fault, UserError
from palaestra.judges.pointwise import Judge
from palaestra.judges.reading import Odds
from palaestra.judges.train import Verdicts
from palaestra.method import Learner, Recipe
from palaestra.models.load import find, load, save
from palaestra.models.score import score_texts
from palaestra.objective.policy import Imitation
from palaestra.objective.reward_model import BradleyTerry, CritiqueNLL, Gaussian, Regression
from palaestra.pipeline import Output, Part, Pipeline
from palaestra.recipes.base import grpo
from palaestra.rewards import learned
from palaestra.rewards.critique import Critiqued, CritiqueThenScore
from palaestra.rewards.learned import Below, Ensemble, Learned, Robust, min_over_heads, robust
from palaestra.rollout.collect import Sample, Score, links
from palaestra.rollout.queue import Schedule
from palaestra.rollout.recorded import recorded_episode
from palaestra.run.driver import prepare
from palaestra.services.chat.local import LocalModel
from palaestra.settings.rewards import HUB_ID, reward_by_name
from palaestra.step import start, step
from palaestra.tasks.oracle import episode_saying
from palaestra.toys.chain import ArithmeticChain
from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task, stage
from palaestra.update import AdamW, backward, pack
from palaestra.values import override, vary
from palaestra.worlds.question import Question
from transformers import AutoModelForSequenceClassification, AutoTokenizer

HEADS = ("prior0", "prior1", "prior2")


def episode(ids, reward, **parts):
    said = Segment(ids=tuple(ids), author="policy", policy="policy", trained=True, logp=(0.0,) * len(ids))
    return Episode(
        rows=(Row(segments=(Segment(ids=(1, 2)), said)),), reward=Reward(total=reward, parts=parts), status="finished"
    )


def group(*episodes, name="t/0"):
    return Group(task=Task(id=name), episodes=episodes)


def batch_of(credit, *groups):
    return pack(credit(groups, [], {})[0])


def said(batch, *scores, head="score"):
    """Outputs in which the head says the given numbers at the rows' markers."""
    return {head: batch["marker"] * torch.tensor(scores)[:, None]}


# ---- rows


def test_the_marker_stands_behind_the_text():
    (better, worse), _ = Compare()([group(episode([5, 6], 0.0), episode([7], 1.0))], [], {})
    assert better.row.view().ids_T.tolist() == [1, 2, 7, 7] and better.columns["sign"] == 1
    assert worse.row.view().ids_T.tolist() == [1, 2, 5, 6, 6] and worse.columns["sign"] == -1
    assert worse.columns["trained"].tolist() == [False] * 4 + [True] and better.unit == worse.unit
    with pytest.raises(ValueError, match="without a token"):
        add_marker(Row())


def test_pairs_of_a_group():
    g = group(*(episode([5], r) for r in (0.0, 1.0, 0.5, 0.5)), Episode(status="error:x"))
    assert len(Compare()([g], [], {})[0]) == 2
    assert len(Compare(pairs="all")([g], [], {})[0]) == 10
    tied = Compare(pairs="all", ties=True)([g], [], {})[0]
    assert len(tied) == 12 and sum(e.columns["tie"] for e in tied) == 2
    assert Compare()([group(episode([5], 1.0), episode([6], 1.0))], [], {})[0] == []


def test_resamples_are_the_same_every_time():
    drawn = [weight(f"t/{i}", 0, "prior0") for i in range(400)]
    assert drawn == [weight(f"t/{i}", 0, "prior0") for i in range(400)]
    assert np.mean(drawn) == pytest.approx(1, abs=0.15) and drawn != [weight(f"t/{i}", 0, "prior1") for i in range(400)]


# ---- losses


def test_bradley_terry_by_hand():
    batch = batch_of(Compare(), group(episode([5], 1.0), episode([6], 0.0)))
    loss = lambda objective, *s: float(objective(said(batch, *s), batch)[0])
    assert loss(BradleyTerry(), 0.0, 0.0) == pytest.approx(0.693147, abs=1e-6)
    assert loss(BradleyTerry(), 1.2, -0.4) == pytest.approx(0.183901, abs=1e-6)  # MM-RLHF in the catalogue of methods
    assert loss(BradleyTerry(center=0.01), 1.2, -0.4) == pytest.approx(0.183901 + 0.0064, abs=1e-6)
    tied = batch_of(Compare(ties=True), group(episode([5], 1.0), episode([6], 1.0)))
    found, metrics = BradleyTerry(tie=0.5)(said(tied, 1.0, -1.0), tied)
    assert float(found) == pytest.approx(0.5 * 4) and float(metrics["ranked"]) == 0


def test_regression_leaves_missing_labels_out():
    credit = Rate(targets=("polite", "safe"))
    batch = batch_of(credit, group(episode([5], 0.0, polite=1.0, safe=0.5), episode([6], 0.0, polite=0.0)))
    out = said(batch, 0.8, 0.4, head="a") | said(batch, 0.5, 9.0, head="b")
    found, _ = Regression(heads=("a", "b"), targets=("polite", "safe"))(out, batch)
    assert float(found) == pytest.approx(((0.04 + 0.0) / 2 + 0.16) / 2)
    with pytest.raises(KeyError, match="target_total"):
        Regression()(said(batch, 0.0, 0.0), batch)


def test_gaussian_likelihood_is_least_at_the_residual():
    batch = batch_of(Rate(), group(episode([5], 1.0)))
    sds = np.linspace(0.05, 2, 200)
    raw = np.log(np.expm1(sds - 1e-3))
    losses = [float(Gaussian(("h",))(said(batch, 0.5, head="h") | said(batch, r, head="h_sd"), batch)[0]) for r in raw]
    assert sds[int(np.argmin(losses))] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("objective", [BradleyTerry(), Regression(), CritiqueNLL() + BradleyTerry(center=0.1)])
def test_law_02_micro_batches_do_not_matter(objective):
    model = load("tiny")
    torch.nn.init.normal_(model.add_head("score").out.weight, std=0.1)
    groups = [group(episode([60 + i, 70], 1.0), episode([80] * (i + 1), 0.0), name=f"t/{i}") for i in range(3)]
    credit = Compare(keep=("policy",)) if "CritiqueNLL" in repr(objective) else Compare()
    examples = credit(groups, [], {})[0]
    examples = [replace(e, columns={**e.columns, "target_total": e.columns["sign"]}) for e in examples]
    from palaestra.models.forward import forward

    found = []
    for budget in (10_000, 8):
        model.module.zero_grad()
        backward(lambda b: forward(model, b, objective.needs), objective, pack(examples), budget)
        found.append(torch.cat([p.grad.flatten() for p in model.module.parameters() if p.grad is not None]))
    assert (found[0] - found[1]).norm() < 1e-4 * found[0].norm() and found[0].norm() > 0


# ---- heads


def test_heads_read_what_training_read(tmp_path):
    from palaestra.models.forward import forward

    model = load("tiny")
    torch.nn.init.normal_(model.add_head("score").out.weight, std=0.1)
    model.add_head("prior0")
    rows = [Row(segments=(Segment(ids=tuple(range(60, 60 + n))),)) for n in (3, 9, 5)]
    credit = Compare(bootstrap=("prior0",))
    batch = batch_of(credit, group(*(Episode(rows=(r,), reward=Reward(total=float(i))) for i, r in enumerate(rows))))
    out = forward(model, batch, ("score", "prior0"))
    trained = torch.stack([(out[h] * batch["marker"]).sum(1) for h in ("score", "prior0")], 1).detach().numpy()
    asked = score_texts(model, [r.view().ids_T for r in (rows[2], rows[0])], ("score", "prior0"))
    assert np.allclose(trained, asked, atol=1e-5) and np.abs(asked).min() > 0
    save(model, tmp_path)
    again = score_texts(load(str(tmp_path)), [r.view().ids_T for r in (rows[2], rows[0])], ("score", "prior0"))
    assert np.allclose(again, asked, atol=1e-5)
    with pytest.raises(KeyError, match="no head 'value'"):
        score_texts(model, [[1]], ("value",))


def test_priors_differ_between_heads():
    model = load("tiny")
    found = [model.add_head(h) for h in HEADS]
    drawn = [h(torch.ones(1, model.width)).item() for h in found]
    assert len(set(drawn)) == 3 and drawn == [h(torch.ones(1, load("tiny").width)).item() for h in found]
    assert not any("prior" in n for h in found for n, _ in h.named_parameters())


# ---- ensembles


def test_robust_rewards_of_the_catalogue():
    mean, sd = np.array([[1.0, 0.8, 1.4, 0.2, 0.9]]), np.array([[0.5, 0.1, 0.9, 0.3, 0.2]])
    for weight_of_nominal, expected in ((1.0, 0.8), (0.0, 0.2), (0.4, 0.44)):
        assert robust(mean, sd, weight_of_nominal)[0] == pytest.approx(expected)
    two, same = np.array([[1.0, 0.0], [0.0, 1.0]]), np.ones((2, 2))
    assert robust(two, same, 0.0).mean() == 0 and robust(two, same, 0.0, "batch").mean() == 0.5
    assert min_over_heads(mean)[0] == 0.2 and Below(0.0)(mean)[0] == pytest.approx(0.86)


def test_a_score_that_is_not_finite_is_a_fault(context):
    ctx = context()
    ctx.model("policy").add_head("score")
    found = asyncio.run(Learned("policy")(ctx, group(episode([65], 0.0), Episode(status="finished"))))
    assert found[0].total == 0 and isinstance(found[1], Fault)
    ctx.model("policy").heads["score"].out.bias.data.fill_(float("nan"))
    assert isinstance(asyncio.run(Learned("policy")(ctx, group(episode([65], 0.0))))[0], Fault)
    with pytest.raises(UserError, match="2 weights for 1 heads"):
        Learned(weights=(1.0, 2.0))


def test_scores_become_rewards_by_hand(monkeypatch):
    """Two heads say 1 and 5: mean 3, deviation 2; with a shift of 1 and a scale of 1/2 they are 0 and 2."""
    monkeypatch.setattr(learned, "scores", lambda ctx, model, heads, episodes: np.array([[1.0, 5.0]] * len(episodes)))

    def paid(kind, **settings):
        (found,) = asyncio.run(kind(heads=("a", "b"), **settings)(None, group(episode([65], 0.0))))
        return found

    assert paid(Learned).total == 3 and paid(Learned).parts == {"reward/a": 1, "reward/b": 5}
    assert paid(Learned, weights=(2.0, -1.0)).total == -3
    assert paid(Learned, shift=1.0, scale=0.5).total == 1
    squashed = [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(-5))]
    assert paid(Learned, squash=True, weights=(1.0, 0.0)).total == pytest.approx(squashed[0])
    assert paid(Learned, squash=True).total == pytest.approx(sum(squashed) / 2)
    assert paid(Ensemble).total == 1 and paid(Ensemble, combine=Below(0.25)).total == 2.5
    assert paid(Ensemble).parts == {"reward/a": 1, "reward/b": 5, "reward/doubt": 2}


def test_the_last_row_is_scored(context):
    ctx = context()
    ctx.model("policy").add_head("score")
    torch.nn.init.normal_(ctx.model("policy").heads["score"].out.weight)
    early, late = episode([65], 0.0), episode([66, 67], 0.0)
    found = asyncio.run(Learned("policy")(ctx, group(early, late, replace(early, rows=early.rows + late.rows))))
    assert found[2].total == pytest.approx(found[1].total, abs=1e-5) and found[2].total != found[0].total


# ---- training


@stage
class RightAndWrong:
    """A right and a wrong answer to each task, with their rewards."""

    async def __call__(self, ctx, key, group):
        right = int(group.task.answer)
        texts = ((f"= {right}", 1.0), (f"= {(right + 1) % 10}", 0.0))
        made = [recorded_episode(ctx, "reward", group.task.prompt, text, reward) for text, reward in texts]
        return replace(group, episodes=tuple(made))


@stage
class Same:
    """The same tasks in every step."""

    def __call__(self, ctx, key, n, state):
        return [ctx.bench.tasks.task("train", i) for i in range(n)], state


def reward_model(objective=BradleyTerry(), credit=Compare(), heads=("score",), steps=4, collect=None, draw=Same()):
    return Recipe(
        draw=draw,
        collect=collect or links(RightAndWrong()),
        learners={"reward": Learner(credit=credit, objective=objective, heads=heads, optimiser=AdamW(lr=3e-4))},
        schedule=Schedule(prompts=8, steps=steps),
    )


KINDS = {
    "bradley-terry": (BradleyTerry(), Compare(), ("score",), Learned()),
    "regression": (Regression(squash=True), Rate(), ("score",), Learned(squash=True)),
    "ensemble": (BradleyTerry(heads=HEADS), Compare(bootstrap=HEADS), HEADS, Ensemble(heads=HEADS)),
    "gaussian": (Gaussian(HEADS), Rate(bootstrap=HEADS), (*HEADS, *(f"{h}_sd" for h in HEADS)), Robust(heads=HEADS)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_learns_and_rewards(context, kind):
    objective, credit, names, reward = KINDS[kind]
    ctx, recipe = context(), reward_model(objective, credit, names)
    prepare(recipe, ctx)
    before, state, losses = ctx.model("policy").module.state_dict(), start(0), []
    before = {k: v.clone() for k, v in before.items()}
    for _ in range(8):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        losses.append(metrics["loss"])
    assert losses[-1] < losses[0]
    assert all(torch.equal(v, before[k]) for k, v in ctx.model("policy").module.state_dict().items())
    found = asyncio.run(reward(ctx, ctx.seen[0]))
    assert all(np.isfinite(r.total) and r.parts for r in found)


def test_part_1_trains_a_reward_model_and_part_2_the_policy_with_it(context, tmp_path):
    rl = vary(
        grpo.build(),
        collect=links(Sample(n=4), Score(reward=Learned("judge"), shadow=True)),
        schedule=Schedule(prompts=4, steps=2),
    )
    pipeline = Pipeline(
        parts={"rm": Part(reward_model(steps=3)), "rl": Part(rl, models={"judge": Output("rm", "reward")})}
    )
    ctx = context(out=tmp_path, evaluate=8)
    result = asyncio.run(pipeline.run(ctx))
    rows = [
        line for line in (tmp_path / "rl" / "metrics.jsonl").read_text().splitlines() if '"part/judge/score"' in line
    ]
    assert len(rows) == 2 and '"part/gold"' in rows[0]
    assert result.metrics["parts"]["rm"]["steps"] == 3 and result.metrics["accuracy_after"]["n"] == 8
    again = asyncio.run(pipeline.run(context(out=tmp_path, evaluate=8)))  # both parts are done
    assert again.metrics["weights_sha256"] == result.metrics["weights_sha256"]


def test_a_pipeline_says_which_model_is_not_there(tmp_path, context):
    with pytest.raises(UserError, match="does not come before"):
        Pipeline(parts={"rl": Part(grpo.build(), models={"judge": Output("rm")})})
    pipeline = Pipeline(parts={"rm": Part(reward_model(steps=1)), "rl": Part(grpo.build(), models={"j": Output("rm")})})
    with pytest.raises(UserError, match="made no 'policy'; there are reward"):
        asyncio.run(pipeline.run(context(out=tmp_path)))


def test_a_reward_model_tells_right_from_wrong(context):
    """Pairs of chains of two operands: held-out pairs are ranked better than by chance."""
    easy = Bench(name="chain", tasks=ArithmeticChain(operands=(2, 2)), world=Question(), max_tokens=8)
    ctx, recipe = context(bench=easy), reward_model(steps=150, draw=grpo.build().draw)
    recipe = override(override(recipe, "schedule.prompts", 16), "learners.reward.optimiser.lr", 1e-3)
    prepare(recipe, ctx)
    state = start(0)
    for _ in range(150):
        state, _ = asyncio.run(step(recipe, ctx, state))
    ranked = []
    for i in range(200):
        pair = asyncio.run(RightAndWrong()(ctx, (), Group(task=easy.tasks.task("test", i))))
        right, wrong = asyncio.run(Learned()(ctx, pair))
        ranked.append(right.total > wrong.total)
    assert np.mean(ranked) > 0.6


def test_a_judge_of_ones_own(context):
    """Principle entailment: verdicts are imitated, and the judge asks with the prompt that it was trained on."""
    judge = Judge(client=LocalModel("reward"), template="{response}|{principle}", read=Odds(form="log-odds"))
    with_principle = lambda ctx, n: [
        replace(t, meta={**t.meta, "principle": "is it right?"}) for t in Same()(ctx, (), n, {})[0]
    ]

    @stage
    class Principled:
        def __call__(self, ctx, key, n, state):
            return with_principle(ctx, n), state

    verdicts = Verdicts(judge, lambda task, e: "Yes" if e.total else "No")
    recipe = reward_model(Imitation(), Imitate(), (), 16, links(RightAndWrong(), verdicts), Principled())
    ctx = context()
    prepare(recipe, ctx)
    state, nll = start(0), []
    for _ in range(16):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        nll.append(metrics["nll"])
    assert nll[-1] < 0.5 * nll[0]
    task = with_principle(ctx, 1)[0]
    pair = asyncio.run(RightAndWrong()(ctx, (), Group(task=task)))
    rewards = asyncio.run(judge(ctx, pair))
    assert all(isinstance(r, Reward) and abs(r.total) < 10 for r in rewards)


def test_critique_then_score(context):
    """The critique is imitated and the score read behind it; asked for, the model writes its own."""
    ctx = context()
    write = lambda task, e: "right" if e.total else "wrong"
    recipe = reward_model(
        CritiqueNLL() + BradleyTerry(center=0.01),
        Compare(keep=("critique",)),
        steps=6,
        collect=links(RightAndWrong(), Critiqued(write)),
    )
    prepare(recipe, ctx)
    state, nll = start(0), []
    for _ in range(6):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        nll.append(metrics["critique_nll"])
    assert nll[-1] < nll[0]
    ep = recorded_episode(ctx, "policy", (Message(role="user", content="1+1 mod 10"),), "= 2", 0.0)
    found = asyncio.run(CritiqueThenScore(max_tokens=6)(ctx, Group(task=Task(id="x"), episodes=(ep, ep))))
    assert all(isinstance(r, Reward) for r in found) and ctx.engine("reward").sampled_tokens > 0


# ---- sequence classifiers, as reward models of the hub are


def classifier(folder, labels=1):
    """A sequence classifier with random weights in a folder, as transformers saves it."""
    tokenizer = AutoTokenizer.from_pretrained(find("tiny"))
    torch.manual_seed(labels)
    made = AutoModelForSequenceClassification.from_pretrained(find("tiny"), num_labels=labels)
    made.config.pad_token_id = tokenizer.eos_token_id
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return made.eval(), tokenizer


def test_a_classifier_of_the_hub_is_a_reward(tmp_path):
    made, tokenizer = classifier(tmp_path / "rm")
    reward, replies = reward_by_name(str(tmp_path / "rm")), ("7", "so it is 8")
    task = Task(id="t", prompt=(Message(role="user", content="3+4"),))
    found = asyncio.run(reward(None, Group(task=task, episodes=tuple(map(episode_saying, replies)))))
    for reply, got in zip(replies, found, strict=True):
        talk = [{"role": "user", "content": "3+4"}, {"role": "assistant", "content": reply}]
        ids = tokenizer(tokenizer.apply_chat_template(talk, tokenize=False), add_special_tokens=False)["input_ids"]
        assert got.total == pytest.approx(made(input_ids=torch.tensor([ids])).logits.item(), abs=1e-5)
    assert found[0].total != found[1].total


def test_a_classifier_is_a_reward_by_its_id_too(tmp_path, monkeypatch):
    """As downloads lie in the hub's cache: the head is that of the file, and a wrong id is one line."""
    hub = tmp_path / "models--someone--rm-1.5b"
    made, _ = classifier(hub / "snapshots" / "0a1b")
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("0a1b")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = load("someone/rm-1.5b")
    assert list(model.heads) == ["score"] and torch.equal(model.heads["score"].out.weight, made.score.weight)
    assert reward_by_name("someone/rm-1.5b") == learned.RewardModel("someone/rm-1.5b")
    with pytest.raises(UserError, match=r"^reward 'someone/other': unknown model 'someone/other'.*hub"):
        reward_by_name("someone/other")


@pytest.mark.parametrize("given", ["exact*0.5/2", "a/b.py:f", "a/b.py", "./rm", "a/b/c", "exact+a/b"])
def test_what_is_no_id_of_the_hub_is_not_looked_for_there(given):
    assert not HUB_ID.fullmatch(given)


def test_several_labels_are_heads_by_their_names(tmp_path):
    made, _ = classifier(tmp_path, labels=3)
    heads = load(str(tmp_path)).heads
    assert list(heads) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert torch.equal(heads["LABEL_2"].out.weight[0], made.score.weight[2])


def test_our_reward_models_are_classifiers_of_transformers(tmp_path):
    model = load("tiny")
    torch.nn.init.normal_(model.add_head("score").out.weight)
    save(model, tmp_path)
    ids = [5, 6, 7, 8]
    other, info = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and other.config.num_labels == 1 and other.config.pad_token_id is not None
    (ours,) = score_texts(model, [ids], ["score"])[0]
    assert other.eval()(input_ids=torch.tensor([ids])).logits.item() == pytest.approx(ours, abs=1e-5)
    again = load(str(tmp_path))
    assert list(again.heads) == ["score"] and score_texts(again, [ids], ["score"])[0, 0] == ours
    assert all(torch.equal(a, b) for a, b in zip(again.module.parameters(), model.module.parameters(), strict=True))


def test_a_folder_that_is_no_reward_model_is_one_line(tmp_path):
    save(load("tiny"), tmp_path / "run" / "checkpoints" / "step-2")
    group = Group(task=Task(id="t", prompt=(Message(role="user", content="x"),)), episodes=(episode_saying("y"),))
    with pytest.raises(UserError, match="step-2' has no head 'score'; it has none, so it is no reward model"):
        asyncio.run(reward_by_name(str(tmp_path / "run" / "checkpoints" / "step-2"))(None, group))
    with pytest.raises(UserError, match=r"run has no config\.json, so it is not a saved model; .*step-2 is one"):
        reward_by_name(str(tmp_path / "run"))
