"""`python -m tools.pages` writes the generated pages; with --check it only compares."""

import sys

from tools.pages.build import main

sys.exit(main())
