"""Our submissions without a GPU: CUDA compiles and does not spill, the rest gives right answers."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
import torch

from reference import to_blocked
from task import FAMILIES, generate_input
from tests.strict import assert_strict

ROOT = Path(__file__).resolve().parents[1]
OURS = ("cuda_inline", "triton_graph", "scaled_mm", "cute_hybrid", "torch_compile")
CLEAN = "__global__ void f(float* p) { p[threadIdx.x] *= 2; }"
SPILLING = """
__global__ void __launch_bounds__(1024, 2) f(float* p, int n) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; i++) v[i] = p[i * n + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; i++) p[i * n + threadIdx.x] = v[95 - i] * v[i];
}
"""


def load(name: str, path: Path) -> Any:
    """A file as a module that nobody else sees."""
    spec = importlib.util.spec_from_loader(name, SourceFileLoader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compile_cuda() -> Any:
    return load("compile_cuda", ROOT / ".ci/compile_cuda")


@pytest.fixture(scope="module")
def nvcc(compile_cuda: Any) -> str:
    found = compile_cuda.find_nvcc()
    if found is None:
        pytest.skip("no nvcc")
    return str(found)


@pytest.mark.parametrize("name", OURS)
def test_a_submission_names_its_author_in_its_first_line(name: str) -> None:
    assert (ROOT / f"submissions/{name}.py").read_text().startswith("#!HARNESS author ")


def test_ci_finds_the_cuda_in_submissions_and_benchmarks(compile_cuda: Any) -> None:
    names = [name.split(":")[0] for name in compile_cuda.sources(ROOT)]
    assert "submissions/cuda_inline.py" in names
    assert "benchmarks/header_port.cu" in names


def test_ci_accepts_a_clean_kernel(compile_cuda: Any, nvcc: str) -> None:
    assert compile_cuda.problem(nvcc, CLEAN, "90a") is None


def test_ci_rejects_a_kernel_that_spills(compile_cuda: Any, nvcc: str) -> None:
    assert "spills" in compile_cuda.problem(nvcc, SPILLING, "90a")


def test_ci_rejects_what_does_not_compile(compile_cuda: Any, nvcc: str) -> None:
    assert "error" in compile_cuda.problem(nvcc, CLEAN.replace("float*", "flout*"), "90a")


@pytest.mark.parametrize("target", ("80", "90a", "100a"))
def test_cuda_inline_compiles_and_does_not_spill(compile_cuda: Any, nvcc: str, target: str) -> None:
    module = ROOT / "submissions/cuda_inline.py"
    texts = [
        t
        for n, t in compile_cuda.sources(ROOT).items()
        if n.startswith(f"submissions/{module.name}")
    ]
    assert [compile_cuda.problem(nvcc, text, target) for text in texts] == [None]


def test_permuted_scales_are_blocked_without_a_copy() -> None:
    blocked = load("scaled_mm", ROOT / "submissions/scaled_mm.py").blocked
    _, _, sfa, _, permuted, _, _ = generate_input(256, 192, 2, 1, inputs="normal")
    for i in range(2):
        view = blocked(permuted[..., i])
        assert view.untyped_storage().data_ptr() == permuted.untyped_storage().data_ptr()
        expected = to_blocked(sfa[:, :, i]).flatten()
        assert torch.equal(view.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_formula_of_torch_compile_is_right(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def uncompiled(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        return function

    monkeypatch.setattr(torch, "compile", uncompiled)
    module = load("torch_compile", ROOT / "submissions/torch_compile.py")
    data = generate_input(128, 448, 2, 2, inputs=family)
    assert_strict(data, module.custom_kernel(data), family)


def test_torch_compile_is_compiled_for_sizes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards are made before any backend is asked, so the one that compiles nothing shows them."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    module = load("torch_compile", ROOT / "submissions/torch_compile.py")
    with torch.compiler.set_stance("fail_on_recompile"):
        for shape in ((128, 64, 3), (256, 448, 5), (128, 64, 1), (128, 2048, 2), (384, 1088, 1)):
            data = generate_input(*shape, 4, inputs="normal")
            assert_strict(data, module.custom_kernel(data), "normal")


INTERPRET = f"""
import sys, warnings
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
warnings.simplefilter("ignore")
import test_submissions_compile as tests
module = tests.load("triton_graph", tests.ROOT / "submissions/triton_graph.py")
cases = [(family, (128, 192, 1)) for family in tests.FAMILIES]
cases += [("normal", (128, 64, 3)), ("all_codes", (256, 1088, 2))]
for family, shape in cases:
    data = tests.generate_input(*shape, 3, inputs=family)
    tests.assert_strict(data, module.custom_kernel(data), family)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_the_triton_kernel_is_right_under_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run(
        [sys.executable, "-c", INTERPRET], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-3000:]
