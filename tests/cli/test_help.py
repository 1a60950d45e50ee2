"""The help of every verb."""

import pytest
from palaestra.cli.main import VERBS, main


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_prints_its_help(verb, capsys):
    """Also with a percent sign in a flag's value, as in `--skip-bad N|P%`."""
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    out = capsys.readouterr().out
    assert ended.value.code == 0 and out.startswith(f"usage: palaestra {verb} ")
    assert "%%" not in out
    with_data = (
        "train", "submit", "eval", "search", "play", "tournament", "gateway", "serve", "compare", "doctor", "edit", "study"
    )  # fmt: skip
    assert ("--skip-bad N|P%" in out) == (verb in with_data)
