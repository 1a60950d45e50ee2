"""Reinforcement learning of language models: methods as small recipes over one engine."""

__version__ = "0.1.0"
