"""Learners that are no language models: simulators in arrays, PPO and Q learning on the project's
objectives, and language models that guide them.
"""
