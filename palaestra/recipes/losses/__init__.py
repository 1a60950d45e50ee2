"""Losses by the names people type: variants of base methods that are no rows of the literature."""
