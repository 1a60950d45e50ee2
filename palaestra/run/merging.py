"""A merge of models as a part of a pipeline."""

from __future__ import annotations

from palaestra.context import Context
from palaestra.errors import UserError
from palaestra.models.arithmetic import Merge, weights_of, write_weights
from palaestra.models.load import merge_adapters, save
from palaestra.models.model import Model, trainable_copy
from palaestra.types import Result, stage


@stage
class Merged:
    """A program that trains nothing: the models `inputs`, which it finds by name, become one as
    `how` says, its artifact "policy".

        Part(Merged(("short", "long"), Ties()), models={"short": Output("short"), "long": Output("long")})

    The base of task vectors is the part's own policy. Adapters are merged into their models first,
    and heads are left out. The metrics tell how far each input lies from the base: distance/NAME.
    Raises UserError for models of other shapes or with another vocabulary.
    """

    inputs: tuple[str, ...]
    how: Merge

    async def run(self, ctx: Context) -> Result:
        base = ctx.model("policy")
        models = [ctx.model(n) for n in self.inputs]
        for model in models:
            check_vocabulary(base, model)
        whole = weights_of(merge_adapters(base))
        given = [weights_of(merge_adapters(m)) for m in models]
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
        twin = Model(base.name, merge_adapters(trainable_copy(base)), base.tokenizer, base.source)
        write_weights(twin.module, made)
        save(twin, ctx.folder / "merged")
        return Result(metrics=metrics, artifacts={"policy": str(ctx.folder / "merged")})


def check_vocabulary(base: Model, other: Model) -> None:
    if base.tokenizer.get_vocab() != other.tokenizer.get_vocab():
        raise UserError(
            f"{other.source} has another vocabulary than {base.source}; merge fine-tunes of one base"
        )
