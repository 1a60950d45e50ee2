"""What effects go through: the sandbox for model-written code."""
