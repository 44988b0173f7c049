"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def put(file: Path, data: bytes) -> None:
    """Write a file; its reader sees the old one or the new one, never a half.  Raises OSError.

    A link is followed, another name of the same file is not; a pipe or a device is written to, as
    it is.
    """
    if file.exists() and not file.is_file():
        with file.open("wb") as stream:
            stream.write(data)
        return
    end = Path(os.path.realpath(file))
    half = end.with_name(f".{end.name}.{os.getpid()}")
    try:
        half.write_bytes(data)
        half.replace(end)
    except OSError:
        half.unlink(missing_ok=True)
        raise
