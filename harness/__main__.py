"""`python -m harness`: the same as the `harness` program."""

from harness.cli import main

main()
