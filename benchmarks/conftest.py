"""Let benchmarks import what they share, however they are run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
