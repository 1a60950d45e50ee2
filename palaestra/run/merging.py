"""A merge of models as a part of a pipeline."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from palaestra.context import Context
from palaestra.models.arithmetic import HEAD, Merge, common_weights, untie_head, write_weights
from palaestra.models.load import save
from palaestra.models.merged import merge_adapters
from palaestra.models.model import Model, trainable_copy
from palaestra.models.vocabulary import check_vocabulary
from palaestra.types import Result, stage


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
            if odd := check_vocabulary(base, model, "merge fine-tunes of one base"):
                ctx.say(
                    f"note: {model.source} and {base.source} differ in the special tokens "
                    f"{', '.join(odd[:4])}{' and others' if len(odd) > 4 else ''}; the tokenizer that "
                    "is kept decides what they mean"
                )
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
