"""The codec: a bit-exact round trip for what a state may hold; a refusal, with its place, for everything else."""

import dataclasses
import enum
import json
import math
import struct
import sys
from collections import OrderedDict
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from palaestra import identity
from palaestra.store.codec import decode, encode
from palaestra.types import Episode, Event, Example, Group, Message, Origin, Reward, Row, Segment, Task, stage
from safetensors.torch import load, save

from tests.rows import every


def round_trip(tree):
    """Through the very bytes that lie on the disk."""
    plain, tensors = encode(tree)
    text = json.dumps(plain, allow_nan=False)
    return decode(json.loads(text), load(save(tensors)))


def same(a, b):
    """Equal in type and to the bit; -0.0 is not 0.0, and a NaN equals the NaN with its payload."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, dict):  # a dictionary has an order
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a.items(), b.items(), strict=True))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    return a == b


def bits(x):
    return x.resolve_conj().clone().flatten().view(torch.uint8).numpy().tobytes() if x.numel() else b""


floats = st.one_of(
    st.floats(),
    st.sampled_from([0x7FF8000000000001, 0xFFF0000000000000, 0x8000000000000000]).map(
        lambda n: struct.unpack("d", struct.pack("Q", n))[0]
    ),
)
scalars = st.none() | st.booleans() | st.integers() | floats | st.binary() | st.text(st.characters())  # surrogates too
dtypes = npst.array_dtypes() | npst.scalar_dtypes()
arrays = npst.arrays(dtypes, npst.array_shapes(min_dims=0, min_side=0, max_side=3))
tensors = npst.arrays(
    st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_]),
    npst.array_shapes(min_dims=0, min_side=0, max_side=3),
).map(torch.from_numpy)
keys = st.text() | st.integers() | st.tuples(st.integers(), st.text())
hashables = st.recursive(st.integers() | st.text() | st.booleans(), lambda x: st.tuples(x, x), max_leaves=4)
segments = st.integers(0, 3).flatmap(
    lambda n: st.builds(
        Segment,
        ids=st.tuples(*[st.integers(0, 99)] * n),
        logp=st.none() | st.tuples(*[floats] * n),
        text=st.text(),
        version=st.none() | st.integers(0, 9),
        trained=st.booleans(),
    )
)


def containers(inner):
    rewards = st.builds(
        Reward,
        total=floats,
        parts=st.dictionaries(st.text(), floats),
        events=st.just((Event(row=0, token=-1, value=0.5),)),
    )
    episodes = st.builds(Episode, rows=st.tuples(st.builds(Row, segments=st.tuples(segments))), reward=rewards)
    tasks = st.builds(Task, id=st.text(), answer=inner, meta=st.dictionaries(st.text(), inner, max_size=2))
    return st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(hashables, max_size=4),
        st.frozensets(hashables, max_size=4),
        st.builds(Group, task=tasks, episodes=st.tuples(episodes)),
        st.builds(Example, row=st.builds(Row, segments=st.tuples(segments)), columns=st.dictionaries(st.text(), inner)),
    )


@settings(max_examples=150)
@given(st.recursive(scalars | arrays | tensors, containers, max_leaves=8))
def test_every_tree_comes_back_to_the_bit(tree):
    assert same(round_trip(tree), tree)


@settings(max_examples=100)
@given(npst.arrays(dtypes, 1, unique=False).map(lambda a: a[0]))
def test_every_numpy_scalar_comes_back(x):
    assert same(round_trip(x), x)


@every(
    "tree",
    [
        2**70,
        -(2**63),
        10**5000,  # more digits than Python parses
        -0.0,
        math.inf,
        [math.nan, (math.nan, 1.0)],
        {"$tuple": [1], "$$": 2},
        {1: "int", "1": "text", (1, "a"): (), False: 2},
        {"": {}},
        "\ud800",
        np.float64("nan"),
        np.array(3, np.uint16),
        np.empty((0, 2), bool),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(6)[::2],
        np.array([1, 2], ">i4"),
        np.datetime64("2020-01-02"),
        np.str_("é"),
        np.zeros(2, [("a", "<f4"), ("b", "S3", (2,))]),
        torch.tensor(1.5),
        torch.zeros(0, 3, dtype=torch.bfloat16),
        torch.tensor([1.0, math.nan], dtype=torch.bfloat16),
        torch.arange(6).reshape(2, 3).T,
        torch.tensor([True, False]),
        torch.tensor([1.0]).to(torch.float8_e4m3fn),
        torch.tensor([1 + 2j]).conj(),
        [(x := torch.arange(3)), x, x[1:]],  # shared memory
        Task(id="t", prompt=(Message(role="user", content="?"),), meta={"k": (1, {2})}),
        Episode(origin=Origin(parent=0, turn=2), facts={"x": np.int8(3)}),
    ],
    ids=lambda x: repr(x)[:30] if type(x) is not int else f"{x.bit_length()} bits",
)
def test_edges(tree):
    assert same(round_trip(tree), tree)


def test_a_decoded_array_is_its_own_and_writable():
    x = np.zeros(3)
    plain, tensors = encode({"x": x})
    x += 1  # the encoding is a copy
    found = decode(plain, tensors)
    found["x"] += 5
    assert decode(plain, tensors)["x"].tolist() == [0, 0, 0]


def test_the_optimiser_of_torch_is_a_state():
    w = torch.nn.Parameter(torch.randn(3))
    optimiser = torch.optim.AdamW([w])
    w.sum().backward()
    optimiser.step()
    assert same(round_trip(optimiser.state_dict()), optimiser.state_dict())


def test_equal_sets_give_equal_files():
    a, b = set("abcdefgh"), set("hgfedcba")
    assert json.dumps(encode(a)[0]) == json.dumps(encode(b)[0])


def test_tokens_are_plain_lists():
    row = Row(segments=(Segment(ids=tuple(range(100)), logp=(-0.5,) * 100, trained=True),))
    text = json.dumps(encode(row)[0]["tree"])
    assert text.count("$") == 8 and json.dumps(list(range(100))) in text


class Colour(enum.IntEnum):
    RED = 1


@stage
class Foreign:
    x: int = 0


@every(
    ("bad", "named"),
    [
        (object(), "builtins.object"),
        (print, "builtin_function_or_method"),
        (lambda: 0, "function"),
        (Colour.RED, "Colour"),
        (OrderedDict(a=1), "OrderedDict"),
        (Foreign(), "not a frozen dataclass of palaestra"),
        (np.array([object()]), "dtype object"),
        (np.ma.masked_array([1]), "MaskedArray"),
        (torch.nn.Parameter(torch.ones(1)), "Parameter"),
        (torch.ones(1, requires_grad=True) * 2, "requires a gradient"),
        (torch.ones(2).to_sparse(), "sparse"),
        (torch.tensor([1j], dtype=torch.complex128), "complex128"),
        (np.random.default_rng(0), "Generator"),
    ],
)
def test_what_cannot_be_stored_is_named_with_its_place(bad, named):
    task = Task(id="t", meta={"k": bad})
    with pytest.raises(TypeError, match=named) as error:
        encode({"pool": {"x": [0, 1, 2, (task,)], 4: 0}})
    assert str(error.value).startswith('state["pool"]["x"][3][0].meta["k"]: ')


@pytest.fixture
def toys(monkeypatch):
    """A module of the package with a mutable dataclass, a frozen one, a nested one and a plain class."""
    module = ModuleType("palaestra.playthings")

    def own(cls):
        cls.__module__ = "palaestra.playthings"
        cls.__qualname__ = cls.__qualname__.rpartition("<locals>.")[2]
        setattr(module, cls.__name__, cls)
        return cls

    @own
    @stage
    class Frozen:
        x: int = 0

        @stage
        class Inner:
            y: tuple = ()

    Frozen.Inner.__module__, Frozen.Inner.__qualname__ = "palaestra.playthings", "Frozen.Inner"

    @own
    @dataclasses.dataclass
    class Mutable:
        x: int = 0

    @own
    class Plain:
        pass

    module.Alias, module.Outside = Frozen, Foreign
    monkeypatch.setitem(sys.modules, "palaestra.playthings", module)
    known = dict(identity.places())
    names = ("Frozen", "Mutable", "Plain", "Alias", "Outside")
    monkeypatch.setattr(identity, "places", lambda: known | dict.fromkeys(names, "palaestra.playthings"))
    return module


def test_any_frozen_dataclass_of_the_package(toys):
    tree = [toys.Frozen(3), toys.Frozen.Inner((1, 2.0))]
    assert same(round_trip(tree), tree)
    with pytest.raises(TypeError, match="not a frozen dataclass"):
        encode(toys.Mutable())


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "builtins:eval",
        "subprocess:Popen",
        pytest.param("tests.store.test_codec:Foreign", id="tests.test_codec:Foreign"),
        "palaestra.types:np.ndarray",
        "palaestra.types:hashlib.sha256",
        "palaestra.errors:Fault",
        "palaestra.types:__builtins__",
        "palaestra.__main__:Anything",
        "palaestra.missing:Anything",
        "palaestra.playthings:Mutable",
        "palaestra.playthings:Plain",
        "palaestra.playthings:Alias",
        "palaestra.playthings:Outside",
        "palaestra.playthings:Frozen.Other",
        "Mutable",
        "Plain",
        "Alias",
        "Outside",
        "Frozen.Other",
        "Frozen.x",
        "Fault",
        "system",
    ],
)
def test_nothing_else_can_be_made_from_a_file(name, toys):
    with pytest.raises(TypeError):
        decode({"classes": {name: []}, "tree": {f"${name}": []}}, {})
    with pytest.raises(TypeError):
        decode({"classes": {}, "tree": {f"${name}": []}}, {})


def test_a_class_that_lost_a_field_is_not_made(toys):
    plain, found = encode(toys.Frozen(3))
    plain["classes"]["Frozen"] = ["z"]
    with pytest.raises(TypeError, match="'z'"):
        decode(plain, found)
