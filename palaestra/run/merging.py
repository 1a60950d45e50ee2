"""A merge of models as a part of a pipeline."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from palaestra.context import Context
from palaestra.errors import UserError
from palaestra.models.arithmetic import HEAD, Merge, common_weights, untie_head, write_weights
from palaestra.models.load import merge_adapters, save
from palaestra.models.model import Model, trainable_copy
from palaestra.types import Result, stage

LEAST = 0.9  # of the ordinary tokens that have to be common


@stage
class Merged:
    """A program that trains nothing: the models `inputs`, which it finds by name, become one as
    `how` says, its artifact "policy".

        Part(Merged(("short", "long"), Ties()), models={"short": Output("short"), "long": Output("long")})

    The base of task vectors is the part's own policy. Adapters are merged into their models first,
    and heads are left out. The models may differ in special tokens, in the rows that pad the
    vocabulary and in whether the head is tied, which is said. The metrics tell how far each input
    lies from the base: distance/NAME. Raises UserError for models of other shapes or with another
    vocabulary.

    Args:
        tokenizer: the input whose tokenizer and chat template the merge has; "" = the base's.
    """

    inputs: tuple[str, ...]
    how: Merge
    tokenizer: str = ""

    async def run(self, ctx: Context) -> Result:
        base = ctx.model("policy")
        models = [ctx.model(n) for n in self.inputs]
        for model in models:
            if note := check_vocabulary(base, model):
                ctx.say(note)
        merged = [merge_adapters(m) for m in models]
        whole, given, notes = common_weights(merge_adapters(base), merged)
        for note in notes:
            ctx.say(f"note: {note}")
        made = self.how(whole, given)
        metrics = {
            f"distance/{name}": sum(
                float((w[n].double() - t.double()).square().sum()) for n, t in whole.items()
            )
            ** 0.5
            for name, w in zip(self.inputs, given, strict=True)
        }
        if ctx.out is None:
            return Result(metrics=metrics)
        chosen = ctx.model(self.tokenizer) if self.tokenizer else base
        twin = Model(base.name, merge_adapters(trainable_copy(base)), chosen.tokenizer, base.source)
        if chosen is not base:
            speak_as(twin.module, chosen.module)
        if HEAD in made and HEAD not in dict(twin.module.named_parameters()):
            untie_head(twin.module)
        write_weights(twin.module, made)
        save(twin, ctx.folder / "merged")
        return Result(metrics=metrics, artifacts={"policy": str(ctx.folder / "merged")})


def speak_as(module: Any, other: Any) -> None:
    """Gives a module the tokens at which another one begins, ends and pads."""
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(module.config, name, getattr(other.config, name, None))
    module.generation_config = deepcopy(other.generation_config)


def check_vocabulary(base: Model, other: Model) -> str:
    """A note on special tokens that the models do not share; "" = there are none.

    Raises UserError where ordinary tokens have other ids, or where fewer than `LEAST` of them are
    common.
    """
    own, theirs = ordinary_tokens(base), ordinary_tokens(other)
    common = own.keys() & theirs.keys()
    if any(own[t] != theirs[t] for t in common) or len(common) < LEAST * max(len(own), len(theirs)):
        raise UserError(
            f"{other.source} has another vocabulary than {base.source}; merge fine-tunes of one base"
        )
    tokenizers: list[Any] = [base.tokenizer, other.tokenizer]
    special = [t.get_added_vocab() for t in tokenizers]
    odd = sorted({t for one, two in (special, special[::-1]) for t in one if one[t] != two.get(t)})
    if not odd:
        return ""
    return (
        f"note: {other.source} and {base.source} differ in the special tokens {', '.join(odd[:4])}"
        f"{' and others' if len(odd) > 4 else ''}; the tokenizer that is kept decides what they mean"
    )


def ordinary_tokens(model: Model) -> dict[str, int]:
    """The ids of tokens that were not added to the vocabulary afterwards."""
    tokenizer: Any = model.tokenizer
    added = tokenizer.get_added_vocab()
    return {t: i for t, i in tokenizer.get_vocab().items() if t not in added}
