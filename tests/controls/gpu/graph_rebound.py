"""A CUDA graph per size over static buffers; inputs are copied in and the result out each call."""

import torch

_graphs = {}


def _captured(x):
    static = torch.empty_like(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        static.mul(2)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = static * 2
    return static, graph, out


def custom_kernel(data):
    x = data[0]
    if x.numel() not in _graphs:
        _graphs[x.numel()] = _captured(x)
    static, graph, out = _graphs[x.numel()]
    static.copy_(x)
    graph.replay()
    return out.clone()
