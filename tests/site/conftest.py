"""The site, built once for all tests."""

import pytest
from palaestra.cli import docs
from palaestra.site import build

from tests.site.links import Site


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    pytest.importorskip("zensical", reason=f"needs the generator of the site: {build.INSTALL}")
    target = tmp_path_factory.mktemp("built") / "site"
    return build.build(target, docs.parsers())


@pytest.fixture(scope="session")
def site(folder):
    return Site(folder)
