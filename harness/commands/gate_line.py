"""What a gate's command line cannot mean: options that a file's name brought."""

from __future__ import annotations

import os
from collections import Counter

import click

from harness.errors import UsageError


class GateCommand(click.Command):
    """Refuses a line on which a shell has put a file called `--baseline=slow.py` for `*.py`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, once no option can be a stranger's.  Raises UsageError."""
        for word in args:
            if word.startswith("-") and os.path.lexists(word):
                raise UsageError(
                    f"{word}: is a file here and reads as an option; quote the pattern, which the "
                    "gate expands itself, or begin it with ./"
                )
            if word == "--":
                break  # what follows are files, whatever they are called
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        for option, count in Counter(given).items():
            if isinstance(option, click.Option) and count > 1 and _takes_one_value(option):
                raise UsageError(f"{option.opts[0]} is given {count} times; give it once")
        return super().parse_args(ctx, args)


def _takes_one_value(option: click.Option) -> bool:
    return not (option.multiple or option.is_flag or option.count)
