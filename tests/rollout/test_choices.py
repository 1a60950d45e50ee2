"""Replies chosen among legal ones: what is sampled is the policy restricted to them, and what is trained is the same."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from palaestra.cli.main import main
from palaestra.engines.choose import choose, restricted_logp
from palaestra.engines.endpoint import EndpointPlayer
from palaestra.engines.own import OwnEngine
from palaestra.errors import Fault, UserError
from palaestra.models.forward import forward
from palaestra.models.load import load
from palaestra.models.score import score_pairs
from palaestra.objective import LegalMass
from palaestra.recipes.base import grpo
from palaestra.rollout.branch import prefix, sample_continuations
from palaestra.rollout.collect import Sample
from palaestra.rollout.play import play
from palaestra.rollout.player import EnginePlayer, Handover, Script
from palaestra.services.chat.scripted import Scripted
from palaestra.types import (
    Ask,
    Choices,
    Completion,
    Example,
    Frame,
    Group,
    Message,
    Row,
    Sampling,
    Segment,
    Task,
    stage,
)
from palaestra.update import backward, pack
from pyarrow.parquet import read_table
from scipy.stats import chisquare

from tests.laws.test_law_02_gradient import caught_batch

WORDS = ("up", "upper", "left", "lift", "0", "1", "up up")


def moved(seed=1, scale=0.05):
    """The embedded model with weights moved at random, so that no reply is all but sure."""
    model, generator = load("tiny"), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.trainable():
            p += scale * torch.randn(p.shape, generator=generator)
    return model


def spelled(engine, content="at b2, box c1, goal a3", words=WORDS):
    """A prompt and the replies in tokens."""
    heard = engine.dialect.extend((Message(role="user", content=content),), first=True, closed=False)
    ids = tuple(i for p in heard for i in p.ids)
    return ids, tuple((*engine.dialect.encode_text(w), engine.dialect.end) for w in words)


def drawn(engine, prompt, n, **sampling):
    async def every():
        return await asyncio.gather(*(engine.generate(prompt, Sampling(**sampling), ("k", i)) for i in range(n)))

    return asyncio.run(every())


def row_of(prompt, s, temperature=1.0):
    said = Segment(
        ids=s.ids,
        logp=s.logp,
        policy="policy",
        trained=True,
        temperature=temperature,
        version=0,
        choices=s.choices,
    )
    return Row(segments=(Segment(ids=prompt), said))


# ---- the distribution, in closed form


def test_log_probs_of_tokens_are_shares_of_the_replies_that_still_fit():
    """p = 0.1, 0.2, 0.1 of the whole replies ab, ac, b: q = 1/4, 1/2, 1/4, and of ac: a has 3/4, then c has 2/3."""
    ids, logp = ((1, 2), (1, 3), (2,)), np.log([0.1, 0.2, 0.1])
    assert np.exp(restricted_logp(ids, logp, (1, 3))) == pytest.approx([3 / 4, 2 / 3])
    assert np.exp(restricted_logp(ids, logp, (2,))) == pytest.approx([1 / 4])
    # a mask of tokens would give ac 0.5 * 0.2 / 0.3 = 1/3 here: a and b alike first
    scored = [
        Completion(ids=i, logp=tuple(x), text="", cut=0, finish="eos")
        for i, x in zip(ids, np.log([[0.5, 0.2], [0.5, 0.4], [0.1, 1.0]])[:, :].tolist(), strict=True)
    ]
    found = [choose(scored, 1.0, u) for u in (0.0, 0.249, 0.251, 0.749, 0.751, 0.999)]
    assert [x.ids for x in found] == [ids[0], ids[0], ids[1], ids[1], ids[2], ids[2]]
    assert np.exp(found[2].choices.log_mass) == pytest.approx(0.4)
    greedy = choose(scored, 0.0, 0.9)
    assert greedy.ids == ids[1] and greedy.logp == (0.0, 0.0)


# ---- the engine


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_engine_draws_the_restricted_distribution(temperature):
    """Its log-probs and mass are those of whole replies scored one by one; 300 draws under fixed keys have its frequencies."""
    engine = OwnEngine(moved())
    prompt, replies = spelled(engine)
    if temperature == 1.0:
        logp = np.array([x.sum() for x in score_pairs(engine.model, [(prompt, r) for r in replies])])
        share = np.exp(logp - np.logaddexp.reduce(logp))
    samples = drawn(engine, prompt, 300, temperature=temperature, choices=replies)
    known = {s.ids: float(np.exp(sum(s.logp))) for s in samples}
    if temperature == 1.0:
        assert all(abs(np.log(known[i]) - np.log(share[replies.index(i)])) < 1e-5 for i in known)
        assert all(abs(s.choices.log_mass - np.logaddexp.reduce(logp)) < 1e-5 for s in samples)
    common = [i for i in known if known[i] * 300 >= 5]
    counts = [sum(s.ids == i for s in samples) for i in common]
    expected = [known[i] * 300 for i in common]
    assert len(common) >= 3
    counts, expected = [*counts, 300 - sum(counts)], [*expected, 300 - sum(expected)]
    assert chisquare(counts, expected).pvalue > 0.01
    assert engine.sampled_tokens == sum(len(s.ids) for s in samples)  # what was only scored is not sampled


def test_a_choice_belongs_to_its_key():
    """Whatever else is sampled at the time, free replies among it."""
    engine = OwnEngine(moved())
    prompt, replies = spelled(engine)

    async def together():
        free = [engine.generate(prompt, Sampling(max_tokens=8, top_p=0.9), ("f", i)) for i in range(5)]
        bound = [engine.generate(prompt, Sampling(choices=replies), ("k", i)) for i in range(4)]
        return (await asyncio.gather(*free, *bound))[5:]

    alone, beside = drawn(engine, prompt, 4, choices=replies), asyncio.run(together())
    assert [s.ids for s in alone] == [s.ids for s in beside]
    assert np.allclose([sum(s.logp) for s in alone], [sum(s.logp) for s in beside], atol=1e-5)
    small = OwnEngine(engine.model, slots=2)  # fewer slots than replies
    assert [s.ids for s in drawn(small, prompt, 4, choices=replies)] == [s.ids for s in alone]


def test_weights_that_move_meanwhile_score_all_replies_anew():
    engine = OwnEngine(moved(), slots=3)
    prompt, replies = spelled(engine)

    async def moving():
        wanted = asyncio.ensure_future(engine.generate(prompt, Sampling(choices=replies), ("k", 0)))
        while not engine.read_steps:  # the first wave of three
            await asyncio.sleep(0)
        with torch.no_grad():
            for p in engine.model.trainable():
                p += 0.01
        engine.version = 7
        engine.forget()
        return await wanted

    found = asyncio.run(moving())
    (again,) = drawn(OwnEngine(engine.model), prompt, 1, choices=replies)
    assert found.version == 7 and not found.moved and found.ids == again.ids
    assert np.allclose(found.logp, again.logp, atol=1e-5)


def test_replies_are_read_in_one_pass_and_continue_from_what_it_wrote():
    """No decoding step; the replies of unequal length score as those alone; and their cache is that of their tokens."""
    engine = OwnEngine(moved())
    prompt, replies = spelled(engine)
    (s,) = drawn(engine, prompt, 1, choices=replies)
    assert engine.decode_steps == 0 and s.choices is not None
    after = (*prompt, *s.ids, *engine.dialect.encode_text("x"))
    fresh = OwnEngine(engine.model)
    (one,), (other,) = (drawn(e, after, 1, choices=replies) for e in (engine, fresh))
    assert engine.reused_tokens > 0 and one.ids == other.ids
    assert np.allclose(one.logp, other.logp, atol=1e-5)


def test_a_reply_that_does_not_fit_is_a_fault():
    engine = OwnEngine(load("tiny"))
    prompt = (5,) * (engine.model.context - 2)
    with pytest.raises(Fault, match="room for 2"):
        drawn(engine, prompt, 1, choices=((1, 2, 3), (1, 2)))


# ---- the trainer


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_engine_and_trainer_agree(temperature):
    """Law 11, with replies of several tokens that share beginnings; packed and padded."""
    engine = OwnEngine(moved())
    examples, seen = [], set()
    for content in ("at b2, box c1, goal a3", "hello", "at a1 with box, goal a1"):
        prompt, replies = spelled(engine, content)
        samples = drawn(engine, prompt, 40, temperature=temperature, choices=replies)
        seen |= {(content, s.ids) for s in samples}
        examples += [Example(row=row_of(prompt, s, temperature), columns={}) for s in samples]
    assert len(seen) >= 6
    batch = pack(examples)
    with torch.no_grad():
        out = forward(engine.model, batch, ("logp",))["logp"]
        found = (out - batch["behaviour_logp"]).abs()[batch.mask > 0]
        assert 0 < float(found.max()) < 1e-5
        engine.model.packs = False  # each reply as a row of its own
        padded = forward(engine.model, batch, ("logp",))["logp"]
        assert float((padded - out).abs().max()) < 1e-5


def test_how_likely_legal_replies_are_can_be_learned():
    """-log sum p(c) of whole replies, once a turn, packed and padded: of replies scored one by one; a step along its slope
    makes them likelier. Text that was not chosen has none."""
    model = moved()
    engine = OwnEngine(model)
    prompt, replies = spelled(engine)
    row = row_of(prompt, drawn(engine, prompt, 1, choices=replies)[0])
    batch = pack([Example(row=row, columns={})])
    mass = np.logaddexp.reduce([x.sum() for x in score_pairs(model, [(prompt, r) for r in replies])])
    out = forward(model, batch, ("legal_logp",))["legal_logp"]
    assert out[0, len(prompt)].item() == pytest.approx(mass, abs=1e-5) and out.count_nonzero() == 1
    model.packs = False
    assert float((forward(model, batch, ("legal_logp",))["legal_logp"] - out).detach().abs().max()) < 1e-5
    model.packs = True
    loss, metrics = LegalMass()({"legal_logp": out}, batch)
    assert loss.item() == pytest.approx(-mass / batch.n_tokens, abs=1e-5) == metrics["legal_loss"].item()
    loss.backward()
    with torch.no_grad():
        for p in model.trainable():
            if p.grad is not None:
                p -= 1e-3 * p.grad / p.grad.norm()
    assert forward(model, batch, ("legal_logp",))["legal_logp"].sum().item() > mass
    bare = replace(row, segments=tuple(replace(s, choices=None) for s in row.segments))
    assert not forward(model, pack([Example(row=bare, columns={})]), ("legal_logp",))["legal_logp"].any()


def test_entropy_of_a_turn_in_closed_form():
    """Of ab, ac, b with shares 1/4, 1/2, 1/4: H(3/4, 1/4) at the first token, then H(1/3, 2/3); none without an alternative."""
    model = moved()
    engine = OwnEngine(model)
    prompt, replies = spelled(engine, words=("up", "upper", "1"))
    samples = drawn(engine, prompt, 1, choices=replies)
    logp = np.array([x.sum() for x in score_pairs(model, [(prompt, r) for r in replies])])
    q = np.exp(logp - np.logaddexp.reduce(logp))
    said = replace(samples[0], ids=replies[0], logp=restricted_logp(replies, logp, replies[0]))
    out = forward(model, pack([Example(row=row_of(prompt, said), columns={})]), ("entropy",))
    h = lambda *p: -sum(x * np.log(x) for x in np.array(p) / sum(p))
    expected = [h(q[0] + q[1], q[2]), 0.0, h(q[0], q[1])]
    assert out["entropy"][0, len(prompt) :].tolist() == pytest.approx(expected, abs=1e-5)


def test_what_training_does_not_see_moves_the_turn_forward():
    """Text that was shown and is hidden from training has no place in the batch."""
    model, engine = moved(), SimpleNamespace(dialect=OwnEngine(load("tiny")).dialect)
    prompt, replies = spelled(engine)
    said = Segment(ids=replies[0], policy="policy", trained=True, choices=Choices(ids=replies, log_mass=0.0))
    bare = Row(segments=(Segment(ids=prompt), said))
    guided = Row(segments=(Segment(ids=(50, 51, 52), hidden=True), Segment(ids=prompt), said))
    logp = [forward(model, pack([Example(row=r, columns={})]), ("logp",))["logp"] for r in (bare, guided)]
    assert torch.equal(*logp) and logp[0].sum() < 0


def test_the_gradient_is_that_of_the_restricted_distribution():
    """d log q(c) = d log p(c) - sum_c' q(c') d log p(c'), from unrestricted passes over each reply; and by finite differences."""
    model = moved()
    model.module.double()
    engine = SimpleNamespace(dialect=OwnEngine(load("tiny")).dialect)
    prompt, replies = spelled(engine)
    choices = SimpleNamespace(ids=replies)
    plain = [Row(segments=(Segment(ids=prompt), Segment(ids=r, policy="policy", trained=True))) for r in replies]
    parameters = list(model.trainable())

    def slope(value):
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        return torch.cat(
            [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(parameters, found, strict=True)]
        )

    def logp(row):
        return forward(model, pack([Example(row=row, columns={})], dtype=torch.float64), ("logp",))["logp"].sum()

    each = [logp(r) for r in plain]
    L = np.array([x.item() for x in each])
    q = np.exp(L - np.logaddexp.reduce(L))
    slopes = torch.stack([slope(x) for x in each])
    for k in (0, 3):
        said = replace(plain[k].segments[1], choices=choices)
        row = Row(segments=(plain[k].segments[0], said))
        value = logp(row)
        assert value.item() == pytest.approx(np.log(q[k]), abs=1e-9)
        expected = slopes[k] - torch.from_numpy(q) @ slopes
        found = slope(value)
        assert float((found - expected).norm() / expected.norm()) < 1e-6  # norms of the model are in float32
    direction = found / found.norm()

    def shift(by):
        at = 0
        with torch.no_grad():
            for p in parameters:
                p += by * direction[at : at + p.numel()].view(p.shape)
                at += p.numel()
            return logp(row).item()

    up, down = shift(1e-5), shift(-2e-5)
    assert (up - down) / 2e-5 == pytest.approx(float(found.norm()), rel=1e-3)


@pytest.mark.parametrize("task", ["grid-legal", "tictactoe-legal"])
def test_the_gradient_does_not_depend_on_the_split(task, context, small):
    """Law 2, rows of several turns among them."""
    if task.startswith("tictactoe"):
        pytest.importorskip("pyspiel")
    recipe, ctx = small(grpo.build(kl=0.1)), context(task)
    ctx.models["policy"] = moved()
    batch = caught_batch(recipe, ctx)
    assert "choices" in batch.columns
    batch = replace(batch, columns={k: v.double() if v.is_floating_point() else v for k, v in batch.columns.items()})
    model, objective = ctx.model("policy"), recipe.learners["policy"].objective
    model.module.double()
    with torch.no_grad():
        for p in model.trainable():
            p += 0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1), dtype=p.dtype)

    def gradient(batch, budget, packed):
        for p in model.trainable():
            p.grad = None
        backward(lambda b: forward(model, b, objective.needs), objective, batch, budget, packed)
        return torch.cat([p.grad.flatten() for p in model.trainable() if p.grad is not None])

    whole = gradient(batch, 10**9, True)
    assert whole.norm() > 0
    for budget in (1, 400):
        for packed in (True, False):
            assert float((gradient(batch, budget, packed) - whole).norm() / whole.norm()) < 1e-6


