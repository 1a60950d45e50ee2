"""What a method needs of its user: columns of data, models by role, worlds, least numbers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
