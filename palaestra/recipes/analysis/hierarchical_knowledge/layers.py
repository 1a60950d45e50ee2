"""How far hidden states of questions and of statements lie apart, by layer. N = texts, L = places of the
model, D = its width.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.hierarchical_knowledge.questions import HierarchyQuestion

MOST_PLACES = 16
Form: TypeAlias = Literal["question", "statement"]
Read: TypeAlias = Literal["prompt", "text"]


def texts_of(
    model: Any, questions: Sequence[HierarchyQuestion], template: str, read: Read
) -> list[Sequence[int]]:
    """The tokens of a template about each question's node, as bare text or as a prompt of a chat."""
    texts = [q.spell(template) for q in questions]
    if read == "text":
        return [model.tokenizer.encode(t, add_special_tokens=False) for t in texts]
    written = [pl.run.WrittenText("x", (pl.Message(role="user", content=t),)) for t in texts]
    return [context for context, _ in pl.run.spell_texts(model, written)[0]]


def last_states(model: Any, ids: Sequence[Sequence[int]], places: Sequence[int]) -> np.ndarray:
    """[N, L, D] at the last token of each text."""
    return np.concatenate(pl.models.token_states(model, ids, 1, places)).astype(np.float64)


def places_of(model: Any) -> list[int]:
    """The layers of a model from the first on, of a deep one 16 of them. What the last token is embedded as
    knows nothing of the text.
    """
    depth = len(model.layers)
    every = np.linspace(1, depth, min(depth, MOST_PLACES)).round().astype(int)
    return sorted({*every.tolist()})


def cosines(a_NLD: np.ndarray, b_NLD: np.ndarray) -> np.ndarray:
    """[N, L] the cosine of each row of a with that of b; (1, 2, 2) and (2, 1, 2) have 8/9."""
    dot_NL = (a_NLD * b_NLD).sum(-1)
    size_NL = np.linalg.norm(a_NLD, axis=-1) * np.linalg.norm(b_NLD, axis=-1)
    return dot_NL / np.maximum(size_NL, 1e-12)


def centred(x_NLD: np.ndarray) -> np.ndarray:
    """Without the mean over the texts, which all states of a layer have in common (anisotropy)."""
    return x_NLD - x_NLD.mean(0, keepdims=True)


def compare_states(a_NLD: np.ndarray, b_NLD: np.ndarray) -> dict[str, list[list[float]]]:
    """[L, N] cosines of pairs: as they are, without the mean, and of each row with the next one's partner
    without the mean, which is what pairs by chance have.
    """
    a, b = centred(a_NLD), centred(b_NLD)
    measures = {
        "raw": cosines(a_NLD, b_NLD),
        "centred": cosines(a, b),
        "random": cosines(a, np.roll(b, 1, axis=0)),
    }
    return {k: x_NL.T.tolist() for k, x_NL in measures.items()}


def alike(models: Mapping[str, Any], ids: Mapping[str, Mapping[Form, Any]]) -> str:
    """Why states of two models cannot be compared; "" = they can."""
    base, policy = models["base"], models["policy"]
    if (base.width, len(base.layers)) != (policy.width, len(policy.layers)):
        return "the two models have other widths or depths"
    if any([*map(list, ids["base"][f])] != [*map(list, x)] for f, x in ids["policy"].items()):
        return "the two models read other tokens"
    return ""


def states_by_layer(
    models: Mapping[str, Any],
    questions: Sequence[HierarchyQuestion],
    templates: Mapping[Form, str],
    read: Read,
) -> dict[str, Any]:
    """What hidden states say, as plain data: "places" of each model; "within" each model, questions against
    statements about the same node; "between" the start and the model, each form against itself; and
    why the last could not be told.
    """
    ids: dict[str, dict[Form, Any]] = {
        name: {form: texts_of(m, questions, t, read) for form, t in templates.items()}
        for name, m in models.items()
    }
    places = {name: places_of(m) for name, m in models.items()}
    states = {
        name: {form: last_states(m, ids[name][form], places[name]) for form in templates}
        for name, m in models.items()
    }
    within = {n: compare_states(x["question"], x["statement"]) for n, x in states.items()}
    between, why = dict[str, Any](), ""
    if "base" in models and not (why := alike(models, ids)):
        pairs = {form: (states["base"][form], states["policy"][form]) for form in templates}
        between = {form: compare_states(*pair) for form, pair in pairs.items()}
    return {"places": places, "within": within, "between": between, "why": why}