def test_what_reads_the_whole_vocabulary_is_refused():
    engine = OwnEngine(load("tiny"))
    prompt, replies = spelled(engine)
    batch = pack([Example(row=row_of(prompt, s), columns={}) for s in drawn(engine, prompt, 2, choices=replies)])
    for need in ("vocab_logp", "power_logp", "head_gradient"):
        with pytest.raises(UserError, match="whole vocabulary"):
            forward(engine.model, batch, (need,))


# ---- worlds


@stage
class Pick:
    """Two turns, each of one word of `legal`."""

    legal: tuple[str, ...] | None = ("up", "upper", "down")
    prefix: str = ""
    seats: tuple[str, ...] = ("policy",)

    def reset(self, task, key):
        ask = Ask(seat="policy", say=task.prompt, prefix=self.prefix, choices=self.legal)
        return Frame(state=(), asks=(ask,))

    def step(self, state, acts, key):
        state = (*state, acts[0].text)
        asks = self.reset(TASK, key).asks if len(state) < 2 else ()
        return Frame(state=state, asks=asks, pay={} if asks else {("policy", ""): 1.0}, facts={"said": state})


TASK = Task(id="t/0", prompt=(Message(role="user", content="Which way?"),))


def play_with(player, world):
    return asyncio.run(play(world, {"policy": player}, TASK, ("k",), ("w",)))


