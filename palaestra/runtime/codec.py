"""Plain data and tensors from the state of a step, and back, bit for bit. No pickle: only what is listed here can be made.

A tree is dictionaries, lists, tuples, sets, numbers, text, bytes, None, arrays, tensors, and frozen dataclasses of this package.
"""

from __future__ import annotations

import base64
import importlib
import math
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

TAG = "~"  # key of an encoded object that JSON has no form for


def encode(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    """(JSON-able, tensors by name). Raises TypeError with the place of what cannot be written down."""
    tensors: dict[str, Tensor] = {}
    return _encode(tree, tensors, "state"), tensors


def decode(plain: Any, tensors: dict[str, Tensor]) -> Any:
    """The tree that `encode` was given."""
    return _decode(plain, tensors)


def _encode(x: Any, tensors: dict[str, Tensor], at: str) -> Any:
    if x is None or isinstance(x, bool | str) or type(x) is int:
        return x
    if type(x) is float:
        return x if math.isfinite(x) else {TAG: "float", "hex": x.hex()}
    if type(x) is list:
        return [_encode(v, tensors, f"{at}[{i}]") for i, v in enumerate(x)]
    if type(x) in (tuple, set, frozenset):
        items = sorted(x, key=repr) if type(x) is not tuple else x
        return {TAG: type(x).__name__, "items": [_encode(v, tensors, f"{at}[{i}]") for i, v in enumerate(items)]}
    if isinstance(x, dict):
        if all(isinstance(k, str) for k in x) and TAG not in x:
            return {k: _encode(v, tensors, f"{at}[{k!r}]") for k, v in x.items()}
        pairs = [[_encode(k, tensors, f"{at} key"), _encode(v, tensors, f"{at}[{k!r}]")] for k, v in x.items()]
        return {TAG: "dict", "pairs": pairs}
    if isinstance(x, bytes):
        return {TAG: "bytes", "base64": base64.b64encode(x).decode()}
    if isinstance(x, Tensor):
        name = f"t{len(tensors)}"
        tensors[name] = x.detach().cpu().clone().contiguous()
        return {TAG: "tensor", "name": name}
    if isinstance(x, np.ndarray | np.generic):
        a = np.asarray(x)
        if a.dtype.hasobject:
            raise TypeError(f"{at}: an array of objects cannot be written down")
        data = base64.b64encode(np.ascontiguousarray(a).tobytes()).decode()
        return {TAG: "array", "dtype": a.dtype.str, "shape": list(a.shape), "scalar": isinstance(x, np.generic), "base64": data}
    if is_dataclass(x) and not isinstance(x, type) and type(x).__module__.startswith("palaestra."):
        inside = {f.name: _encode(getattr(x, f.name), tensors, f"{at}.{f.name}") for f in fields(x) if f.init}
        return {TAG: "value", "class": f"{type(x).__module__}:{type(x).__qualname__}", "fields": inside}
    raise TypeError(f"{at}: a {type(x).__name__} cannot be written down")


def _decode(x: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(x, list):
        return [_decode(v, tensors) for v in x]
    if not isinstance(x, dict):
        return x
    kind = x.get(TAG)
    if kind is None:
        return {k: _decode(v, tensors) for k, v in x.items()}
    if kind == "float":
        return float.fromhex(x["hex"])
    if kind in ("tuple", "set", "frozenset"):
        make = {"tuple": tuple, "set": set, "frozenset": frozenset}[kind]
        return make(_decode(v, tensors) for v in x["items"])
    if kind == "dict":
        return {_decode(k, tensors): _decode(v, tensors) for k, v in x["pairs"]}
    if kind == "bytes":
        return base64.b64decode(x["base64"])
    if kind == "tensor":
        return tensors[x["name"]]
    if kind == "array":
        a = np.frombuffer(base64.b64decode(x["base64"]), np.dtype(x["dtype"])).reshape(x["shape"]).copy()
        return a[()] if x["scalar"] else a
    if kind == "value":
        return _class(x["class"])(**{k: _decode(v, tensors) for k, v in x["fields"].items()})
    raise ValueError(f"unknown kind {kind!r} in an encoded state")


def _class(name: str) -> type:
    """A dataclass of this package; nothing else can be constructed from a file."""
    module, _, qualname = name.partition(":")
    if not module.startswith("palaestra."):
        raise ValueError(f"an encoded state names {name!r}, which is not part of palaestra")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and is_dataclass(found)):
        raise ValueError(f"an encoded state names {name!r}, which is no dataclass")
    return found
