"""The command line: finds a command, calls it, turns exceptions into exit codes.

0 every submission passed, 1 some verdict is not `passed`, 2 usage, 3 harness or machine failure.
Commands are imported only when they are called, so `--help` and `leaderboard` load no torch.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import keyword
import os
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO, cast

import click

from harness import __version__
from harness.errors import DeviceError, HarnessError, UsageError

#: Name -> what it does, in one line; the module of that name in harness.commands has `command`.
COMMANDS = {
    "run": "Check, time and store submissions, and show their rank.",
    "leaderboard": "Who is ahead, by how much, and how sure that is.",
    "show": "One run in full: cases, errors, samples, doubts, log.",
    "compare": "Two submissions side by side: faster, slower, or too close to call.",
    "gate": "CI: every submission right, none slower than before.",
    "new": "Write a working starting point for a submission.",
    "profile": "Kernels, times, bytes, share of the roofline; chrome trace.",
    "selftest": "Is this machine fit to rank: known lengths and controls.",
    "export": "Put runs into a bundle that another machine can check.",
    "import": "Take the runs of a bundle into the results database.",
    "verify": "Check a bundle: digest, signature, arithmetic, eligibility.",
    "replay": "Make a run of a bundle again, on the same inputs.",
    "doctor": "What this machine can do, and what it lacks.",
}

#: Commands that start a judge or look for what one needs: namespaces, Landlock, sealed memory.
_ONLY_ON_LINUX = frozenset({"run", "compare", "gate", "profile", "selftest", "replay", "doctor"})


class LazyGroup(click.Group):
    """Knows its commands by name and loads the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in _ONLY_ON_LINUX and sys.platform != "linux":
            raise DeviceError(
                f"`harness {cmd_name}` needs Linux, and this is {sys.platform}: use a container, "
                "or WSL 2 on Windows"
            )
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        module = importlib.import_module(f"harness.commands.{name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a guess at what was meant."""
        import difflib

        name = args[0] if args else ""
        if name and name not in COMMANDS and not name.startswith("-"):
            close = difflib.get_close_matches(name, COMMANDS, n=1)
            guess = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"No such command {name!r}.{guess}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table above: their own help would load all of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="harness")
@click.option("--debug", is_flag=True, help="Show the traceback of a harness failure.")
@click.pass_context
def main_group(ctx: click.Context, debug: bool) -> None:
    """Judge, time and rank GPU-kernel submissions honestly.

    Start with: harness run submissions/torch_dequant.py
    """
    ctx.obj = {"debug": debug}


class PatientOutput:
    """An output whose reader may go away (`| head`): a verdict's exit code survives that."""

    def __init__(self, stream: TextIO, forgiven: type[OSError] = BrokenPipeError) -> None:
        self._stream, self._forgiven = stream, forgiven

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except self._forgiven:
            return self._give_up(len(text))

    def flush(self) -> None:
        try:
            self._stream.flush()
        except self._forgiven:
            self._give_up(0)

    def _give_up(self, written: int) -> int:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def main() -> None:
    """Entry point of the `harness` program."""
    from harness.environment import installed

    sys.path[:] = installed(sys.path)  # rich, too, imports what it can get
    if sys.stdout is None:  # closed before we were started
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as we live
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as we live
    sys.stdout = cast(TextIO, PatientOutput(sys.stdout))
    # What is said there is help: that nobody can read it is no reason to lose a run.
    sys.stderr = cast(TextIO, PatientOutput(sys.stderr, OSError))
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Carry out one command line and return its exit code; says on stderr why it is not 0 or 1."""
    debug = "--debug" in arguments or bool(os.environ.get("HARNESS_DEBUG"))
    # --debug is welcome anywhere on the line.
    arguments = [argument for argument in arguments if argument != "--debug"]
    for argument in arguments:
        if not _is_text(argument):
            _say(f"{argument!r}: is no UTF-8; rename the file, or write the name as text")
            return 2
    try:
        code = main_group.main(arguments, prog_name="harness", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return 2
    except click.ClickException as error:
        _say(error.format_message() + _hint(error))
        return 2
    except click.Abort as abort:
        _say("; ".join(["interrupted", *getattr(abort.__context__, "__notes__", ())]))
        return 130
    except HarnessError as error:
        if debug:
            _say(traceback.format_exc())
        _say(str(error))
        _flush_or_drop()
        return 2 if isinstance(error, UsageError) else 3
    except OSError as error:
        if debug:
            _say(traceback.format_exc())
        if isinstance(error, FileNotFoundError) and _folder_is_gone():
            _say("the current folder does not exist any more; cd to one that does")
            return 2
        if error.filename is not None:
            _say(f"{error.filename}: {error.strerror or error}")
        else:  # our own output: a full disk behind `> FILE`
            _say(f"the output cannot be written ({error.strerror or error})")
        _flush_or_drop()
        return 2 if _is_users(error, arguments) else 3
    except Exception:  # noqa: BLE001 - a fault of ours; Python's 1 would read as a failed submission
        _say(f"a fault of the harness, please report it\n{traceback.format_exc()}")
        _flush_or_drop()
        return 3


#: Python's questions about a path (`is_file`) raise these instead of an answer, and `open` does.
_OF_A_PATH = {errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR}


def _is_users(error: OSError, arguments: list[str]) -> bool:
    """Whether what cannot be is a path that the command line names; any other is the machine's."""
    if error.errno not in _OF_A_PATH or not isinstance(error.filename, str):
        return False
    if error.errno == errno.ENAMETOOLONG:
        return True  # none of ours is, be it only that an ending was added
    if _folder_is_gone():
        return False
    place = Path(error.filename).absolute()
    given = [word for a in arguments for word in (a, a.partition("=")[2]) if word]
    return any(Path(word).absolute() in (place, *place.parents) for word in given)


def _folder_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _flush_or_drop() -> None:
    """Where stdout cannot take what it holds, Python would end with a code of its own, 120."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _hint(error: click.ClickException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f" (see `{error.ctx.command_path} --help`)"
    return ""


def _is_text(argument: str) -> bool:
    """Whether its bytes are UTF-8, whatever the locale took them for."""
    try:
        os.fsencode(argument).decode("utf-8")
    except UnicodeError:
        return False
    return True


def _say(message: str) -> None:
    """Print a message on stderr.  Names of files and databases in it are other people's.

    Each line begins with our name: GitHub's runner would take one that begins with `::`, with or
    without spaces before it, for a command.  The old form, `##[`, it looks for anywhere.
    """
    from harness.render.text import lines

    if os.environ.get("GITHUB_ACTIONS"):
        message = message.replace("##[", "## [")
    for line in lines(message.rstrip(), sys.stderr.encoding or "ascii"):
        print(f"harness: {line}", file=sys.stderr)
