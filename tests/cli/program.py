"""How tests start the program in a process of its own."""

import os
import sys

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
PROGRAM = [sys.executable, "-m", "saccade"]