def test_an_episode_says_how_likely_a_legal_reply_was():
    engine = OwnEngine(moved())
    player = EnginePlayer(engine=engine, sampling=Sampling(max_tokens=1))  # a limit of free replies
    episode = play_with(player, Pick(prefix="go "))
    assert episode.status == "finished" and {*episode.facts["said"]} <= {"go up", "go upper", "go down"}
    said = [s for s in episode.rows[0].segments if s.trained]
    assert episode.facts["legal_mass"] == pytest.approx([np.exp(s.choices.log_mass) for s in said])
    context = tuple(i for s in episode.rows[0].segments[:-1] for i in s.ids)
    logp = [x.sum() for x in score_pairs(engine.model, [(context, r) for r in said[-1].choices.ids])]
    assert episode.facts["legal_mass"][-1] == pytest.approx(np.exp(logp).sum(), rel=1e-4)
    assert "legal_mass" not in play_with(player, Pick(legal=None)).facts


def test_no_illegal_move_is_made(context):
    ctx = context("grid-legal")
    ctx.models["policy"] = moved()
    group = asyncio.run(Sample(n=8)(ctx, (0,), Group(task=ctx.bench.tasks.task("train", 0))))
    assert all(e.facts["invalid"] == 0 and len(e.facts["legal_mass"]) == e.facts["turns"] for e in group.episodes)
    assert len({e.text for e in group.episodes}) > 1


