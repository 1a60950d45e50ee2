"""What an encoder gives to its projector: patches where they lie, gradients to them, another model's encoder."""

import numpy as np
import pytest
import torch
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.models.forward import forward
from palaestra.models.inside.encoder import (
    encoder_distance,
    encoder_outputs,
    encoder_weights,
    patch_grid,
    picture_gradients,
    picture_states,
    put_encoder,
)
from palaestra.models.load import load
from palaestra.models.tower import set_rates
from palaestra.pictures import Picture
from palaestra.types import Example, Message
from palaestra.update import pack

from tests.laws.test_law_14_pictures import played
from tests.vision import save_tiny

GRIDS = {"idefics3": (64, 64), "internvl": (32, 32), "qwen2_5_vl": (112, 112), "qwen3_vl": (96, 64), "gemma3": (32, 32)}


def with_eyes():
    own = load("tiny")
    own.add_eyes()
    return own


def flat(height, width, spot=None):
    """Grey, with a white spot at (top, left, side)."""
    pixels = np.full((height, width, 3), 90, np.uint8)
    if spot:
        top, left, side = spot
        pixels[top : top + side, left : left + side] = np.random.default_rng(0).integers(0, 256, (side, side, 3))
    return Picture(shape=(height, width, 3), data=pixels.tobytes())


@pytest.fixture(scope="module", params=["eyes", "qwen2_5_vl", "qwen3_vl", "gemma3", "internvl"])
def seeing(request, tmp_path_factory):
    """A model, and the size of a picture that it has in one grid."""
    if request.param == "eyes":
        return with_eyes(), (32, 32)
    model = load(save_tiny(request.param, tmp_path_factory.mktemp(request.param)))
    with torch.no_grad():  # patches see each other little, so that what changes is where the picture did
        for name, p in encoder_weights(model).items():
            if any(n in name for n in ("out_proj", "attn.proj", "projection_layer")):
                p.mul_(0.05)
    return model, GRIDS[request.param]


def test_patches_are_where_the_picture_changed(seeing):
    """A spot in a corner of the picture moves the features there most, whatever order the encoder works in."""
    model, (height, width) = seeing
    (plain,) = picture_states(model, [flat(height, width)])
    grid = patch_grid(model, flat(height, width), len(plain))
    assert grid is not None and grid[0] * grid[1] == len(plain)
    for top, left in ((0, 0), (0, 1), (1, 0), (1, 1)):
        side = height // grid[0]
        spot = (top * (height - side), left * (width - side), side)
        (changed,) = picture_states(model, [flat(height, width, spot)])
        moved = np.linalg.norm(changed - plain, axis=1).reshape(grid)
        assert np.unravel_index(moved.argmax(), grid) == (top * (grid[0] - 1), left * (grid[1] - 1))


def test_tiles_are_no_grid(tmp_path):
    model = load(save_tiny("idefics3", tmp_path))
    picture = flat(64, 64)
    (states,) = picture_states(model, [picture])
    assert patch_grid(model, picture, len(states)) is None


def test_the_gradient_is_that_of_the_loss(seeing):
    """Of the training forward pass, which runs packed; no weight of the encoder has one."""
    model, (height, width) = seeing
    picture = flat(height, width, (0, 0, 8))
    message = Message(role="user", content="\ufffcwhat?", pictures=(picture,))
    row = played(OwnEngine(model), [message])[0]
    batch = pack([Example(row=row, columns={})])
    gradients = picture_gradients(model, row)
    assert gradients.shape == (len(picture_states(model, [picture])[0]),) and gradients.min() >= 0
    with torch.enable_grad(), encoder_outputs(model) as outputs:
        loss = -(forward(model, batch, ("logp",))["logp"] * batch.mask).sum()
        loss.backward(inputs=[outputs[0]])
    slope = outputs[0].grad
    assert gradients.sum() == pytest.approx(float(slope.abs().sum()), rel=1e-4)
    assert not any(p.grad is not None for p in encoder_weights(model).values())


def test_an_encoder_moves_alone(tmp_path):
    source, target = with_eyes(), with_eyes()
    with torch.no_grad():
        for p in [*source.heads["eyes"].parameters(), *source.module.parameters()]:
            p.mul_(2.0)
    start = {n: p.detach().clone() for n, p in encoder_weights(target).items()}
    out, words = target.heads["eyes"].out.weight.clone(), target.causal.get_input_embeddings().weight.clone()
    assert encoder_distance(target, start) == 0
    put_encoder(source, target)
    assert encoder_distance(target, start) == pytest.approx(1.0)  # twice as long
    assert torch.equal(target.heads["eyes"].out.weight, out)
    assert torch.equal(target.causal.get_input_embeddings().weight, words)
    with pytest.raises(UserError, match="sees no pictures"):
        picture_states(load("tiny"), [flat(32, 32)])
    other = load(save_tiny("gemma3", tmp_path))
    with pytest.raises(UserError, match="does not fit into"):
        put_encoder(other, target)


def test_eyes_of_the_project_have_rates():
    own = with_eyes()
    set_rates(own.module, own.causal, {"tower": 0, "language": 0}, own.name, {"eyes": own.eyes})
    assert sorted(own.named_trainable()) == ["head.eyes.out.bias", "head.eyes.out.weight"]
