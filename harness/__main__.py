"""`python -m harness`: the same as the `harness` program."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current folder: a pull request may add a click.py there

from harness.cli import main

main()
