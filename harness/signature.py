"""SSH signatures of a bundle's digest, by `ssh-keygen -Y`: keys that everybody has already."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from harness.errors import HarnessError, UsageError

#: Keeps a signature made for something else from counting here.
NAMESPACE = "kernel-harness-bundle"
_TIMEOUT_S = 60


def sign(digest: str, key: Path) -> str:
    """Sign with a private key, or a public one whose private half an agent holds.

    Raises UsageError when that fails.
    """
    done = _keygen(["-Y", "sign", "-f", str(key), "-n", NAMESPACE], digest)
    if done.returncode:
        raise UsageError(f"{key}: cannot sign with it ({_reason(done)})")
    return done.stdout.decode("ascii")


def check(digest: str, signature: str, signers: Path | None) -> str:
    """Who signed, in words.  Raises UsageError when the signature does not hold.

    With `signers` (an allowed_signers file, see ssh-keygen(1)) the key must be in it; without, the
    words say that nobody vouches for the key.
    """
    with tempfile.NamedTemporaryFile(suffix=".sig") as file:
        file.write(signature.encode("utf-8", "replace"))
        file.flush()
        if signers is None:
            done = _keygen(["-Y", "check-novalidate", "-n", NAMESPACE, "-s", file.name], digest)
            _refuse_bad(done)
            found = re.search(rb"SHA256:\S+", done.stdout)
            key = found.group().decode("ascii") if found else "an unnamed key"
            return f"signed with key {key}, which nobody vouches for (--signers FILE)"
        who = _keygen(["-Y", "find-principals", "-s", file.name, "-f", str(signers)], digest)
        names = who.stdout.decode("utf-8", "replace").split()
        if who.returncode or not names:
            raise UsageError(f"signed with a key that is not in {signers} ({_reason(who)})")
        options = ["-f", str(signers), "-I", names[0], "-n", NAMESPACE, "-s", file.name]
        _refuse_bad(_keygen(["-Y", "verify", *options], digest))
        return f"signed by {names[0]}"


def _refuse_bad(done: subprocess.CompletedProcess[bytes]) -> None:
    if done.returncode:
        raise UsageError(f"the signature does not hold ({_reason(done)})")


def _keygen(options: list[str], digest: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", *options],
            input=digest.encode("ascii", "replace"),
            capture_output=True,
            timeout=_TIMEOUT_S,
        )
    except FileNotFoundError:
        raise HarnessError("ssh-keygen is missing; install OpenSSH's client") from None
    except subprocess.TimeoutExpired:
        raise HarnessError("ssh-keygen did not answer; use a key without a passphrase") from None


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"ssh-keygen exited with {done.returncode}"