def test_a_branch_goes_on_with_the_replies_that_still_fit(context):
    """Cut inside a reply, it ends as one that begins so; log-probs and trainer agree."""
    ctx = context("grid-legal")
    ctx.models["policy"] = moved()
    group = asyncio.run(Sample(n=2)(ctx, (0,), Group(task=ctx.bench.tasks.task("train", 0))))
    found = 0
    for e in group.episodes:
        segments = [s for s in e.rows[0].segments if s.trained]
        begun = prefix(e, segments[1].turn, 1)
        again = asyncio.run(sample_continuations(ctx, (1,), group, begun, 3, 1.0))
        for x in again:
            turn = [s for s in x.rows[0].segments if s.trained][1]
            assert turn.ids[:1] == segments[1].ids[:1] and turn.ids in turn.choices.ids
            assert turn.logp[:1] == segments[1].logp[:1] and turn.choices.log_mass == segments[1].choices.log_mass
            batch = pack([Example(row=r, columns={}) for r in x.rows])
            with torch.no_grad():
                out = forward(ctx.model("policy"), batch, ("logp",))["logp"]
            assert float((out - batch["behaviour_logp"]).abs()[batch.mask > 0].max()) < 2e-5
            found += 1
    assert found


def test_what_cannot_be_chosen_is_refused():
    engine = OwnEngine(load("tiny"))
    player = EnginePlayer(engine=engine, sampling=Sampling())
    with pytest.raises(UserError, match="no reply is legal"):
        play_with(player, Pick(legal=()))
    with pytest.raises(UserError, match="spelled alike"):
        play_with(player, Pick(legal=("a", "a")))
    with pytest.raises(UserError, match="says 'sideways'"):
        play_with(Script(fn=lambda m, rng: "sideways"), Pick())
    assert play_with(Script(fn=lambda m, rng: "up"), Pick()).status == "finished"
    with pytest.raises(UserError, match="none can begin"):
        play_with(Handover(player=player, said=Segment(ids=(7,), author="forced")), Pick())


