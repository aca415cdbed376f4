"""`python -m weft`, for where the `weft` command is not on the path."""

from weft.cli import main

main()
