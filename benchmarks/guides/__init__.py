"""When a language model's words help a classical learner: three studies, see docs/guides.md."""
