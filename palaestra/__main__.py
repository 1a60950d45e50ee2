"""`python -m palaestra` is the command `palaestra`."""

from palaestra.cli import program

program()
