"""Games of two players whose rules a model wrote as a Gym class: played in the sandbox alone."""
