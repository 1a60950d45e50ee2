"""What a run says while it evaluates and samples."""

import palaestra as pl
from palaestra.run import driver
from palaestra.terminal.display import Pulse

SMALL = {"steps": 2, "evaluate": 2, "set": {"schedule.prompts": 2, "collect.links.0.n": 2}}


def test_evaluations_and_steps_say_that_they_go_on(tmp_path, monkeypatch):
    begun, told = [], []

    class Recorded(Pulse):
        def __init__(self, name, **more):
            begun.append(name)
            super().__init__(name, **more)

        def __exit__(self, *given):
            told.append(self.tell())
            super().__exit__(*given)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(driver, "Pulse", Recorded)
    run = pl.train("rloo", task="chain", max_tokens=4, **SMALL)
    held = "held-out problems"
    assert begun == [f"{held} before the first step", "step 1", "step 2", f"{held} after step 2"]
    counts = [int(text.removesuffix(" tokens sampled")) for text in told]
    assert min(counts) > 0 and sum(counts[1:3]) == run.summary["sampled_tokens"]
    begun.clear()
    pl.train("rloo", task="chain", max_tokens=4, quiet=True, **SMALL)
    assert begun == []