def test_an_endpoint_is_refused_or_counted():
    answers = iter(["up", "sideways", " down\n", "sideways"])
    client = Scripted(lambda r: next(answers)).open()
    with pytest.raises(UserError, match="cannot be held to them"):
        play_with(EndpointPlayer(client=client), Pick())
    episode = play_with(EndpointPlayer(client=client, illegal="random"), Pick())
    assert episode.facts["said"][0] == "down" and episode.facts["said"][1] in Pick.legal
    assert client.meter.faults == {"illegal-reply": 1}


# ---- a run


def test_grpo_learns_among_choices_and_resumes(tmp_path, capsys):
    """Four steps at once end as two and two: the weights, the log and the mass in both."""
    args = ["grpo", "--task", "grid-legal", "schedule.prompts=2", "collect.links.0.n=4", "--evaluate", "0"]
    folders = {}
    for name, first in (("whole", "4"), ("parts", "2")):
        folders[name] = tmp_path / name
        assert main(["train", *args, "--steps", first, "--out", str(folders[name])]) == 0
    assert main(["train", "--resume", str(folders["parts"]), "--steps", "4"]) == 0
    lines = {k: [json.loads(x) for x in (f / "metrics.jsonl").read_text().splitlines()] for k, f in folders.items()}
    clock = {"seconds", "tokens_per_second"}
    keep = lambda xs: [{k: v for k, v in x.items() if k not in clock and not k.startswith("seconds")} for x in xs]
    assert keep(lines["whole"]) == keep(lines["parts"])
    assert all(0 < x["legal_mass"] <= 1 and x["ratio"] == pytest.approx(1, abs=1e-5) for x in lines["whole"])
    weights = {k: (f / "checkpoints" / "step-4" / "model.safetensors").read_bytes() for k, f in folders.items()}
    assert weights["whole"] == weights["parts"]
    table = read_table(folders["whole"] / "rollouts" / "step-000001.parquet")
    masses = [json.loads(x)["legal_mass"] for x in table["facts"].to_pylist()]
    assert all(masses) and all(0 <= m <= 1.0001 for e in masses for m in e)
