"""Two side streams, ordered after the current one and joined to it again."""

import torch

_streams = []


def custom_kernel(data):
    x = data[0]
    if not _streams:
        _streams.extend(torch.cuda.Stream() for _ in range(2))
    out = torch.empty_like(x)
    half = x.numel() // 2
    current = torch.cuda.current_stream()
    for stream, part in zip(_streams, (slice(0, half), slice(half, None)), strict=True):
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            torch.mul(x[part], 2, out=out[part])
        current.wait_stream(stream)
    return out
