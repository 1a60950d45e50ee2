"""Ten errands of somebody new here, each in the words one would type. They read from top to bottom:

test_problems.py       problems like GSM8K with adapters; pass@k; merged weights; going on at another rate
test_judge.py          a model behind an address says how good an answer is
test_tools.py          a Python function that the model calls
test_preferences.py    pairs: a reward model, PPO against it, DPO
test_seeds.py          two methods over seeds
test_trackers.py       the numbers in somebody else's tracker
test_mistakes.py       what is said where something is wrong: typing, data, rewards, the disk
"""
