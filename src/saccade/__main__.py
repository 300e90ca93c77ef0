"""`python -m saccade` is the same program as `saccade`."""

import sys

from saccade.cli import main

sys.exit(main())
