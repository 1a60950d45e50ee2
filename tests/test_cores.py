"""Cores of a container: its quota counts as much as its processors."""

import math

import pytest
from palaestra.cores import cores, quota


def groups(tmp_path, own, **files):
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "groups" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(path.name.replace("_max", ".max").replace("cpu_cfs", "cpu.cfs")).write_text(text)
    return quota(tmp_path / "groups", tmp_path / "own")


def test_version_2(tmp_path):
    assert groups(tmp_path, "0::/a/b\n", a__b__cpu_max="150000 100000\n") == 1.5


def test_a_limit_above_counts(tmp_path):
    found = groups(tmp_path, "0::/a/b\n", a__b__cpu_max="max 100000\n", a__cpu_max="50000 100000\n")
    assert found == 0.5


def test_a_container_sees_its_own_group_as_the_root(tmp_path):
    assert groups(tmp_path, "0::/../elsewhere\n", cpu_max="300000 100000\n") == 3.0


def test_version_1(tmp_path):
    own = "4:memory:/a\n3:cpu,cpuacct:/a\n"
    place = "cpu,cpuacct__a__cpu_cfs"
    files = {f"{place}_quota_us": "250000\n", f"{place}_period_us": "100000\n"}
    assert groups(tmp_path, own, **files) == 2.5
    files[f"{place}_quota_us"] = "-1\n"
    assert groups(tmp_path, own, **files) == math.inf


@pytest.mark.parametrize("text", ["", "nonsense", "max", "x 100000"])
def test_what_cannot_be_read_is_no_limit(tmp_path, text):
    assert groups(tmp_path, "0::/a\n", a__cpu_max=text) == math.inf


def test_a_system_without_groups(tmp_path):
    assert quota(tmp_path / "none", tmp_path / "nothing") == math.inf


@pytest.mark.parametrize(("allowed", "n"), [(0.5, 1), (1.9, 1), (math.inf, None)])
def test_at_least_one_core_is_there(monkeypatch, allowed, n):
    there = cores()
    monkeypatch.setattr("palaestra.cores.quota", lambda: allowed)
    assert cores() == (n or there)
