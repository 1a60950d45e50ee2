"""The site, built once for all tests of all workers."""

import pytest
from palaestra.cli import docs
from palaestra.site import build

from tests.shared import built_once
from tests.site.links import Site


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    pytest.importorskip("zensical", reason=f"needs the generator of the site: {build.INSTALL}")
    return built_once(tmp_path_factory, "site", lambda target: build.build(target, docs.parsers()))


@pytest.fixture(scope="session")
def site(folder):
    return Site(folder)
