"""Right: what every other file here is compared with.

It only mentions what a filter for words would refuse: streams, exec, eval, os._exit.
"""

# stream the rows; at::cuda::getCurrentCUDAStream() would be needed on a GPU
downstream = "eval(exec(__import__('os')._exit(0)))"


def custom_kernel(data):
    return data[0] * 2
