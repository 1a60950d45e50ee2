"""The state of a step as JSON and tensors, and back, bit for bit. No pickle: only what is listed
here can be made.

Truth values, 64-bit integers, finite floats, text, lists and dictionaries with text keys are
themselves in JSON. Everything else is an object with one key that says what it is:

    (1, 2)            {"$tuple": [1, 2]}                     likewise $set, $frozenset
    {0: "a"}          {"$dict": [[0, "a"]]}
    2**64             {"$int": "0x10000000000000000"}
    nan               {"$float": "7ff8000000000000"}         the bits: a NaN keeps its payload
    b"ab"             {"$bytes": "YWI="}
    np.float32(1)     {"$scalar": ["<f4", "0000803f"]}
    an array          {"$array": ["<f4", [2, 3], "0"]}       its bytes are tensor "0"
    a tensor          {"$tensor": "1"}
    Origin(...)       {"$Origin": [0, 2]}                    the values in the order that `classes` gives

Two names of one object become two objects; tensors come back on the CPU.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import NoneType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from palaestra.identity import find, name_of

COLLECTIONS: Mapping[str, Callable[[Iterable[Any]], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
# with its module before they were unique
NAME = re.compile(r"(palaestra(?:\.[a-z]\w*)+:)?[A-Z]\w*(?:\.[A-Za-z]\w*)*")
STORABLE = {  # what safetensors can hold
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16, torch.float32,
    torch.float64,
}  # fmt: skip


def encode(tree: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(JSON-able, tensors by name, which are copies). Raises TypeError with the place of what
    cannot be stored.
    """
    encoder = _Encoder()
    plain = encoder.encode(tree, "state")
    return {"classes": encoder.classes, "tree": plain}, encoder.tensors


