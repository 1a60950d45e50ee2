"""Each file of errands is an afternoon in one folder: what an errand leaves there, a later one may use."""

from contextlib import chdir

import pytest
from palaestra.tasks import files


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """An empty folder, the working directory of the file's tests."""
    files.load.cache_clear()  # as in another process: other folders have files of the same names
    place = tmp_path_factory.mktemp("errands")
    with chdir(place):
        yield place
