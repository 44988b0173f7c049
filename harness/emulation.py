"""Worker's side: NVFP4 `torch._scaled_mm` and `scaled_mm`, exactly, where no FP4 matrix unit is.

Lets a contest submission be *checked* on any machine.  Its times mean nothing elsewhere, so a run
that used this carries the doubt `emulated` and is not ranked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

#: Values of the 16 e2m1 codes (OCP MX specification 1.0, table 5).
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
BLOCK = 16
#: How much is decoded at a time.
CHUNK_BYTES = 256 << 20


class _Used:
    flag = False


def used() -> bool:
    """Whether the submission has called an emulated function in this process."""
    return _Used.flag


def install() -> None:
    """Put the emulations in front of torch's own functions, which keep every other dtype."""
    torch._scaled_mm = _front(torch._scaled_mm, _scaled_mm)
    functional: Any = torch.nn.functional
    if hasattr(functional, "scaled_mm"):
        functional.scaled_mm = _front(functional.scaled_mm, _functional_scaled_mm)


def _front(original: Callable[..., Any], emulated: Callable[..., Any]) -> Callable[..., Any]:
    def call(a: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if a.dtype is not torch.float4_e2m1fn_x2 or a.device.type == "meta":
            return original(a, *arguments, **options)
        _Used.flag = True
        return emulated(a, *arguments, **options)

    return call


def _scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch._scaled_mm of packed e2m1 [M, K/2] and [K/2, N], scales in the 128x4 order."""
    if scale_result is not None or use_fast_accum:
        raise ValueError(
            "Invalid scaling configuration: NVFP4 takes no scale_result, no fast accum"
        )
    result = matmul(a, b, scale_a, scale_b, out_dtype or torch.bfloat16, bias)
    return result if out is None else out.copy_(result)


def _functional_scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: torch.Tensor | None = None,
    output_dtype: torch.dtype | None = torch.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> torch.Tensor:
    """torch.nn.functional.scaled_mm with BlockWise1x16 scales, with or without a global scale."""
    scales_a, scales_b = _listed(scale_a), _listed(scale_b)
    result = matmul(a, b, scales_a[0], scales_b[0], torch.float64, None)
    for extra in (*scales_a[1:], *scales_b[1:]):
        result = result * extra.double()
    if bias is not None:
        result = result + bias.double()
    return result.to(output_dtype or torch.bfloat16)


def _listed(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, list | tuple) else [value]


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """[M, N] of `out_dtype`, summed in float64 and rounded once.

    Raises ValueError, beginning as torch's own does, when the scales do not fit the operands.
    """
    m, n, k = a.shape[0], b.shape[1], 2 * a.shape[1]
    if b.dtype is not a.dtype or 2 * b.shape[0] != k or k % 32 or n % 16:
        raise ValueError(
            f"mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {b.shape[0]}x{n})"
        )
    right = decode(b.t(), plain_scales(scale_b, n, k))
    rows = max(1, CHUNK_BYTES // (8 * k))
    left_scales = plain_scales(scale_a, m, k)
    parts = [
        decode(a[i : i + rows], left_scales[i : i + rows]) @ right.t() for i in range(0, m, rows)
    ]
    result = torch.cat(parts)
    if bias is not None:
        result = result + bias.double()
    return result.to(out_dtype)


def plain_scales(blocked: torch.Tensor, rows: int, k: int) -> torch.Tensor:
    """Undo the 128x4 tiling (cuBLAS "VEC16_UE4M3"): float64 [rows, K/16]."""
    columns = -(-k // BLOCK)
    tiles_m, tiles_k = -(-rows // 128), -(-columns // 4)
    if blocked.dtype is not torch.float8_e4m3fn or blocked.numel() != tiles_m * tiles_k * 512:
        raise ValueError(
            f"Invalid scaling configuration: expected {tiles_m * tiles_k * 512} float8_e4m3fn "
            f"scales in 128x4 tiles, got {blocked.numel()} of {blocked.dtype}"
        )
    if not blocked.is_contiguous():
        raise ValueError("Invalid scaling configuration: scales must be contiguous")
    tiles = blocked.view(torch.uint8).reshape(tiles_m, tiles_k, 32, 4, 4)
    flat = tiles.permute(0, 3, 2, 1, 4).reshape(tiles_m * 128, tiles_k * 4)
    return flat[:rows, :columns].contiguous().view(torch.float8_e4m3fn).double()


def decode(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Packed e2m1 [R, K/2] times its scales [R, K/16]: float64 [R, K], exact."""
    table = torch.tensor(E2M1 + tuple(-v for v in E2M1), dtype=torch.float64, device=packed.device)
    codes = packed.view(torch.uint8)
    both = torch.stack((codes & 15, codes >> 4), dim=-1).reshape(codes.shape[0], -1)
    values = table[both.int()]
    blocks = values.view(values.shape[0], -1, BLOCK) * scales[:, :, None]
    return blocks.view(values.shape)