def decode(plain: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """The tree that `encode` was given. Raises TypeError if it names what this version of the
    package cannot make.
    """
    return _Decoder(plain["classes"], tensors).decode(plain["tree"])


class _Encoder:
    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.classes: dict[str, list[str]] = {}  # fields by class name

    def encode(self, x: Any, at: str) -> Any:
        kind = type(x)
        if _is_json(x):
            return x
        if kind is list:
            return self.items(x, at)
        if kind is dict:
            return self.mapping(x, at)
        if kind is tuple:
            return {"$tuple": self.items(x, at)}
        if kind in (set, frozenset):  # sorted, so that equal states give equal files
            return {
                f"${kind.__name__}": sorted(
                    (self.encode(v, f"{at}[{v!r}]") for v in x), key=json.dumps
                )
            }
        if kind is int:
            return {"$int": hex(x)}
        if kind is float:
            return {"$float": struct.pack(">d", x).hex()}
        if kind is bytes:
            return {"$bytes": base64.b64encode(x).decode()}
        if isinstance(x, np.generic):
            return {"$scalar": [self.dtype(x.dtype, at), np.asarray(x).tobytes().hex()]}
        if kind is np.ndarray:
            raw = torch.from_numpy(np.frombuffer(x.tobytes(), np.uint8).copy())
            return {"$array": [self.dtype(x.dtype, at), list(x.shape), self.keep(raw)]}
        if kind is Tensor:
            return {"$tensor": self.tensor(x, at)}
        if dataclasses.is_dataclass(kind):
            return self.value(x, at)
        raise TypeError(
            f"{at}: a {kind.__module__}.{kind.__qualname__} cannot be stored in a checkpoint"
        )

    def items(self, xs: Any, at: str) -> list[Any]:
        kinds = set(map(type, xs))
        whole = kinds == {int} and _is_json(min(xs)) and _is_json(max(xs))
        if whole or (kinds == {float} and all(map(math.isfinite, xs))):
            return list(xs)  # tokens and log-probs are most of a state
        return [x if _is_json(x) else self.encode(x, f"{at}[{i}]") for i, x in enumerate(xs)]

    def mapping(self, x: dict[Any, Any], at: str) -> Any:
        if all(type(k) is str and not k.startswith("$") for k in x):
            return {k: self.encode(v, f'{at}["{k}"]') for k, v in x.items()}
        places = [f'{at}["{k}"]' if type(k) is str else f"{at}[{k!r}]" for k in x]
        items = zip(x.items(), places, strict=True)
        return {
            "$dict": [[self.encode(k, place), self.encode(v, place)] for (k, v), place in items]
        }

    def dtype(self, dtype: np.dtype[Any], at: str) -> Any:
        descr = None if dtype.hasobject else np.lib.format.dtype_to_descr(dtype)
        if descr is None or np.lib.format.descr_to_dtype(descr) != dtype:
            raise TypeError(f"{at}: numbers of dtype {dtype} cannot be stored in a checkpoint")
        return self.encode(descr, at)

    def tensor(self, x: Tensor, at: str) -> str:
        if x.dtype not in STORABLE or x.layout is not torch.strided or x.requires_grad:
            more = (
                " that requires a gradient (detach it)"
                if x.requires_grad
                else f" of {x.dtype}, {x.layout}"
            )
            raise TypeError(f"{at}: a tensor{more} cannot be stored in a checkpoint")
        return self.keep(
            torch.empty(x.shape, dtype=x.dtype).copy_(x)
        )  # safetensors wants no views and no shared memory

    def keep(self, x: Tensor) -> str:
        name = str(len(self.tensors))
        self.tensors[name] = x
        return name

    def value(self, x: Any, at: str) -> Any:
        cls = type(x)
        name = name_of(cls)
        if name not in self.classes:
            if _class(name) is not cls:
                what = f"{cls.__module__}.{cls.__qualname__}"
                raise TypeError(
                    f"{at}: {what} is not a frozen dataclass of palaestra, so no checkpoint can "
                    "hold it"
                )
            self.classes[name] = [f.name for f in dataclasses.fields(cls) if f.init]
        return {f"${name}": [self.encode(getattr(x, f), f"{at}.{f}") for f in self.classes[name]]}


class _Decoder:
    def __init__(self, classes: Mapping[str, list[str]], tensors: Mapping[str, Tensor]):
        self.classes, self.tensors, self.find = classes, tensors, cache(_class)

    def decode(self, x: Any) -> Any:
        if type(x) is list:
            return [self.decode(v) if type(v) in (list, dict) else v for v in x]
        if type(x) is not dict:
            return x
        tag = next(iter(x), "")
        if tag.startswith("$"):
            return self.make(tag[1:], x[tag])
        return {k: self.decode(v) for k, v in x.items()}

    def make(self, kind: str, data: Any) -> Any:
        if kind in COLLECTIONS:
            return COLLECTIONS[kind](self.decode(data))
        if kind in self.classes:
            return self.value(kind, data)
        match kind:
            case "dict":
                return {self.decode(k): self.decode(v) for k, v in data}
            case "int":
                return int(data, 16)
            case "float":
                return struct.unpack(">d", bytes.fromhex(data))[0]
            case "bytes":
                return base64.b64decode(data)
            case "scalar":
                return self.array(data[0], [], bytes.fromhex(data[1]))[()]
            case "array":
                return self.array(data[0], data[1], self.tensors[data[2]].numpy().tobytes())
            case "tensor":
                return self.tensors[data]
            case _:
                raise TypeError(f"the stored state holds a {kind!r}, which nothing here can make")

    def array(self, descr: Any, shape: list[int], raw: bytes) -> np.ndarray:
        return np.ndarray(
            shape, np.lib.format.descr_to_dtype(self.decode(descr)), bytearray(raw)
        ).copy()

    def value(self, name: str, data: list[Any]) -> Any:
        cls = self.find(name)
        if cls is None:
            raise TypeError(
                f"the stored state holds a {name}, which is not a frozen dataclass of this "
                "palaestra"
            )
        return cls(**dict(zip(self.classes[name], map(self.decode, data), strict=True)))


def _is_json(x: Any) -> bool:
    """Comes back from JSON as it is, whoever reads it: other readers round integers
    beyond 64 bits.
    """
    kind = type(x)
    if kind is int:
        return -(2**63) <= x < 2**63
    return math.isfinite(x) if kind is float else kind in (str, bool, NoneType)


def _class(name: str) -> type | None:
    """A frozen dataclass of this package by its stored name; None for whatever else has a name."""
    cls = find(name) if NAME.fullmatch(name) else None
    own = isinstance(cls, type) and dataclasses.is_dataclass(cls)
    return cls if own and cls.__dataclass_params__.frozen else None  # pyright: ignore
