"""`python -m palaestra` is the command `palaestra`."""

from palaestra.cli.main import program

program()
