"""What generate_input promises: layout, determinism, and what each family contains."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness import task as tasks
from reference import exact
from task import FAMILIES, generate_input
from task.draw import Draw

ROOT = Path(__file__).parents[1]
HARD = FAMILIES[1:]


def codes(data: tuple[torch.Tensor, ...], position: int) -> torch.Tensor:
    return data[position].view(torch.uint8)


def distinct(values: torch.Tensor) -> list[float]:
    return sorted(set(values.flatten().tolist()))


def nibbles(packed: torch.Tensor) -> torch.Tensor:
    """[rows, K/2, L] -> [rows, K, L]."""
    both = torch.stack([packed & 15, packed >> 4], dim=2)
    return both.view(packed.shape[0], -1, packed.shape[2])


@pytest.mark.parametrize("inputs", FAMILIES)
def test_every_family_has_the_contests_shapes_dtypes_and_strides(inputs: str) -> None:
    m, k, batches = 256, 192, 3
    a, b, sfa, sfb, sfa_tiles, sfb_tiles, c = generate_input(m, k, batches, 1, inputs=inputs)
    fp4, fp8 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn
    assert (a.shape, a.stride(), a.dtype) == ((m, 96, 3), (96, 1, m * 96), fp4)
    assert (b.shape, b.stride(), b.dtype) == ((128, 96, 3), (96, 1, 128 * 96), fp4)
    assert (sfa.shape, sfa.stride(), sfa.dtype) == ((m, 12, 3), (12, 1, m * 12), fp8)
    assert (sfb.shape, sfb.stride(), sfb.dtype) == ((128, 12, 3), (12, 1, 128 * 12), fp8)
    strides = (16, 4, 512 * 3, 1, 512, 512 * 3 * 2)
    assert (sfa_tiles.shape, sfa_tiles.stride()) == ((32, 4, 2, 4, 3, 3), strides)
    strides = (16, 4, 512 * 3, 1, 512, 512 * 3)
    assert sfb_tiles.shape == (32, 4, 1, 4, 3, 3)
    assert [s for s, n in zip(sfb_tiles.stride(), sfb_tiles.shape, strict=True) if n > 1] == [
        s for s, n in zip(strides, sfb_tiles.shape, strict=True) if n > 1
    ]
    assert sfa_tiles.dtype is fp8 and sfb_tiles.dtype is fp8
    assert (c.shape, c.stride(), c.dtype) == ((m, 1, 3), (1, 1, m), torch.float16)
    assert c.isnan().all()


def test_permuted_scales_follow_the_tile_rule() -> None:
    data = generate_input(256, 192, 2, 5, inputs="normal")
    plain, tiles = codes(data, 2), codes(data, 4)
    rows, columns = torch.arange(256)[:, None], torch.arange(12)[None, :]
    picked = tiles[rows % 32, rows % 128 // 32, rows // 128, columns % 4, columns // 4]
    assert torch.equal(picked, plain)


@pytest.mark.parametrize("inputs", FAMILIES)
def test_the_same_seed_draws_the_same_and_another_seed_does_not(inputs: str) -> None:
    first, again, other = (generate_input(128, 64, 2, s, inputs=inputs) for s in (9, 9, 10))
    assert all(torch.equal(codes(first, i), codes(again, i)) for i in range(6))
    changed = [i for i in range(6) if not torch.equal(codes(first, i), codes(other, i))]
    assert changed


@pytest.mark.parametrize("inputs", ["competition", "all_codes", "normal", "impulse"])
def test_all_63_bits_of_a_seed_count(inputs: str) -> None:
    seeds = (7, 7 + 2**31, 7 + 2**32, 7 + 2**40, 7 + 2**62)
    drawn = {bytes(codes(generate_input(128, 64, 1, s, inputs=inputs), 0).flatten()) for s in seeds}
    assert len(drawn) == len(seeds)


def test_competition_draws_what_the_contest_draws() -> None:
    data = generate_input(256, 2048, 2, 1111)
    for position in (0, 1):
        share = (
            codes(data, position).flatten().bincount(minlength=4) / codes(data, position).numel()
        )
        assert share.shape == (4,) and (share - 0.25).abs().max() < 0.01
    for position in (2, 3):
        count = codes(data, position).flatten().bincount()
        assert count.nonzero().flatten().tolist() == [0x00, 0x38, 0x40]
        assert (count[count > 0] / count.sum() - 1 / 3).abs().max() < 0.02


def test_batches_and_rows_differ() -> None:
    a = codes(generate_input(128, 256, 3, 1), 0)
    assert len({bytes(row) for row in a[:, :, 0]}) == 128
    assert not torch.equal(a[:, :, 0], a[:, :, 1]) and not torch.equal(a[:, :, 1], a[:, :, 2])


@pytest.mark.parametrize("inputs", HARD)
def test_hard_families_poison_the_padding(inputs: str) -> None:
    data = generate_input(128, 64, 2, 3, inputs=inputs)
    assert (codes(data, 3)[1:] & 0x7F == 0x7F).all()
    assert len(distinct(codes(data, 1)[1:])) > 200


@pytest.mark.parametrize("inputs", [f for f in HARD if f not in ("overflow", "nan_scale")])
@pytest.mark.parametrize("shape", [(128, 64, 3), (384, 2112, 2), (128, 16384, 1)])
def test_answers_are_clear_of_float16s_largest_number(
    inputs: str, shape: tuple[int, int, int]
) -> None:
    found = exact(generate_input(*shape, 1111, inputs=inputs)).exact
    assert found.nan_to_num(torch.inf if inputs != "needles" else 0.0).abs().max() < 60_000


def test_all_codes_holds_all_codes_and_scales_with_a_mantissa() -> None:
    data = generate_input(128, 256, 1, 2, inputs="all_codes")
    assert distinct(nibbles(codes(data, 0))) == list(range(16))
    assert distinct(codes(data, 2)) == [0x00, 0x38, 0x40, 0x44]


def test_normal_is_quantised_to_full_blocks() -> None:
    data = generate_input(128, 1024, 1, 2, inputs="normal")
    magnitude = nibbles(codes(data, 0))[:, :, 0].view(128, -1, 16) & 7
    # the largest of a block is at 6 but for the rounding of its scale (1/16), which 5 to 6 absorbs
    assert (magnitude.amax(dim=2) == 7).all()
    assert len(distinct(codes(data, 2).bitwise_and(7))) == 8
    assert abs((nibbles(codes(data, 0)) >> 3).float().mean().item() - 0.5) < 0.01


def test_masked_reaches_subnormal_scales_and_magnitudes_to_one_and_a_half() -> None:
    data = generate_input(512, 2048, 1, 2, inputs="masked")
    assert distinct(nibbles(codes(data, 0))) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert codes(data, 2).min() < 8 and codes(data, 2).max() <= 0x38


def test_log_uniform_scales_span_ten_powers_with_all_mantissas() -> None:
    data = generate_input(128, 2048, 1, 2, inputs="log_uniform")
    assert distinct(codes(data, 2)) == list(range(0x08, 0x58))


def test_subnormal_scales_of_a_are_all_subnormal() -> None:
    data = generate_input(128, 2048, 1, 2, inputs="subnormal")
    assert distinct(codes(data, 2)) == list(range(8))
    assert codes(data, 3)[0].max() <= 0x68


@pytest.mark.parametrize(("inputs", "side"), [("scale_sweep_a", 2), ("scale_sweep_b", 3)])
def test_sweeps_give_each_scale_code_a_row_of_its_own(inputs: str, side: int) -> None:
    data = generate_input(256, 2112, 1, 2, inputs=inputs)
    live = codes(data, 0)[:, :, 0].view(256, -1, 8)
    assert (live.any(dim=2).sum(dim=1) == 1).all()
    block = live.any(dim=2).int().argmax(dim=1)
    scales = codes(data, side)[:, :, 0]
    used = scales[torch.arange(256), block] if side == 2 else scales[0, block]
    assert distinct(used) == list(range(0x7F))


def test_big_product_overflows_float16_in_the_scales_only() -> None:
    data = generate_input(128, 256, 1, 2, inputs="big_product")
    smallest = data[2].float().min() * data[3][0].float().min()
    assert smallest > 65504
    assert exact(data).expected.isfinite().all() and (exact(data).exact.abs() > 10_000).all()


def test_overflow_rows_are_infinite_and_their_neighbours_are_not() -> None:
    row = torch.arange(128) % 8
    found = exact(generate_input(128, 256, 2, 2, inputs="overflow")).expected[:, 0]
    assert (found[row == 3] == torch.inf).all() and (found[row == 6] == -torch.inf).all()
    assert found[(row != 3) & (row != 6)].isfinite().all()


def test_saturated_blocks_need_a_quarter_beyond_512() -> None:
    data = generate_input(128, 256, 1, 2, inputs="saturated")
    one_block = list(data)
    one_block[2] = data[2].clone()
    one_block[2].view(torch.uint8)[:, 1:] = 0
    assert distinct(exact(tuple(one_block)).exact.abs()) == [540.25, 540.75]


def test_zeros_has_rows_of_each_kind_of_zero() -> None:
    data = generate_input(128, 256, 1, 2, inputs="zeros")
    a, truth = codes(data, 0)[:, :, 0], exact(data).exact[:, 0, 0]
    assert not a[0::4].any() and (a[1::4] == 0x88).all() and a[2::4].any()
    assert not codes(data, 2)[2::4].any()
    row = torch.arange(128) % 4
    assert not truth[row < 3].any() and truth[row == 3].all()


def test_impulse_has_one_live_element_a_row_at_many_positions() -> None:
    a = nibbles(codes(generate_input(128, 1024, 1, 2, inputs="impulse"), 0))[:, :, 0]
    assert distinct(((a & 7) > 0).sum(dim=1)) == [1]
    assert len(distinct((a > 0).int().argmax(dim=1))) > 100


def test_cancellation_leaves_nothing_in_even_rows_and_little_in_odd_ones() -> None:
    truth = exact(generate_input(128, 4096, 1, 2, inputs="cancellation"))
    total, size = truth.exact[:, 0, 0], truth.terms[:, 0, 0]
    assert not total[0::2].any()
    assert total[1::2].count_nonzero() > 40 and (total.abs() < 0.01 * size).all()


def test_nan_scales_make_two_rows_of_ten_nan_and_of_odd_batches_all() -> None:
    found = exact(generate_input(130 - 2, 256, 3, 2, inputs="nan_scale")).expected[:, 0]
    rows = torch.arange(128) % 5 == 2
    assert torch.equal(found.isnan(), torch.stack([rows, torch.ones_like(rows), rows], dim=1))


def narrow(data: tuple[torch.Tensor, ...], blocks: int) -> torch.Tensor:
    """The answer of a kernel that knows what the contest's own data holds, and no more.

    Except for so many blocks of each row of a, the first that are something else, and all of b.
    """
    a, sfa = codes(data, 0), codes(data, 2)
    own = torch.where(sfa < 0x3C, sfa & 0x38, 0x40)
    other = (a.view(a.shape[0], -1, 8, a.shape[2]) > 3).any(dim=2) | (sfa != own)
    kept = other & (other.int().cumsum(dim=1) <= blocks)
    a = torch.where(kept.repeat_interleave(8, dim=1), a, a & 3)
    tensors = [a.view(data[0].dtype), data[1], torch.where(kept, sfa, own).view(data[2].dtype)]
    return exact((*tensors, *data[3:])).expected


def same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | (a.isnan() & b.isnan())


@pytest.mark.parametrize(("blocks", "share"), [(0, 0.2), (1, 0.05), (2, 0.02)])
@pytest.mark.parametrize("shape", [(128, 1024, 3), (256, 7168, 1), (128, 16384, 2)])
def test_who_knows_the_contests_codes_and_a_few_blocks_is_wrong_on_needles(
    shape: tuple[int, int, int], blocks: int, share: float
) -> None:
    own = generate_input(*shape, 3)
    assert torch.equal(narrow(own, 0), exact(own).expected)
    pure = 0
    for seed in range(8):
        data = generate_input(*shape, seed, inputs="needles")
        wrong = ~same(narrow(data, blocks), exact(data).expected)
        assert wrong.float().mean() > share  # of the rows
        pure += int((codes(data, 1)[0] <= 3).all(dim=0).sum())
    assert 0 < pure < 8 * shape[2]  # b alone tells nothing of a


def test_scale_pairs_meets_pairs_that_no_other_family_does() -> None:
    data = generate_input(7168, 2048, 4, 1, inputs="scale_pairs")
    live = codes(data, 0) != 0
    assert (live.sum(dim=1) == 1).all()
    block = live.int().argmax(dim=1) // 8
    sfa = codes(data, 2).gather(1, block[:, None].long())[:, 0]
    sfb = codes(data, 3)[0].gather(0, block.long())
    assert len(set((sfa.long() * 256 + sfb.long()).flatten().tolist())) > 12_000  # of 127 * 127
    assert exact(data).expected.isfinite().all()


@pytest.mark.parametrize(
    "shape", [(100, 64, 1), (128, 32, 1), (128, 96, 1), (128, 64, 0), (0, 64, 1)]
)
def test_impossible_shapes_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="multiple of 128"):
        generate_input(*shape, 1)


def test_an_unknown_family_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'nothing'.*competition"):
        generate_input(128, 64, 1, 1, inputs="nothing")


def test_shapes_yaml_names_families_that_exist() -> None:
    assert set(tasks.load(ROOT).inputs) <= set(FAMILIES)


def test_task_needs_nothing_of_ours_and_touches_no_gpu(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "task", tmp_path / "task")
    code = (
        "from task import generate_input, input_t, output_t; import sys, torch;"
        "generate_input(128, 64, 1, 1);"
        "assert not {'harness', 'reference'} & set(sys.modules);"
        "assert not torch.cuda.is_initialized()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)


@pytest.mark.parametrize("bound", [3, 16, 256, 5000])
def test_bounded_draws_are_uniform(bound: int) -> None:
    count = 400 * bound
    drawn = Draw(11, torch.device("cpu")).below(bound, count).long()
    found = drawn.bincount(minlength=bound)
    assert found.numel() == bound
    chi2 = ((found - 400.0) ** 2 / 400).sum().item()
    assert abs(chi2 - bound) < 6 * (2 * bound) ** 0.5


def test_normal_draws_have_the_normals_moments() -> None:
    drawn = Draw(12, torch.device("cpu")).normal(100_000)
    assert drawn.isfinite().all()
    assert abs(drawn.mean().item()) < 0.015 and abs(drawn.std().item() - 1) < 0.01
