"""Studies of the check-up that are no rows of the literature; `palaestra.catalogue` has their names."""
