"""One launch on the current stream, nothing else."""

from triton_graph import launch

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    """c, written on the current stream."""
    launch(data)
    return data[6]
