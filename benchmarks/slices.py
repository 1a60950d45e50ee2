"""The GPU programme of `palaestra bench gpu` as slices, and how much work each does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from benchmarks.work import Work
from palaestra.errors import UserError
from palaestra.planning.paper import SHAPES, Shape
from palaestra.suggest import suggestion_or_all
from palaestra.types import value_class

RANK = 16  # of the adapters, where a slice trains any
MODELS = {"0.5b": "qwen2.5-0.5b", "1.5b": "qwen2.5-1.5b", "4b": "qwen3-4b"}
# all weights of 4 B parameters take 18 bytes each to be trained, more than most GPUs have
ADAPTED = ("4b",)
PACKAGES = {  # and how to get them
    "trl": "TRL: pip install 'palaestra[bench]'",
    "vllm": "vLLM: pip install vllm",
    "peft": "peft: pip install 'palaestra[lora]'",
    "bitsandbytes": "bitsandbytes: pip install 'palaestra[quantised]'",
}


@value_class
class Slice:
    """A part of the programme that is measured in one go. `size` names one of MODELS."""

    name: str
    kind: str
    says: str  # what is measured
    size: str
    lora: int = 0  # rank; 0 = all weights are trained
    needs: tuple[str, ...] = ()  # packages, keys of PACKAGES


@value_class
class SliceScale:
    """How much work the slices do."""

    prompts: int
    group: int
    tokens: int  # of an answer, and none ends earlier
    prompt_tokens: int  # of a prompt of the engine's slices
    batches: tuple[int, ...]  # sequences that an engine samples at a time
    budgets: tuple[int, ...]  # positions of a training forward pass
    peer_batch: int  # answers in one of TRL
    rounds: int  # that count, at most
    cache_mb: int
    dtype: str
    shapes: Mapping[str, Shape] = field(default_factory=dict)


GPU = SliceScale(
    prompts=8,
    group=8,
    tokens=256,
    prompt_tokens=32,
    batches=(1, 8, 64, 256),
    budgets=(4096, 16384),
    peer_batch=16,
    rounds=5,
    cache_mb=16384,
    dtype="bfloat16",
    shapes={name: SHAPES[name] for name in MODELS.values()},
)
REHEARSAL = SliceScale(
    prompts=2,
    group=2,
    tokens=8,
    prompt_tokens=12,
    batches=(1, 3),
    budgets=(4096,),
    peer_batch=2,
    rounds=2,
    cache_mb=64,
    dtype="float32",
    shapes=dict.fromkeys(MODELS.values(), (64, 128, 2, 4, 2, 512, 0, True)),
)


def scale_of(device: str) -> SliceScale:
    """The programme on a GPU; on a processor the same in miniature, which says nothing of speed."""
    return GPU if device == "cuda" else REHEARSAL


def _of_size(size: str) -> list[Slice]:
    lora = RANK if size in ADAPTED else 0
    peft, made = ("peft",) * bool(lora), list[Slice]()

    def add(kind: str, says: str, *needs: str, name: str = "", lora: int = lora) -> None:
        made.append(
            Slice(
                name=f"{name or kind}-{size}",
                kind=kind,
                says=says,
                size=size,
                lora=lora,
                needs=needs,
            )
        )

    add("engine", "sampling, beside vLLM and the bandwidth limit, with CUDA graphs and without")
    if not lora:
        add("update", "the update beside the rate of matrix products")
    add("trl", "a step beside TRL", "trl", *peft)
    add("trl", "a step beside TRL that samples with vLLM", "trl", "vllm", *peft, name="trl-vllm")
    add("memory", "peaks of sampling and of the update, with recomputing and without", *peft)
    if not lora:
        add("lora", f"adapters of rank {RANK} beside all weights", "peft")
        add("optim", "moments in 8 bits, paged and not, beside float32", "bitsandbytes")
    qlora = f"adapters of rank {RANK} on weights in 4 bits, beside weights in 16"
    add("qlora", qlora, "peft", "bitsandbytes", lora=RANK)
    publish = "handing over a step's weights, whole and as adapters, to vLLM and to processes"
    add("publish", publish, "peft", lora=RANK)
    return made


SLICES: tuple[Slice, ...] = (
    Slice(
        name="exactness",
        kind="exactness",
        says="laws on the device; log-probs of the engine beside the trainer's",
        size="0.5b",
    ),
    *(s for size in MODELS for s in _of_size(size)),
)


def find_slices(words: Sequence[str]) -> list[Slice]:
    """Those of these names, kinds or sizes, in the order of the programme; all where nothing is
    given. Raises UserError.
    """
    groups = {s.name: (s.name, s.kind, s.size) for s in SLICES}
    known = [*dict.fromkeys(n for names in zip(*groups.values(), strict=True) for n in names)]
    for word in words:
        if word not in known:
            raise UserError(f"no slice {word!r}{suggestion_or_all(word, known)}")
    return [s for s in SLICES if not words or set(words) & set(groups[s.name])]


def slice_of(name: str) -> Slice:
    """The slice of this very name. Raises KeyError."""
    return {s.name: s for s in SLICES}[name]


def work_of(which: Slice, device: str) -> Work:
    """What a slice trains on."""
    scale = scale_of(device)
    return Work(
        model=MODELS[which.size],
        dtype=scale.dtype,
        device=device,
        prompts=scale.prompts,
        group=scale.group,
        max_tokens=scale.tokens,
        full=True,
        cache_mb=scale.cache_mb,
        peer_batch=scale.peer_batch,
        peer_vllm="vllm" in which.needs,
        lora=which.lora,
    )
