"""Makes ``python -m ndpp.cli`` run the command."""

import sys

from ndpp.cli import load

load()(sys.argv[1:])
