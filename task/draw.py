"""Random numbers from one seed: every other distribution is made from uniform bytes."""

import hashlib
import math
from functools import cache

import torch

#: int64 words of the pad below; 4 KiB repeat often enough to be free and rarely enough to be long.
PAD_WORDS = 512


class Draw:
    """A stream of random tensors on one device; the same seed and device give the same stream.

    torch's CPU generator (mt19937) keeps 32 bits of its seed.  All draws are therefore xored with
    a pad hashed from the whole seed, which leaves uniform bytes uniform and tells all seeds apart.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        digest = hashlib.shake_256(b"task.draw" + seed.to_bytes(16, "little", signed=True))
        raw = bytearray(digest.digest(8 * (PAD_WORDS + 1)))
        words = torch.frombuffer(raw, dtype=torch.int64)
        self.device = device
        self._pad = words[1:].to(device)
        self._generator = torch.Generator(device).manual_seed(int(words[0]) & (2**63 - 1))

    def bytes(self, *shape: int) -> torch.Tensor:
        """Uniform uint8 of this shape."""
        count = math.prod(shape)
        rows = -(-count // (8 * PAD_WORDS))
        words = torch.empty(rows, PAD_WORDS, dtype=torch.int64, device=self.device)
        words.random_(-(2**63), None, generator=self._generator)
        words.bitwise_xor_(self._pad)
        return words.view(torch.uint8).view(-1)[:count].view(shape)

    def below(self, bound: int, *shape: int) -> torch.Tensor:
        """Integers in [0, bound), biased by less than bound / 2**16 (int32) or 2**32 (int64)."""
        if bound <= 256:
            half = self.bytes(*shape, 2).view(torch.int16).squeeze(-1).to(torch.int32)
            return half.bitwise_and_(0xFFFF).mul_(bound).bitwise_right_shift_(16)
        word = self.bytes(*shape, 4).view(torch.int32).squeeze(-1).to(torch.int64)
        return word.bitwise_and_(0xFFFFFFFF).mul_(bound).bitwise_right_shift_(32)

    def choice(self, codes: tuple[int, ...], *shape: int) -> torch.Tensor:
        """Uniform picks among at most 256 byte codes, uint8."""
        table = _table(codes, self.device)
        return table.index_select(0, self.below(len(codes), *shape).view(-1)).view(shape)

    def unit(self, *shape: int) -> torch.Tensor:
        """float32 uniform in steps of 2**-23, never 0 or 1."""
        word = self.bytes(*shape, 4).view(torch.int32).squeeze(-1)
        # half a step up keeps 0 out; 0xFFFFFF + 0.5 rounds to 2**24, hence 23 bits
        return word.bitwise_and_(0x7FFFFF).to(torch.float32).add_(0.5).mul_(2.0**-23)

    def normal(self, *shape: int) -> torch.Tensor:
        """float32 standard normal, by inversion."""
        return self.unit(*shape).mul_(2).sub_(1).erfinv_().mul_(math.sqrt(2))


@cache  # copying one to a GPU waits for all that is queued there
def _table(codes: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(codes, dtype=torch.uint8, device=device)
