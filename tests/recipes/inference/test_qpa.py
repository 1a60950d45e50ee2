"""Quantum parameter adaptation: the circuit by hand and by pennylane, counts, adapters, and files of a user."""

import asyncio
import json
import math

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.recipes.inference import qpa
from palaestra.recipes.inference.qpa.circuit import Generator, Weights, chain_of_cnots, probabilities, sinusoids
from palaestra.recipes.inference.qpa.language import Adapters, answer_loss
from palaestra.recipes.inference.qpa.tracks import read_tracks, split_tracks, squared_error, windows
from torch import nn

KEY = ("test",)
PI = math.pi


def test_circuits_by_hand():
    """R_y(pi/3)|0> has cos^2(pi/6) = 3/4; a CNOT behind R_y(pi/2) x R_y(pi/3) swaps the last two of (3, 1, 3, 1)/8."""
    one = probabilities(torch.tensor([PI / 3]).reshape(1, 1, 1))
    two = probabilities(torch.tensor([PI / 2, PI / 3]).reshape(1, 2, 1))
    assert one.tolist() == pytest.approx([0.75, 0.25]) and two.tolist() == pytest.approx([0.375, 0.125, 0.125, 0.375])
    turned = probabilities(torch.tensor([[[PI / 3, 1.0]]]))
    assert turned.tolist() == pytest.approx([0.75, 0.25]), "R_z turns phases alone"
    assert chain_of_cnots(3).tolist() == [0, 1, 3, 2, 6, 7, 5, 4], "bits become their running parity"
    flipped = probabilities(torch.tensor([PI, 0.0, 0.0]).reshape(1, 3, 1))
    assert flipped.argmax() == 0b111, "a chain carries the first bit to all"


def test_phases_of_a_layer_act_in_the_next():
    """R_y(pi/2), R_z(phi), R_y(pi/2): p_1 = (1 + cos phi) / 2."""
    phi = 0.7
    p = probabilities(torch.tensor([[[PI / 2, phi]], [[PI / 2, 0.0]]]))
    assert p[1].item() == pytest.approx((1 + math.cos(phi)) / 2, abs=1e-6)


def test_gradients_are_those_of_the_parameter_shift():
    """dp/dtheta = [p(theta + pi/2) - p(theta - pi/2)] / 2, and a batch is its rows."""
    angles = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(probabilities, angles)
    for place in np.ndindex(2, 3, 2):
        moved = torch.zeros_like(angles)
        moved[place] = PI / 2
        shift = (probabilities(angles + moved) - probabilities(angles - moved)) / 2
        assert torch.allclose(jacobian[(slice(None), *place)], shift, atol=1e-12)
    both = probabilities(torch.stack([angles, angles + 0.3]))
    assert torch.allclose(both[1], probabilities(angles + 0.3)) and torch.allclose(both.sum(-1), torch.ones(2).double())


