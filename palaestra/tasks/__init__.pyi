"""The public names of `pl.tasks`, and where each lies."""

# ruff: noqa: I001

from .files import (
    FileTasks as FileTasks,
)
from .gym import (
    Gym as Gym,
)
from .mixture import (
    Mixture as Mixture,
    part_task as part_task,
)
from .options import (
    add_options as add_options,
    contains_options as contains_options,
    letter_options as letter_options,
    option_texts as option_texts,
)
from .sources import (
    open_records as open_records,
)
