"""A model that a user brings has no program in its place by default: that is for the embedded problem alone."""

import pytest
from palaestra import catalogue, values
from palaestra.services.chat.scripted import Scripted

WITH_MODELS = [e.id for e in catalogue.all_entries() if e.built and catalogue.find(e.id).CARD.needs.models]


def scripted(runnable):
    return [path for path, part in values.walk(runnable) if isinstance(part, Scripted)]


@pytest.mark.parametrize("name", WITH_MODELS)
def test_no_program_stands_for_a_users_model(name):
    assert scripted(catalogue.find(name).build()) == []


@pytest.mark.parametrize("name", ["soft-verifier", "general-reasoner"])
def test_a_program_stands_for_it_on_the_embedded_problem(name):
    assert len(scripted(catalogue.find(name).embedded())) == 1
