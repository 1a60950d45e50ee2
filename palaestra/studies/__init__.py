"""What training did to a model: answers that are kept as they are sampled, and the page that tells what
they show. `docs/studies.md` shows how studies are used.
"""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
