"""Workers build what they share once."""

import pytest

from tests.shared import built_once


class Factory:
    def __init__(self, folder):
        self.folder = folder

    def getbasetemp(self):
        self.folder.mkdir(exist_ok=True)
        return self.folder


def test_two_workers_build_once_and_a_failure_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    calls = []

    def build(folder):
        folder.mkdir()
        calls.append(folder)
        if len(calls) == 1:
            raise OSError("half built")

    with pytest.raises(OSError):
        built_once(Factory(tmp_path / "gw0"), "thing", build)
    first = built_once(Factory(tmp_path / "gw1"), "thing", build)
    assert first == built_once(Factory(tmp_path / "gw0"), "thing", build) == tmp_path / "thing" and len(calls) == 2


def test_a_process_of_its_own_keeps_to_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    assert built_once(Factory(tmp_path / "one"), "thing", lambda f: f.mkdir()) == tmp_path / "one" / "thing"
