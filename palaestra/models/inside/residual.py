"""The residual stream of a decoder, between its layers: read, and added to. L layers have L + 1
places, as the hidden states of transformers are counted: 0 is the embeddings, l what layer l gives.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from palaestra.errors import UserError


def layers_of(causal: Any) -> list[nn.Module]:
    """The layers of a causal model, in order. Raises UserError where they do not stand in a list."""
    n = getattr(causal.config.get_text_config(), "num_hidden_layers", 0)
    for module in causal.get_decoder().modules():
        if isinstance(module, nn.ModuleList) and len(module) == n > 0:
            return list(module)
    raise UserError(f"the layers of a {type(causal).__name__} were not found")


@contextmanager
def hooked(
    layers: list[nn.Module],
    added: Mapping[int, Tensor],
    seen: Mapping[int, Callable[[Tensor], None]],
) -> Generator[None]:
    """Inside, `added` [D] is added to the stream at its place, at all positions, and `seen` is told
    the stream at its place, what was added included. Nothing stays behind in the layers.
    """
    handles: list[Any] = []

    def change(place: int, x: Tensor) -> Tensor:
        if place in added:
            x = x + added[place].to(x)
        if place in seen:
            seen[place](x)
        return x

    def enter(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return change(0, args[0]), *args[1:]

    def leave(place: int) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], out: Any) -> Any:
            if isinstance(out, tuple):
                return change(place, out[0]), *out[1:]
            return change(place, out)

        return hook

    places = {*added, *seen}
    try:
        if 0 in places:
            handles.append(layers[0].register_forward_pre_hook(enter))
        handles += [layers[p - 1].register_forward_hook(leave(p)) for p in sorted(places - {0})]
        yield
    finally:
        for handle in handles:
            handle.remove()


def check_places(places: Iterable[int], layers: int, name: str) -> None:
    """Raises UserError for a place that a model of so many layers does not have."""
    wrong = [p for p in places if not 0 <= p <= layers]
    if wrong:
        raise UserError(
            f"{name} has {layers} layers, so hidden states 0 to {layers}; there is none {wrong[0]}"
        )