def test_circuits_are_those_of_pennylane():
    qml = pytest.importorskip("pennylane", reason="the oracle of one test")
    angles = torch.rand(3, 4, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 6

    @qml.qnode(qml.device("default.qubit", wires=4))
    def circuit():
        for layer in angles.tolist():
            for wire, (y, z) in enumerate(layer):
                qml.RY(y, wires=wire)
                qml.RZ(z, wires=wire)
            for wire in range(3):
                qml.CNOT(wires=[wire, wire + 1])
        return qml.probs(wires=range(4))

    assert np.allclose(circuit(), probabilities(angles).numpy(), atol=1e-10)


def test_counts_of_the_catalogue():
    """m = 1000 in chunks of 16: 63 of 2^6 states; 24 angles and a map 7-8-16 of 208 numbers: 232."""
    fit = Generator(chunk=16, depth=4, hidden=8).begin(torch.zeros(1000), KEY)
    assert fit.weights.bits.shape == (63, 6) and fit.weights().shape == (1000,)
    assert fit.counts() == {"trained": 232, "generated": 1000, "saved": 768, "angles_moved": 0}
    assert fit.weights.bits[5].tolist() == [0, 0, 0, 1, 0, 1], "the first qubit is the most significant bit"
    count = lambda features: Generator(16, 4, 8, features).begin(torch.zeros(1000), KEY).counts()["trained"]
    assert [count(f) for f in ("fixed", "sinusoidal", "direct")] == [208, 232, 1000]
    assert Generator().begin(torch.zeros(3), KEY).weights().shape == (3,), "less than a chunk: one qubit"


def test_weights_start_where_they_were_and_chunks_follow_their_states():
    start = torch.arange(6.0)
    weights = Weights(start, Generator(chunk=2, depth=1, hidden=1), KEY)
    assert torch.equal(weights(), start)
    with torch.no_grad():  # the map gives tanh of the feature alone, in both places of a chunk
        weights.map[0].weight.copy_(torch.tensor([[0.0, 0.0, 1.0]]))
        weights.map[0].bias.zero_()
        weights.map[2].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        weights.angles.copy_(torch.tensor([PI / 2, PI / 3]).reshape(1, 2, 1))
    p = np.tanh(4 * np.array([0.375, 0.125, 0.125]))
    assert (weights() - start).tolist() == pytest.approx(np.stack([p, -p], 1).ravel().tolist(), abs=1e-5)


def test_controls():
    """A sinusoid by hand; fixed probabilities sum to 1; a direct fit moves each weight by itself."""
    bits = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    angles = torch.tensor([[[0.2], [0.3]], [[0.0], [1.0]]])
    by_hand = [1 + (math.sin(0.3) + math.sin(1.0)) / 2, 1 + (math.sin(0.5) + math.sin(1.0)) / 2]
    assert sinusoids(angles, bits).tolist() == pytest.approx(by_hand)
    fixed = Generator(features="fixed").begin(torch.zeros(100), KEY)
    assert fixed.weights.p.sum().item() == pytest.approx(1) and fixed.angles == []
    fit = Generator(features="direct", lr=0.1).begin(torch.zeros(3), KEY)
    fit.step((fit.weights() * torch.tensor([1.0, 0.0, -2.0])).sum())
    assert fit.weights().tolist() == pytest.approx([-0.1, 0.0, 0.1])
    circuit = Generator().begin(torch.zeros(100), KEY)
    far = [circuit.step(((circuit.weights() - 1) ** 2).mean())["angles_moved"] for _ in range(3)]
    assert far[0] == 0 and far[2] > far[1] > 0, "the map's last layer is 0 at first and hides the circuit"


def test_adapters_act_as_the_weights_they_are_written_to():
    model = load("tiny")
    adapters = Adapters(model.causal, 2, 4.0, ("q_proj", "down_proj"))
    start = adapters.start(0)
    pairs = [((50, 51, 52), (53, 54)), ((49,), (60, 61, 62, 63))]
    with torch.no_grad():
        plain = answer_loss(model, pairs)
        logp = torch.log_softmax(model.causal(torch.tensor([[50, 51, 52, 53, 54]])).logits[0], -1)
        with adapters.on(start):
            assert answer_loss(model, pairs) == plain, "B is 0"
        assert answer_loss(model, pairs[:1]).item() == pytest.approx(-(logp[2, 53] + logp[3, 54]).item() / 2, rel=1e-4)
        moved = start + 0.05 * torch.randn(start.shape, generator=torch.Generator().manual_seed(0))
        with adapters.on(moved):
            hooked = answer_loss(model, pairs)
        before = adapters.layers[0].weight.clone()
        adapters.write(moved)
        a, b = adapters.split(moved)[0]
        assert torch.allclose(adapters.layers[0].weight - before, 2 * b @ a, atol=1e-6)
        assert answer_loss(model, pairs).item() == pytest.approx(hooked.item(), rel=1e-4) and hooked != plain


def write_series(path, rows=40):
    lines = [f"2024-01-01,{i},{np.sin(i / 5):.4f},{np.cos(i / 5):.4f}" for i in range(rows)]
    path.write_text("\n".join(["when,n,lat,lon", *lines]))
    return str(path)


NET = """from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)
        self.still = nn.Linear(1, 1).requires_grad_(False)
    def forward(self, x):
        return self.out(x.flatten(1)).reshape(-1, 1, 2)
"""


def test_a_file_of_numbers_and_a_network_of_the_user(tmp_path, context):
    """Weights are trained for the user's module alone, and the file of finished ones forecasts as measured."""
    (tmp_path / "net.py").write_text(NET)
    program = qpa.build(
        write_series(tmp_path / "s.csv"), "lat, lon", forecaster=f"{tmp_path}/net.py:Net", lags=2, horizon=1,
        steps=60, chunk=5, depth=2, hidden=4,
    )  # fmt: skip
    result = asyncio.run(program.run(context("add(d=1)", out=tmp_path)))
    m = result.metrics
    assert m["generated"] == 10 and m["angles_moved"] > 0 and m["error"] < m["error_before"]
    kept = json.loads((tmp_path / "forecaster.json").read_text())
    assert kept["columns"] == ["lat", "lon"] and set(kept["weights"]) == {"out.weight", "out.bias"}
    table = np.array([[np.sin(i / 5), np.cos(i / 5)] for i in range(40)]).round(4)[32:]
    past, future = windows([(table - kept["mean"]) / kept["deviation"]], 2, 1)
    net = nn.Linear(4, 2)
    net.load_state_dict({n.removeprefix("out."): torch.tensor(x) for n, x in kept["weights"].items()})
    guess = net(past.flatten(1))[:, None] + past[:, -1:]
    assert ((guess - future) ** 2).mean().sqrt().item() == pytest.approx(m["error"], rel=1e-4)


def test_every_weight_of_the_built_in_forecaster_counts(context):
    """A GRU keeps its weights twice: gradients must reach those that are generated."""
    module = qpa.CircuitForecaster()._module(context("add(d=1)"), torch.zeros(2, 8, 2))
    made = {n: p.detach().clone().requires_grad_(True) for n, p in module.named_parameters()}
    past = torch.randn(4, 8, 2, generator=torch.Generator().manual_seed(0))
    squared_error(module, made, past, past[:, :2]).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in made.values())


