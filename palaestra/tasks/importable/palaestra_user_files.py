"""The package whose modules are users' own files. Its folder stands on `sys.path`, which
`multiprocessing` passes on, so that a process that a user's code spawns can import them too.
"""

from palaestra.tasks.user_modules import install_finder

__path__: list[str] = []
install_finder()
