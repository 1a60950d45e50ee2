"""The state of an optimiser in files: what comes back, and how much of it is in memory on the way."""

import gc
import weakref
from importlib.util import find_spec

import pytest
import torch
from palaestra.errors import UserError
from palaestra.models import optimiser_files
from palaestra.models.master import load_optimiser
from palaestra.models.optimiser_files import (
    DueTensor,
    StoredTensor,
    made_state,
    read_state,
    without_tensors,
    write_state,
)
from palaestra.models.weight_files import ShardWriter
from palaestra.run.faces.training import MasterWeights
from palaestra.store.codec import decode, encode
from palaestra.update import AdamW, AdamW8bit
from safetensors.torch import load_file

BITS = pytest.mark.skipif(not find_spec("bitsandbytes"), reason="bitsandbytes is not installed")
KINDS = {
    "float32": (AdamW(), torch.float32),
    "bfloat16": (AdamW(), torch.bfloat16),
    "narrow": (AdamW(narrow_moments=True), torch.float32),
    "8 bits": (AdamW8bit(smallest=64), torch.bfloat16),
}


def made(kind, seed=0):
    """An optimiser of six weights that has made two steps."""
    build, dtype = KINDS[kind]
    numbers = torch.Generator().manual_seed(seed)
    weights = [torch.nn.Parameter(torch.randn(50, 64, generator=numbers).to(dtype)) for _ in range(6)]
    optimiser = build.build(weights)
    for _ in range(2):
        for p in weights:
            (p.float() * torch.randn(p.shape, generator=numbers)).sum().backward()
        optimiser.param_groups[0]["lr"] = 0.01
        optimiser.step()
        optimiser.zero_grad()
    return optimiser


def state_of(optimiser):
    return optimiser.due_state() if isinstance(optimiser, MasterWeights) else optimiser.state_dict()


def stored(optimiser, folder):
    """What a checkpoint has of it: data that went through the codec, whose own tensors are few and small."""
    folder.mkdir()
    write_state(state_of(optimiser), folder)
    plain, tensors = encode(without_tensors(state_of(optimiser)))
    assert sum(t.nbytes for t in tensors.values()) < 200
    return decode(plain, tensors)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, list | tuple) else a == b


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "narrow", pytest.param("8 bits", marks=BITS)])
def test_what_comes_back_is_what_was_there(kind, tmp_path):
    optimiser, other = made(kind), made(kind, seed=1)
    whole = made_state(state_of(optimiser))
    state = read_state(stored(optimiser, tmp_path / "a"), tmp_path / "a")
    assert same(made_state(state), whole) and not same(made_state(state_of(other)), whole)
    load_optimiser(other, made_state(state))
    assert same(made_state(state_of(other)), whole)
    names = load_file(tmp_path / "a" / "optimiser.safetensors")
    assert ("masters.3" if whole.get("masters") else f"{'inner.' * ('inner' in whole)}state.3.exp_avg") in names
    assert same(read_state(whole, tmp_path / "nowhere"), whole), "a state of earlier versions has its tensors"


def test_no_more_than_a_file_is_in_memory(tmp_path, monkeypatch):
    """Of master weights, which are put together one at a time; a state with all of them, as `made_state` makes it, is
    what the measure sees where they are not.
    """
    optimiser, alive, peak, add = made("bfloat16"), [], 0, ShardWriter.add
    monkeypatch.setattr(ShardWriter.__init__, "__defaults__", (20_000,))

    def watch(self, name, tensor):
        nonlocal alive, peak
        add(self, name, tensor)
        alive = [x for x in alive if x() is not None] + [weakref.ref(tensor)]
        peak = max(peak, sum(x().nbytes for x in alive))

    monkeypatch.setattr(ShardWriter, "add", watch)
    stored(optimiser, tmp_path / "a")
    gc.collect()
    one = 50 * 64 * 4
    assert peak <= 2 * one < 18 * one / 8 and len([*(tmp_path / "a").glob("optimiser-*")]) == 18
    alive, whole = [], made_state(state_of(optimiser))
    peak = 0
    kept = []
    monkeypatch.setattr(
        optimiser_files,
        "_own",
        lambda x: (kept.append(x.make() if isinstance(x, DueTensor) else x.clone()), kept[-1])[1],
    )
    (tmp_path / "b").mkdir()
    write_state(whole, tmp_path / "b")
    assert peak == 18 * one


def test_files_that_lack_a_tensor_or_were_cut_are_named(tmp_path):
    state = stored(made("float32"), tmp_path / "a")
    with pytest.raises(UserError, match="a: its files lack the tensor other"):
        read_state({**state, "more": StoredTensor("other")}, tmp_path / "a")
    with pytest.raises(UserError, match=r"has neither optimiser\.safetensors nor"):
        read_state(state, tmp_path)
    file = tmp_path / "a" / "optimiser.safetensors"
    due = read_state(state, tmp_path / "a")
    file.write_bytes(file.read_bytes()[:9000])
    with pytest.raises(UserError, match=r"a/optimiser\.safetensors: the tensor state\.\d\.exp_avg.* cannot be read"):
        made_state(due)
    with pytest.raises(UserError, match=r"a/optimiser\.safetensors cannot be read"):
        read_state(state, tmp_path / "a")
