"""Clients as text on the command line."""

import inspect

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.data import logics_stem
from palaestra.services.chat.named import client_from_text
from palaestra.settings import overrides


def test_an_endpoint_by_its_url_and_model_by_place_or_by_name():
    for text in ("endpoint('http://127.0.0.1:1/v1', 'm')", "endpoint(url='http://127.0.0.1:1/v1', model=m)"):
        client, loaded = client_from_text(text, "judge")
        assert (client.url, client.model, loaded) == ("http://127.0.0.1:1/v1", "m", "")


def test_a_model_of_the_run_or_one_that_is_loaded_beside_it():
    assert client_from_text("policy", "judge") == (pl.LocalModel(), "")
    assert client_from_text("some/folder", "judge") == (pl.LocalModel("judge"), "some/folder")


@pytest.mark.parametrize(
    "text, said",
    [
        ("endpoint()", "no url"),
        ("endpoint('a', 'b', 'c')", "cannot be read"),
        ("endpoint('a', url='b')", "said twice"),
        ("endpoint(url='a', modle='b')", "modle.*did you mean 'model'|modle"),
        ("endpoint(url=open('x'))", "cannot be read"),
        ("endpoint(url=", "cannot be read"),
        ("judge(url='a')", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_form(text, said):
    with pytest.raises(UserError, match=said):
        client_from_text(text, "judge")


def test_an_argument_that_takes_a_client_takes_text():
    recipe = overrides.build("self-rewarding", {"judge": "tiny-agent"})
    parts = recipe.parts.values() if isinstance(recipe, pl.Pipeline) else [recipe]
    assert any(
        r.references.get("judge") == "tiny-agent"
        for r in (getattr(p, "runnable", p) for p in parts)
        if hasattr(r, "references")
    )
    judged = overrides.build("ruscarl", {"judge": "endpoint('http://127.0.0.1:1/v1', 'm')"})
    assert "127.0.0.1" in repr(judged.collect)


@pytest.mark.parametrize("given", ["none", None])
def test_an_argument_that_may_be_no_client_takes_none(given):
    """`writer=none` was refused as no client."""
    takes = inspect.signature(logics_stem.build).parameters
    assert overrides.read_arguments(takes, {"writer": given}) == ({"writer": None}, {})
