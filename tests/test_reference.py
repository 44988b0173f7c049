"""The oracle against slow arithmetic in fractions, the layouts, the diagnosis."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

import reference
from harness import check
from harness.model import Failed, Passed, Tolerance
from reference import diagnose, exact, to_blocked
from reference.oracle import decode, to_half
from task import FAMILIES, generate_input

ROOT = Path(__file__).parents[1]
TOLERANCE = Tolerance(1e-3, 1e-3)
Data = tuple[torch.Tensor, ...]


def e2m1(code: int) -> Fraction:
    exponent, mantissa = code >> 1 & 3, code & 1
    size = Fraction(mantissa, 2) if exponent == 0 else (1 + Fraction(mantissa, 2)) * 2**exponent / 2
    return -size if code & 8 else size


def e4m3(code: int) -> Fraction | None:
    exponent, mantissa = code >> 3 & 15, code & 7
    if code & 0x7F == 0x7F:
        return None
    if exponent == 0:
        size = Fraction(mantissa, 8 * 64)
    else:
        size = (1 + Fraction(mantissa, 8)) * Fraction(2) ** (exponent - 7)
    return -size if code & 0x80 else size


def slow(data: Data, row: int, batch: int) -> tuple[Fraction, Fraction] | None:
    """The sum and the sum of absolutes, None where it is NaN."""
    a, b, sfa, sfb = (
        t.view(torch.uint8)[r, :, batch].tolist()
        for t, r in zip(data[:4], (row, 0, row, 0), strict=True)
    )
    total = absolute = Fraction(0)
    for block, (code_a, code_b) in enumerate(zip(sfa, sfb, strict=True)):
        scale_a, scale_b = e4m3(code_a), e4m3(code_b)
        if scale_a is None or scale_b is None:
            return None
        for i in range(8 * block, 8 * block + 8):
            for shift in (0, 4):
                product = e2m1(a[i] >> shift & 15) * e2m1(b[i] >> shift & 15)
                total += product * scale_a * scale_b
                absolute += abs(product * scale_a * scale_b)
    return total, absolute


def test_every_e2m1_code_decodes() -> None:
    found = decode(torch.arange(16, dtype=torch.uint8)).tolist()
    assert found == [float(e2m1(code)) for code in range(16)]
    assert math.copysign(1, found[8]) == -1


def test_every_e4m3_code_scales() -> None:
    data = list(generate_input(256, 64, 1, 1))
    for tensor in data[:4]:
        tensor.view(torch.uint8).zero_()
    data[0].view(torch.uint8)[:, 0, 0] = 0x02  # 1
    data[1].view(torch.uint8)[0, 0, 0] = 0x02
    data[2].view(torch.uint8)[:, 0, 0] = torch.arange(256, dtype=torch.uint8)
    data[3].view(torch.uint8)[0, 0, 0] = 0x38
    found = exact(tuple(data)).exact[:, 0, 0].tolist()
    for code, value in enumerate(found):
        right = e4m3(code)
        assert math.isnan(value) if right is None else value == float(right)


@pytest.mark.parametrize("inputs", FAMILIES)
def test_the_oracle_equals_fractions_in_every_family(inputs: str) -> None:
    data = generate_input(128, 192, 2, 3, inputs=inputs)
    truth = exact(data)
    for row in range(0, 128, 9):
        for batch in range(2):
            right = slow(data, row, batch)
            value = truth.exact[row, 0, batch].item()
            if right is None:
                assert math.isnan(value) and truth.expected[row, 0, batch].isnan()
                continue
            assert Fraction(value) == right[0]
            assert Fraction(truth.terms[row, 0, batch].item()) == right[1]


def test_the_oracle_is_the_same_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = generate_input(256, 1088, 2, 3, inputs="normal")
    whole = exact(data)
    monkeypatch.setattr("reference.oracle.CHUNK_CPU", 1000)
    assert torch.equal(exact(data).exact, whole.exact)


def test_the_truth_comes_from_a_b_and_plain_scales_alone() -> None:
    data = generate_input(128, 128, 2, 3, inputs="all_codes")
    before = exact(data)
    assert before.expected.dtype is torch.float16 and before.expected.shape == (128, 1, 2)
    for position in (4, 5):
        data[position].view(torch.uint8).fill_(0x7F)
    for position in (1, 3):
        data[position].view(torch.uint8)[1:] = 0xFF
    assert torch.equal(exact(data).expected, before.expected)


def test_rounding_happens_once() -> None:
    one = 1.0 + 2**-11  # halfway between two float16 numbers, to even is down
    just_above = one + 2**-40  # float32 would round this back to the tie
    values = torch.tensor([one, just_above, -just_above, 1 + 3 * 2**-11, 65519.99, 65520.0])
    values = torch.tensor(
        [*values[:0], one, just_above, -just_above, 1 + 3 * 2**-11, 65519.99, 65520.0],
        dtype=torch.float64,
    )
    found = to_half(values).tolist()
    up = 1 + 2**-10
    assert found == [1.0, up, -up, 1 + 2**-9, 65504.0, math.inf]
    assert values[1].to(torch.float16).item() == 1.0  # the trap that this avoids


def test_rounding_is_numpys_on_random_numbers() -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(20_000, generator=generator, dtype=torch.float64)
    values *= 2.0 ** torch.randint(-30, 12, (20_000,), generator=generator)
    right = torch.from_numpy(values.numpy().astype("float16"))
    assert torch.equal(to_half(values), right)


@pytest.mark.parametrize("shape", [(128, 64, 1), (256, 192, 2), (384, 1536, 3), (128, 2112, 2)])
def test_permuted_scales_are_to_blocked_byte_for_byte(shape: tuple[int, int, int]) -> None:
    data = generate_input(*shape, 7, inputs="normal")
    for plain, tiles in ((data[2], data[4]), (data[3], data[5])):
        for batch in range(shape[2]):
            blocked = to_blocked(plain[:, :, batch])
            storage = tiles[..., batch].permute(2, 4, 0, 1, 3)
            assert storage.is_contiguous() and blocked.dtype is torch.float8_e4m3fn
            assert torch.equal(storage.flatten().view(torch.uint8), blocked.view(torch.uint8))


def scaled_mm(a: Any, b: Any, scale_a: Any, scale_b: Any, *, bias: None, out_dtype: Any) -> Any:
    """torch._scaled_mm on NVFP4 in float64, from scales in tiles: a second road to the answer."""

    def matrix(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        codes = packed.view(torch.uint8)
        values = decode(torch.stack([codes & 15, codes >> 4], dim=2).view(codes.shape[0], -1))
        i, j = torch.arange(codes.shape[0])[:, None], torch.arange(codes.shape[1] // 8)
        tile = i // 128 * (codes.shape[1] // 32) + j // 4
        offset = tile * 512 + i % 32 * 16 + i % 128 // 32 * 4 + j % 4
        plain = scales.float()[offset].repeat_interleave(16, dim=1)
        return (values * plain).double()

    assert out_dtype is torch.float16 and bias is None
    return to_half(matrix(a, scale_a) @ matrix(b.t(), scale_b).t())


@pytest.mark.parametrize("inputs", ["competition", "all_codes", "normal", "impulse"])
def test_the_contests_reference_agrees_with_the_oracle(
    inputs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    data = generate_input(256, 192, 3, 5, inputs=inputs)
    found = reference.ref_kernel(data)
    assert found.stride() == data[6].stride() and data[6].isnan().all()
    assert torch.equal(found, exact(data).expected)


def test_a_cpu_has_no_fp4_matrix_units() -> None:
    assert not reference.supports_scaled_mm("cpu")


def test_compulsory_bytes_of_the_ranked_shapes() -> None:
    assert reference.compulsory_bytes(7168, 16384, 1) == 66_083_840
    assert reference.compulsory_bytes(4096, 7168, 8) == 132_218_368
    assert reference.compulsory_bytes(7168, 2048, 4) == 33_092_096


def submission(name: str) -> Callable[[Data], torch.Tensor]:
    spec = importlib.util.spec_from_file_location(name, ROOT / "submissions" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel: Callable[[Data], torch.Tensor] = module.custom_kernel
    return kernel


def examine(inputs: str, data: Data, got: torch.Tensor) -> Passed | Failed:
    truth = exact(data)
    return check.examine(
        got,
        truth.expected,
        terms=truth.terms,
        exact=truth.exact,
        tolerance=TOLERANCE,
        slack=reference.strict_slack(inputs),
    )


@pytest.mark.parametrize("inputs", FAMILIES)
@pytest.mark.parametrize("name", ["torch_dequant", "template"])
def test_our_plain_submissions_pass_the_strict_tier(name: str, inputs: str) -> None:
    kernel = submission(name)
    for shape in ((128, 64, 3), (256, 2112, 2)):
        data = generate_input(*shape, 3, inputs=inputs)
        found = examine(inputs, data, kernel(data))
        assert isinstance(found, Passed), found
        assert found.check.strict_mismatches == 0


def test_float16_accumulation_passes_the_contests_data_and_fails_others() -> None:
    def kernel(data: Data) -> torch.Tensor:
        a, b, sfa, sfb = (t.view(torch.uint8) for t in data[:4])
        total = torch.zeros(a.shape[0], dtype=torch.float16)
        for block in range(a.shape[1] // 8):
            part = slice(8 * block, 8 * block + 8)
            low = decode(a[:, part, 0] & 15) * decode(b[0, part, 0] & 15)
            high = decode(a[:, part, 0] >> 4) * decode(b[0, part, 0] >> 4)
            scale = data[2][:, block, 0].float() * data[3][0, block, 0].float()
            total += ((low + high).sum(dim=1) * scale).half()
        return total[:, None, None]

    easy = generate_input(128, 1024, 1, 3)
    assert isinstance(examine("competition", easy, kernel(easy)), Passed)
    for inputs in ("normal", "cancellation", "all_codes"):
        data = generate_input(128, 2048, 1, 3, inputs=inputs)
        assert isinstance(examine(inputs, data, kernel(data)), Failed), inputs


def with_codes(
    data: Data, change: Callable[[torch.Tensor], torch.Tensor], *which: int
) -> torch.Tensor:
    """The output of a kernel that reads some tensors through `change`."""
    other = list(data)
    for i in which:
        other[i] = change(data[i].view(torch.uint8)).view(data[i].dtype)
    return exact(tuple(other)).expected


def flushed(scales: torch.Tensor) -> torch.Tensor:
    return torch.where(scales < 8, 0, scales)


def plain_order(data: Data) -> torch.Tensor:
    batches = [
        to_blocked(data[2][:, :, i]).view(data[2].shape[:2]) for i in range(data[2].shape[2])
    ]
    scales = torch.stack(batches).permute(1, 2, 0)
    return exact((*data[:2], scales, *data[3:])).expected


def half_of_k(data: Data) -> torch.Tensor:
    width = data[0].shape[1] // 2
    cut = [t[:, : width // (1, 1, 8, 8)[i]] for i, t in enumerate(data[:4])]
    return exact(tuple(cut)).expected


def ones(codes: torch.Tensor) -> torch.Tensor:
    return torch.full_like(codes, 0x38)


def first_batch(codes: torch.Tensor) -> torch.Tensor:
    return codes[:, :, :1].expand_as(codes).contiguous()


WRONG: list[tuple[str, str, Callable[[Data], torch.Tensor]]] = [
    ("high nibble", "all_codes", lambda d: with_codes(d, lambda c: c & 15, 0, 1)),
    ("sign bit", "all_codes", lambda d: with_codes(d, lambda c: c & 0x77, 0, 1)),
    ("nibbles of a byte", "normal", lambda d: with_codes(d, lambda c: c >> 4 | c << 4, 0)),
    ("mantissa", "normal", lambda d: with_codes(d, lambda c: c & 0xF8, 2, 3)),
    ("subnormal scales were flushed", "masked", lambda d: with_codes(d, flushed, 2, 3)),
    ("zero, as if subnormal", "subnormal", lambda d: with_codes(d, flushed, 2, 3)),
    ("plain order", "normal", plain_order),
    ("scales of a were ignored", "normal", lambda d: with_codes(d, ones, 2)),
    ("scales of b were ignored", "normal", lambda d: with_codes(d, ones, 3)),
    ("first 512 of K=1024", "all_codes", half_of_k),
    ("row +1", "normal", lambda d: exact(d).expected.roll(-1, 0)),
    ("batch 0: is the stride", "normal", lambda d: first_batch(exact(d).expected)),
    ("b of batch 0", "normal", lambda d: with_codes(d, first_batch, 1, 3)),
    ("0.25 times", "normal", lambda d: exact(d).expected * 0.25),
    ("every output is zero", "normal", lambda d: torch.zeros_like(d[6])),
    ("no output is finite", "normal", lambda d: d[6]),
]


@pytest.mark.parametrize(("hint", "inputs", "kernel"), WRONG, ids=[w[0] for w in WRONG])
def test_the_diagnosis_names_known_bugs(
    hint: str, inputs: str, kernel: Callable[[Data], torch.Tensor]
) -> None:
    data = generate_input(256, 1024, 3, 5, inputs=inputs)
    got = kernel(data)
    assert isinstance(examine(inputs, data, got), Failed)
    assert hint in diagnose(data, got)


def test_the_diagnosis_says_from_where_to_where_a_sum_may_have_ended() -> None:
    data = generate_input(128, 256, 2, 5, inputs="normal")
    data[2].view(torch.uint8)[:, 6:8] = 0  # the last two blocks of the first half add nothing
    assert "only the first 96 to 128 of K=256 were summed" in diagnose(data, half_of_k(data))


def test_the_diagnosis_names_the_batch_that_is_wrong() -> None:
    data = generate_input(128, 256, 4, 5, inputs="normal")
    got = exact(data).expected
    got[:, :, 2] += 1
    assert "wrong: 2 (of 4)" in diagnose(data, got)


def test_the_diagnosis_is_silent_about_what_it_does_not_know() -> None:
    data = generate_input(128, 256, 1, 5, inputs="normal")
    noise = torch.randn(128, 1, 1, generator=torch.Generator().manual_seed(1)).half()
    assert diagnose(data, exact(data).expected + 10 * noise) == ""


@pytest.mark.parametrize("inputs", FAMILIES)
def test_the_diagnosis_survives_any_output(inputs: str) -> None:
    data = generate_input(128, 128, 2, 5, inputs=inputs)
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        words = torch.randint(-(2**15), 2**15, (2, 128, 1), generator=generator, dtype=torch.int16)
        assert isinstance(diagnose(data, words.view(torch.float16).permute(1, 2, 0)), str)
    partly = exact(data).expected
    partly[::2] = torch.nan
    assert isinstance(diagnose(data, partly), str)
