"""Studies of the check-up that are no rows of the literature. `catalogue.CHECKS` has their names."""
