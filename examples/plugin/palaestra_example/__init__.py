"""What a package of its own adds to Palaestra: see the entry points in pyproject.toml."""
