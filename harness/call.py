"""`python -m harness.call FILE [m=..,k=..,l=..]`: one plain call of a submission, for a profiler.

No judge and no sandbox: only for code of one's own.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch

from harness.task import find_root, load, load_modules, parse_shape


def main(arguments: list[str]) -> None:
    """Call the file's custom_kernel twice on a ranked shape; the second call is the warm one."""
    file = Path(arguments[0])
    root = find_root(None, Path.cwd(), file)
    task = load(root)
    shape = parse_shape(arguments[1], task) if len(arguments) > 1 else task.ranked[0]
    modules = load_modules(root)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = modules.generate_input(
        **dict(shape.axes), seed=task.ranked_seed, inputs="competition", device=device
    )
    spec = importlib.util.spec_from_file_location("submission", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["submission"] = module
    spec.loader.exec_module(module)
    for _ in range(2):
        module.custom_kernel(data)
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1:])
