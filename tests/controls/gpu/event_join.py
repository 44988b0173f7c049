"""A side stream of high priority, ordered by events rather than by wait_stream."""

import torch

_state = {}


def custom_kernel(data):
    if "stream" not in _state:
        _state["stream"] = torch.cuda.Stream(priority=-1)
        _state["events"] = torch.cuda.Event(), torch.cuda.Event()
    stream, (before, after) = _state["stream"], _state["events"]
    before.record()
    with torch.cuda.stream(stream):
        stream.wait_event(before)
        out = data[0] * 2
        after.record()
    torch.cuda.current_stream().wait_event(after)
    out.record_stream(torch.cuda.current_stream())
    return out