def test_tracks(tmp_path):
    """Windows stay within a track; text columns are left out; of a single track the last fifth is held out."""
    names, tracks = read_tracks(write_series(tmp_path / "s.csv"), (), "")
    assert names == ["n", "lat", "lon"] and tracks[0].shape == (40, 3)
    train, held = split_tracks(tracks, 2, 1)
    assert len(train[0]) == 32 and held[0][0, 0] == 32
    past, future = windows([np.arange(4.0)[:, None], np.arange(10.0, 13)[:, None]], 2, 1)
    assert past[..., 0].tolist() == [[0, 1], [1, 2], [10, 11]] and future[:, 0, 0].tolist() == [2, 3, 12]
    rows = [{"storm": s, "x": i} for i in range(3) for s in "ab"]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert [t.ravel().tolist() for t in read_tracks(str(tmp_path / "t.jsonl"), (), "storm")[1]] == [[0, 1, 2]] * 2
    train, held = split_tracks([np.full((3, 1), i) for i in range(5)], 2, 1)
    assert [t[0, 0] for t in train] == [0, 1, 2, 3] and held[0][0, 0] == 4


def test_bad_input_is_refused(tmp_path, context):
    file = write_series(tmp_path / "s.csv")
    (tmp_path / "gap.csv").write_text("x,y\n1,2\n3,\n")
    with pytest.raises(UserError, match=r"row 2: 'y' is None and no number; fill it in"):
        read_tracks(str(tmp_path / "gap.csv"), (), "")
    with pytest.raises(UserError, match="no column 'wind'; it has when, n, lat, lon"):
        read_tracks(file, ("wind",), "")
    with pytest.raises(UserError, match="no held-out track has the 13 rows of a window"):
        split_tracks(read_tracks(file, (), "")[1], 12, 1)
    (tmp_path / "net.py").write_text(NET)
    wide = qpa.build(file, "lat, lon", forecaster=f"{tmp_path}/net.py:Net", lags=2, horizon=2)
    with pytest.raises(UserError, match=r"gives \(2, 1, 2\) .* it must give \(2, 2, 2\)"):
        asyncio.run(wide.run(context("add(d=1)")))
    (tmp_path / "flat.csv").write_text("x,y\n" + "\n".join(f"{i},7" for i in range(60)))
    with pytest.raises(UserError, match="'y' never changes"):
        asyncio.run(qpa.build(str(tmp_path / "flat.csv")).run(context("add(d=1)")))
    with pytest.raises(UserError, match=r"series=FILE\.csv"):
        qpa.build(forecaster="net.py:Net")
    with pytest.raises(UserError, match=r"Generator.chunk is 0"):
        qpa.build(chunk=0)
    with pytest.raises(UserError, match="leave some of them trainable"):
        Generator().begin(torch.zeros(0), KEY)


def test_a_language_model_learns_its_answers(context, tmp_path):
    """The loss of held-out answers falls, the saved model has the adapters, and few numbers are trained."""
    ctx = context("add(d=1)", out=tmp_path)
    program = qpa.build(rank=2, targets="q_proj,down_proj", steps=8, batch=4, tasks=2)
    with torch.no_grad():
        for p in ctx.model("policy").causal.get_output_embeddings().parameters():
            p *= 0.5  # a model with something to learn
    m = asyncio.run(program.run(ctx)).metrics
    assert m["loss_after"] < m["loss_before"] and m["trained"] < m["generated"] / 5 and m["angles_moved"] > 0
    saved, own = load(str(tmp_path / "adapted")).module, ctx.model("policy").module
    assert all(torch.equal(a, b) for a, b in zip(saved.parameters(), own.parameters(), strict=True))
    assert all(p.requires_grad for p in own.parameters()) and "accuracy_after" in m


def test_made_up_tracks_are_forecast(context):
    """Better than the last row, in few steps."""
    m = asyncio.run(qpa.embedded(steps=150).run(context("add(d=1)"))).metrics
    assert m["error"] < 0.7 * m["error_before"] and pl.recipe("qpa") == qpa.build()
