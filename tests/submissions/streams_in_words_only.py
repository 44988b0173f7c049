"""Right: mentions streams, exec and eval; a filter for words would refuse it."""

# stream the rows; at::cuda::getCurrentCUDAStream() would be needed on a GPU
downstream = "eval(exec(__import__('os')))"


def custom_kernel(data):
    return data[0] * 2
