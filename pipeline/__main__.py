"""`python -m pipeline` is the console script."""

import sys

from pipeline.cli import main

sys.exit(main())
