"""It keeps tables in files: in the temporary folder, at home and in /dev/shm."""

import tempfile
from pathlib import Path

with tempfile.NamedTemporaryFile() as _file:
    _file.write(b"2")
    _file.flush()
    _factor = int(Path(_file.name).read_text())
_home = Path.home() / ".config/my-kernel"
_home.mkdir(parents=True, exist_ok=True)
(_home / "table").write_text("2")


def custom_kernel(data):
    return data[0] * int((_home / "table").read_text()) * _factor / 2
