"""`python -m palaestra` is the command `palaestra`."""

import sys

from palaestra.cli import main

sys.exit(main())
