"""CITATION.cff: how to cite this software, and the paper of every method that is built.

A card knows a paper by its identifier and names the method, not the authors: who they are is read
at the identifier. arXiv registers each of its papers as the DOI `10.48550/arXiv.NUMBER`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from palaestra import __version__, catalogue
from palaestra.card import Card
from tools.pages.rendering import render

CITATION = Path("CITATION.cff")
DOI = {"arXiv": "10.48550/arXiv.", "doi": ""}  # before the number of a card's paper


def citation_file() -> str:
    """The file for the catalogue as it is."""
    return render("citation.cff", version=__version__, papers=papers(cards()))


def cards() -> dict[str, Card]:
    """The cards of all methods that are built, by method."""
    built = (e for e in catalogue.all_entries() if e.built)
    return {e.id: importlib.import_module(e.module).CARD for e in built}


def papers(cards: Mapping[str, Card]) -> list[dict[str, str]]:
    """Each paper once: its DOI, the methods that are made from it and their titles. A method
    without a paper has none.
    """
    made_from: dict[str, dict[str, str]] = {}
    for method, card in cards.items():
        kind, _, number = card.paper.partition(":")
        if kind in DOI:
            made_from.setdefault(DOI[kind] + number, {})[method] = card.title
    return [
        {"doi": doi, "title": "; ".join(by_method.values()), "methods": ", ".join(by_method)}
        for doi, by_method in made_from.items()
    ]
