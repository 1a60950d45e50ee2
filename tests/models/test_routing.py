"""Router replay: the training pass of a mixture of experts takes the experts that sampling took."""

import asyncio
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from palaestra.cli.main import main
from palaestra.engines import select
from palaestra.engines.formats import formats_here
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.models.forward import forward
from palaestra.models.layout import Layout
from palaestra.models.load import load, save
from palaestra.models.model import frozen_copy
from palaestra.models.routes import choices_from, experts_of, later_choices
from palaestra.models.routing import COLUMN, expert_columns, for_learner, recording, replaying
from palaestra.objective.policy import Reinforce
from palaestra.scale.local_ranks import run_ranks
from palaestra.scale.sharded import ShardedModel
from palaestra.store.codec import decode, encode
from palaestra.types import Example, ExpertChoices, Row, Sampling, Segment
from palaestra.update import backward, pack

from tests.models.test_models import batch_of, build
from tests.shards import distance, gradient_of

EXPERTS = {"num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
KINDS = ["mixtral", "qwen3_moe", "qwen2_moe", "olmoe", "gpt_oss", "granitemoe", "glm4_moe", "deepseek_v2"]
NUMBERS = torch.Generator().manual_seed(0)
needs_int8 = pytest.mark.skipif(not any("int8" in x for x in formats_here()), reason="needs FBGEMM")


def mixture(kind="mixtral", dtype=torch.float64, **more):
    deep = {"n_routed_experts": 8, "first_k_dense_replace": 0} if kind in ("glm4_moe", "deepseek_v2") else {}
    return build(kind, dtype, **EXPERTS, **deep, **more)


def other_choices(shape, seed=0):
    """[..., K] different experts, at random."""
    scores = torch.rand(*shape[:-1], 8, generator=torch.Generator().manual_seed(seed))
    return scores.topk(shape[-1]).indices.to(torch.int16)


def chosen_by(model, run):
    """What `run` gives, and the choices [N, L, K] of its pass."""
    chosen = {}
    with recording(model.routers, lambda i, x, _: chosen.__setitem__(i, x)):
        result = run()
    return result, torch.stack([chosen[i] for i in range(len(chosen))], 1).to(torch.int16)


def with_choices(batch, given):
    return replace(batch, columns={**batch.columns, COLUMN: given})


# ---- the formula


def test_the_mixture_of_other_experts_by_hand():
    """Mixtral renormalises: g_i = exp(s_i) / (exp(s_a) + exp(s_b)) for the recorded a and b; Qwen3-MoE here does not:
    g_i = exp(s_i) / sum over all experts."""
    x_ND = torch.randn(3, 32, generator=NUMBERS, dtype=torch.float64)
    given = torch.tensor([[5, 0], [1, 7], [2, 3]])
    for kind, whole in (("mixtral", False), ("qwen3_moe", True)):
        model = mixture(kind, **({"norm_topk_prob": False} if whole else {}))
        router = model.routers[0]
        block = next(m for m in router.layer.modules() if hasattr(m, "experts"))
        router.module.__dict__["forward"] = partial(router.run, router.module.forward, given)
        got_ND = block(x_ND[None])[0]
        s_NE = x_ND @ router.module.weight.T
        for n, pair in enumerate(given.tolist()):
            g_E = s_NE[n].exp()
            g_E = g_E / (g_E.sum() if whole else g_E[pair].sum())
            expected = torch.zeros(32, dtype=torch.float64)
            for e in pair:
                gate, up = (block.experts.gate_up_proj[e] @ x_ND[n]).chunk(2)
                expected += g_E[e] * (block.experts.down_proj[e] @ (torch.nn.functional.silu(gate) * up))
            # the library's softmax of scores is in float32
            torch.testing.assert_close(got_ND[n], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_its_own_choices_replayed_give_the_same_bits(kind):
    """Log-probs and gradients, also where layers are computed again in the backward pass."""
    model, batch = mixture(kind, torch.float32), batch_of([7, 3, 9, 4])
    plain, chosen = chosen_by(model, lambda: forward(model, batch, ("logp", "entropy")))
    assert model.routers and chosen.shape[1:] == (len(model.routers), 2)

    def gradient(out):
        for p in model.trainable():
            p.grad = None
        out["logp"].sum().backward()
        return {n: p.grad.clone() for n, p in model.named_trainable().items() if p.grad is not None}

    expected = gradient(plain)
    column = torch.full((4, 9, len(model.routers), 2), -1, dtype=torch.int16)
    place(column, chosen, model, batch)
    for recompute in (False, True):
        model.recompute = recompute
        out = forward(model, with_choices(batch, column), ("logp", "entropy"))
        assert torch.equal(out["logp"], plain["logp"]) and torch.equal(out["entropy"], plain["entropy"])
        found = gradient(out)
        assert found.keys() == expected.keys() and all(torch.equal(found[n], expected[n]) for n in found)


def place(column, chosen_NLK, model, batch):
    """Writes the choices of a pass into a column: packed places come as `Layout.runs` says, padded ones by rows."""
    if not model.packs:
        column.copy_(chosen_NLK.view(column.shape))
        return
    start = 0
    for row, at, n in Layout.of(batch).runs:
        column[row, at : at + n] = chosen_NLK[start : start + n]
        start += n


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe", "granitemoe"])
def test_packed_padded_and_recomputed_agree_on_other_choices(kind):
    """To rounding; and they are others than its own. An unknown choice is its own."""
    model, batch = mixture(kind), batch_of([7, 3, 9, 4])
    given = other_choices((4, 9, len(model.routers), 2))
    given[2, 4:] = -1
    run = lambda: forward(model, with_choices(batch, given), ("logp",))["logp"]
    packed, own = run(), forward(model, batch, ("logp",))["logp"]
    model.recompute = True
    again = run()
    packed.sum().backward()
    expected = {n: p.grad.clone() for n, p in model.named_trainable().items()}
    for p in model.trainable():
        p.grad = None
    again.sum().backward()
    assert torch.equal(again, packed)
    assert all(torch.equal(p.grad, expected[n]) for n, p in model.named_trainable().items())
    model.__dict__["packs"] = False
    torch.testing.assert_close(run(), packed, rtol=1e-5, atol=1e-5)
    assert float((packed - own).detach().abs().max()) > 0.01


def test_a_prompt_that_was_sampled_with_other_experts_is_another_prompt():
    """Rows with the same prompt are computed each by their own choices: as when they are alone."""
    model = mixture()
    batch = batch_of([6, 6])
    columns = dict(batch.columns)
    columns["ids"] = columns["ids"][:1].repeat(2, 1)
    columns["trained"] = torch.tensor([[0, 0, 0, 1, 1, 1.0]] * 2)
    batch = replace(batch, columns=columns)
    given = other_choices((2, 6, 2, 2))
    both = forward(model, with_choices(batch, given), ("logp",))["logp"]
    for b in (0, 1):
        alone = forward(model, with_choices(batch, given).part(torch.tensor([b])), ("logp",))["logp"]
        torch.testing.assert_close(both[b : b + 1], alone, rtol=1e-8, atol=1e-8)
    assert float((both[0] - both[1]).detach().abs().max()) > 0.01


def test_the_gradient_by_finite_differences():
    """Through the weights of the recorded experts into the router; of experts that no token took it is 0."""
    model, batch = mixture(), batch_of([5, 4])
    given = torch.tensor([6, 1]).expand(2, 5, 2, 2).to(torch.int16)
    run = lambda: forward(model, with_choices(batch, given), ("logp",))["logp"].sum()
    run().backward()
    router = model.routers[0].module
    experts = next(m for m in model.routers[0].layer.modules() if hasattr(m, "experts")).experts
    taken = [1, 6]
    assert [e for e in range(8) if experts.down_proj.grad[e].any()] == taken
    # softmax of all scores renormalised over two has no slope in the scores of the others
    others = router.weight.grad[[e for e in range(8) if e not in taken]]
    assert float(router.weight.grad.abs().max()) > 1e-3 and float(others.abs().max()) < 1e-6
    with torch.no_grad():
        for e, d in ((1, 3), (6, 17), (6, 0)):
            slopes = []
            for h in (1e-3, -1e-3):
                router.weight[e, d] += h
                slopes.append(float(run()))
                router.weight[e, d] -= h
            assert (slopes[0] - slopes[1]) / 2e-3 == pytest.approx(float(router.weight.grad[e, d]), rel=2e-3, abs=2e-4)


# ---- what sampling records


def engine_of(kind="qwen3_moe", **more):
    slots = more.pop("slots", 256)
    return OwnEngine(mixture(kind, torch.float32), router_replay=True, slots=slots, **more)


def ask(engine, requests):
    async def run():
        return await asyncio.gather(*(engine.generate(p, s, k) for p, s, k in requests))

    return asyncio.run(run())


def asked(engine, requests):
    return [(p, c) for (p, *_), c in zip(requests, ask(engine, requests), strict=True)]


def requests_of(prompts, each=3, tokens=12):
    return [
        (p, Sampling(max_tokens=tokens - 2 * j), ("draw", i, j)) for i, p in enumerate(prompts) for j in range(each)
    ]


PROMPTS = [tuple(3 + (7 * i + j * j) % 200 for j in range(5 + 9 * i)) for i in range(4)]


@pytest.mark.parametrize("slots", [256, 3])
@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_what_is_recorded_is_what_a_pass_over_the_whole_text_chooses(kind, slots):
    """For prompts that groups share, in slots that are exchanged and reused, and for a second turn."""
    engine = engine_of(kind, slots=slots)
    samples = asked(engine, requests_of(PROMPTS))
    longer = [(*p, *c.ids, 9, 8, 7) for p, c in samples[::2]]
    samples += asked(engine, requests_of(longer, 1))
    assert engine.reused_tokens > 0
    for prompt, c in samples:
        ids = (*prompt, *c.ids)
        _, chosen = chosen_by(engine.model, lambda ids=ids: engine.model.hidden(torch.tensor([ids[:-1]])).detach())
        assert c.experts is not None and (c.experts.start, c.experts.end) == (0, len(ids) - 1)
        row = Row(segments=(Segment(ids=prompt), Segment(ids=c.ids, policy="policy", experts=c.experts)))
        kept = experts_of(row)["policy"]
        assert (kept[-1] == -1).all()
        assert np.array_equal(np.sort(kept[:-1]), np.sort(chosen.numpy()))
    plain = OwnEngine(engine.model, slots=slots)
    again = ask(plain, requests_of(PROMPTS))
    assert [c.ids for c in again] == [c.ids for _, c in samples[: len(again)]] and again[0].experts is None


def test_a_byte_or_two_for_a_choice():
    chosen = np.array([[[255, 3]], [[0, 1]]])
    narrow = choices_from(chosen, (7, 8, 9), 256)
    assert (len(narrow.data), narrow.token_bytes, narrow.end) == (4, 2, 2)
    wide = choices_from(chosen + 1, (7, 8, 9), 257)
    assert (len(wide.data), wide.token_bytes, wide.end) == (8, 4, 2)
    row = Row(segments=(Segment(ids=(7, 8, 9), policy="p", experts=wide),))
    assert experts_of(row)["p"].tolist() == [[[256, 4]], [[1, 2]], [[-1, -1]]]


# ---- rows


def row_of(*segments):
    row = Row()
    for ids, given in segments:
        row = row.add(Segment(ids=ids, policy="policy" if given else "", experts=later_choices(row, given)))
    return row


def counted(n, ids):
    """Choices 0 0, 1 1, ... of n tokens."""
    return choices_from(np.arange(n)[:, None, None].repeat(2, 2), ids, 8)


def test_turns_keep_what_is_new_and_tokens_their_first_choice():
    first = counted(4, (1, 2, 3, 4, 5))
    second = choices_from(7 - np.arange(7)[:, None, None].repeat(2, 2), range(1, 9), 8)
    row = row_of(((1, 2, 3), None), ((4, 5), first), ((6,), None), ((7, 8), second))
    assert [(s.experts.start, s.experts.end) for s in row.segments if s.experts] == [(0, 4), (4, 7)]
    assert experts_of(row)["policy"][:, 0, 0].tolist() == [0, 1, 2, 3, 3, 2, 1, -1]
    hidden = replace(row, segments=(replace(row.segments[0], hidden=True), *row.segments[1:]))
    assert experts_of(hidden)["policy"][:, 0, 0].tolist() == [3, 3, 2, 1, -1]
    assert experts_of(row_of(((1, 2), None))) == {}


def test_choices_for_another_text_are_left_out():
    """A prompt that was replaced, a turn that was cut: the trainer takes its own experts there."""
    row = row_of(((1, 2, 3), None), ((4, 5), counted(4, (1, 2, 3, 4, 5))))
    replaced = replace(row, segments=(Segment(ids=(1, 2, 9)), row.segments[1]))
    cut = replace(row, segments=(row.segments[0], replace(row.segments[1], ids=())))
    assert experts_of(replaced) == experts_of(cut) == {}


def test_a_row_comes_back_from_a_checkpoint():
    row = row_of(((1, 2, 3), None), ((4, 5), counted(4, (1, 2, 3, 4, 5))))
    plain, tensors = encode([row])
    assert decode(json.loads(json.dumps(plain)), tensors) == [row]
    assert isinstance(row.segments[1].experts, ExpertChoices)


def test_the_learner_that_sampled_replays_and_nobody_else():
    row = replace(row_of(((1, 2, 3), None), ((4, 5), counted(4, (1, 2, 3, 4, 5)))), seat="x")
    row = replace(row, segments=(row.segments[0], replace(row.segments[1], trained=True, logp=(0.0, 0.0))))
    other = Row(segments=(Segment(ids=(1,)), Segment(ids=(2,), trained=True, policy="policy")))
    batch = pack([Example(row=row, columns={}), Example(row=other, columns={})])
    assert batch is not None and f"{COLUMN}:policy" in batch.columns
    own = for_learner(batch, "policy")
    assert own[COLUMN][:, :, 0, 0].tolist() == [[0, 1, 2, 3, -1], [-1] * 5]
    assert not any(c.startswith(COLUMN) for c in for_learner(batch, "ref").columns)
    dense = pack([Example(row=other, columns={})])
    assert dense is not None and for_learner(dense, "policy") is dense and expert_columns([other], 2) == {}


def test_a_model_with_other_routers_is_refused():
    model, batch = mixture(), batch_of([5, 4])
    for shape in ((2, 5, 3, 2), (2, 5, 2, 3)):
        with pytest.raises(UserError, match="this model has others"):
            forward(model, with_choices(batch, other_choices(shape)), ("logp",))


# ---- who has it


@pytest.mark.parametrize(
    ("spec", "kind", "said"),
    [
        ("own(router_replay=True)", "llama", "no mixture of experts"),
        ("own(router_replay=True)", "phimoe", "PhimoeTopKRouter is not a router whose choices can be replayed"),
        ("vllm(router_replay=True)", "mixtral", "--enable-return-routed-experts"),
    ],
)
def test_who_cannot_is_refused(spec, kind, said):
    model = build("llama", torch.float32) if kind == "llama" else mixture(kind, torch.float32)
    with pytest.raises(UserError, match=said):
        select.check(spec, model)


def test_a_mixture_without_a_kernel_for_its_attention_samples_from_what_it_is():
    """gpt-oss has attention sinks, so transformers computes its attention itself, where a mask is added to scores."""
    engine = OwnEngine(mixture("gpt_oss", torch.float32))
    assert engine.model.causal.config._attn_implementation == "eager"
    (c,) = ask(engine, [(PROMPTS[1], Sampling(max_tokens=8), ("a",))])
    row = Row(segments=(Segment(ids=PROMPTS[1]), Segment(ids=c.ids, logp=c.logp, trained=True)))
    batch = pack([Example(row=row, columns={})])
    assert batch is not None
    gap_BT = forward(engine.model, batch, ("logp",))["logp"].detach() - batch["behaviour_logp"]
    assert float(gap_BT[batch.mask > 0].abs().max()) < 1e-4


def test_drafts_and_exactness_are_not_promised_for_mixtures():
    """Its experts' products have no rule, so a sample's last bits depend on its company."""
    engine = OwnEngine(mixture("mixtral", torch.float32))
    assert not engine.exact and not engine.decoder.steady
    assert OwnEngine(build("llama", torch.float32)).exact


# ---- whole


@needs_int8
def test_a_rounded_sampler_and_the_trainer_agree_on_experts(caplog):
    """Without replay rounding flips some choices, and the log-probs of these tokens jump; with it only rounding is left."""
    engine = engine_of("qwen3_moe", dtype="int8")
    requests = requests_of(PROMPTS, 6, 24)
    examples, flips = [], 0
    for (prompt, *_), c in zip(requests, ask(engine, requests), strict=True):
        given = Segment(ids=c.ids, logp=c.logp, policy="policy", trained=True, experts=c.experts)
        row = Row(segments=(Segment(ids=prompt), given))
        examples.append(Example(row=row, columns={}))
        ids = torch.tensor([(*prompt, *c.ids)[:-1]])
        _, chosen = chosen_by(engine.model, lambda ids=ids: engine.model.hidden(ids))
        flips += int((np.sort(experts_of(row)["policy"][:-1]) != np.sort(chosen.numpy())).any(-1).sum())
    batch = pack(examples)
    assert flips > 0 and batch is not None
    with torch.no_grad():
        gap = {
            name: (forward(engine.model, for_learner(batch, name), ("logp",))["logp"] - batch["behaviour_logp"])[
                batch.mask > 0
            ].abs()
            for name in ("policy", "own")
        }
    assert float(gap["policy"].max()) < 0.5 * float(gap["own"].max())
    assert float(gap["policy"].mean()) < float(gap["own"].mean())


def sharded_gradient(mesh, seed):
    """Of a batch with recorded choices, on these ranks and in one process."""
    examples = []
    for i, length in enumerate((9, 6, 8, 5, 7)):
        ids = tuple(3 + (5 * i + j * j) % 200 for j in range(length))
        given = other_choices((length - 1, 2, 2), seed + i).numpy()
        segment = Segment(
            ids=ids[2:], policy="policy", trained=True, logp=(-1.0,) * (length - 2), experts=choices_from(given, ids, 8)
        )
        examples.append(
            Example(row=Row(segments=(Segment(ids=ids[:2]), segment)), columns={"advantage": 1.0 - 0.7 * i})
        )
    packed = pack(examples, "policy", torch.float64)
    assert packed is not None
    batch, objective = for_learner(packed, "policy"), Reinforce()
    found = []
    for recompute in (False, True):
        plain, sliced = mixture(), mixture()
        plain.recompute = sliced.recompute = recompute
        sharded = ShardedModel(sliced, mesh)
        sharded.backward(objective, batch, 1)
        gradient = gradient_of(sharded.model)
        backward(lambda b, m=plain: forward(m, b, objective.needs), objective, batch, 1, plain.packs)
        whole = gradient_of(plain)
        bare = replace(batch, columns={k: v for k, v in batch.columns.items() if k != COLUMN})
        backward(lambda b, m=plain: forward(m, b, objective.needs), objective, bare, 1, plain.packs)
        found.append((distance(gradient, whole), distance(gradient_of(plain), whole)))
    return found


def test_two_ranks_replay_as_one():
    """Law 13 for a mixture: the gradient is that of one process, and another one than without replay."""
    for apart, without in (x for each in run_ranks(2, sharded_gradient, 0) for x in each):
        assert apart < 1e-6 and without > 0.01  # the library's routers score in float32


REWARD = "def score(response, answer):\n    return response.count('1') / 8 + len(set(response)) / 50\n"


@needs_int8
def test_a_run_of_a_mixture_goes_on_where_it_stopped(tmp_path):
    """To the same weights with rows that wait for a step, and closer to its sampler than without replay."""
    model, tiny = mixture("qwen3_moe", torch.float32, vocab_size=263, max_position_embeddings=256), load("tiny")
    model.tokenizer = tiny.tokenizer
    save(model, tmp_path / "model")
    (tmp_path / "reward.py").write_text(REWARD)
    (tmp_path / "data.jsonl").write_text(
        "".join(f'{{"prompt": "{i} + {i} =", "answer": "{2 * i}"}}\n' for i in range(20))
    )

    def train(name, steps, engine):
        words = ["train", "grpo", "--model", str(tmp_path / "model"), "--reward", f"{tmp_path / 'reward.py'}:score"]
        words += [
            "--data",
            str(tmp_path / "data.jsonl"),
            "schedule.prompts=2",
            "schedule.lag=1",
            "collect.links.0.n=4",
            "--evaluate",
            "0",
            "--max-tokens",
            "12",
        ]
        words += ["--engine", engine, "--steps", str(steps), "--out", str(tmp_path / name)]
        assert main(words) == 0

    replayed = "own(dtype=int8,router_replay=True)"
    train("whole", 3, replayed)
    train("parts", 2, replayed)
    assert main(["train", "--resume", str(tmp_path / "parts"), "--steps", "3"]) == 0
    train("without", 3, "own(dtype=int8)")
    ends = {n: json.loads((tmp_path / n / "summary.json").read_text()) for n in ("whole", "parts", "without")}
    assert ends["whole"]["weights_sha256"] == ends["parts"]["weights_sha256"] != ends["without"]["weights_sha256"]
    most = {
        name: max(x["mismatch_max"] for x in map(json.loads, lines) if "mismatch_max" in x)
        for name in ("whole", "without")
        for lines in [(tmp_path / name / "metrics.jsonl").read_text().splitlines()]
    }
    assert 0 < most["whole"] < most["without"]


def test_a_frozen_copy_has_routers_of_its_own():
    model = mixture()
    twin = frozen_copy(model)
    assert len(twin.routers) == 2 and twin.routers[0].module is not model.routers[0].module
    with replaying(model, None):
        assert "forward" not in model.routers[0].layer.__dict__
