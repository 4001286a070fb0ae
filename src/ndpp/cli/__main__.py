"""Makes ``python -m ndpp.cli`` run the command."""

from _ndpp_command import main

main()
