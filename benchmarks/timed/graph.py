"""The launch as a CUDA graph, one for each set of addresses."""

from triton_graph import captured

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    """c, written on the current stream."""
    captured(data).replay()
    return data[6]
