"""Studies of a model: what training did to it, and what it knows."""
