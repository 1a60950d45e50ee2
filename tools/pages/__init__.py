"""The generated pages of the repository, which `python -m tools.pages` writes."""
