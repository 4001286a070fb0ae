"""``python -m ndpp.cli`` is the command, too."""

from ndpp.cli import main

main()
