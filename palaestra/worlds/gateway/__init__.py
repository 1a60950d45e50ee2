"""Agents that are programs of the user: they talk to an OpenAI-compatible endpoint of the run."""
