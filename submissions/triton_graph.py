#!HARNESS author kernel-harness
"""Triton, with PTX for the decoding, replayed as a CUDA graph.

Launching a Triton kernel from Python costs the host tens of microseconds, a graph replay a few.  A
graph has the pointers of its tensors baked in, and nothing else: so they are its key.  New contents
at known addresses are read by the replay itself, new addresses get a graph of their own, and the
oldest graph goes when there are too many.

The kernel: a 64-bit word is one scale block, 16 FP4 elements, so codes and scales are tensors of
one shape and nothing moves between threads.  PRMT looks four nibbles up at once in a table of
doubled magnitudes, DP4A multiplies and adds them (cuda_inline.py explains both).  Without PTX
(Triton's interpreter, on a CPU) the same word is decoded by arithmetic.
"""

import os
from collections import OrderedDict

import torch
import triton
import triton.language as tl

from task import input_t, output_t

INTERPRETED = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")
GRAPHS_KEPT = 64

# The lower half of the lookup table.  ptxas must take it for a value: a constant it moves into a
# register again before each use.  Bit 31 of lanemask_lt is never set, which only we know.
TABLE: tl.constexpr = tl.constexpr("""
{ .reg .b32 t;
  mov.u32 t, %lanemask_lt;
  and.b32 t, t, 0x80000000;
  or.b32 $0, $1, t; }
""")

# Eight FP4 elements as two words of four doubled int8.  Of p and n, the magnitudes of the positive
# and of the negative ones, one is zero in each byte; 0x80 - n borrows from nobody and is -n but for
# its top bit.
DECODE: tl.constexpr = tl.constexpr("""
{ .reg .b32 x, y, n;
  xor.b32 y, $2, 0x88888888;
  shr.b32 x, $2, 16;
  prmt.b32 $0, $3, 0x0C080604, $2;
  prmt.b32 n, $3, 0x0C080604, y;
  sub.u32 n, 0x80808080, n;
  xor.b32 n, n, 0x80808080;
  or.b32 $0, $0, n;
  shr.b32 y, y, 16;
  prmt.b32 $1, $3, 0x0C080604, x;
  prmt.b32 n, $3, 0x0C080604, y;
  sub.u32 n, 0x80808080, n;
  xor.b32 n, n, 0x80808080;
  or.b32 $1, $1, n; }
""")

# $0 = $4 + dot of the eight elements in $1 with the decoded words $2 and $3; $5 is the table.
DOT: tl.constexpr = tl.constexpr("""
{ .reg .b32 x, y, v, s, t;
  xor.b32 y, $1, 0x88888888;
  prmt.b32 v, $5, 0x0C080604, $1;
  dp4a.s32.s32 s, v, $2, $4;
  prmt.b32 v, $5, 0x0C080604, y;
  dp4a.s32.s32 t, v, $2, 0;
  shr.b32 x, $1, 16;
  shr.b32 y, y, 16;
  prmt.b32 v, $5, 0x0C080604, x;
  dp4a.s32.s32 s, v, $3, s;
  prmt.b32 v, $5, 0x0C080604, y;
  dp4a.s32.s32 t, v, $3, t;
  sub.s32 $0, s, t; }
""")


@triton.jit
def nibble(code):
    """Twice the value of an e2m1 code, as an integer."""
    magnitude = code & 7
    large = tl.where(magnitude < 6, 2 * magnitude - 4, 4 * magnitude - 16)
    doubled = tl.where(magnitude < 4, magnitude, large)
    return tl.where(code & 8 != 0, -doubled, doubled)


@triton.jit
def scale(code, FP8: tl.constexpr):
    """An e4m3 code as float32: moved into float16's place it reads 2^8 too small; 0x7F is NaN."""
    if FP8:
        return code.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    wide = code.to(tl.int16)
    bits = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
    value = bits.to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    return tl.where((wide & 0x7F) == 0x7F, float("nan"), value)


@triton.jit
def gemv(
    a, b, sfa, sfb, c, m, k,
    ROWS: tl.constexpr, BLOCKS: tl.constexpr, STAGES: tl.constexpr, WHOLE: tl.constexpr,
    PTX: tl.constexpr, FP8: tl.constexpr,
):  # fmt: skip
    """c[batch, row] for ROWS rows; a step takes BLOCKS scale blocks of each.  WHOLE: no tail."""
    batch = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    width = k // 16
    first = (batch * m + row[:, None]) * width
    vector = batch * 128 * width
    if PTX:
        table = tl.inline_asm_elementwise(
            TABLE, "=r,r", [tl.full((1, 1), 0x03020100, tl.int32)], tl.int32, False, 1
        )
    total = tl.zeros((ROWS, BLOCKS), tl.float32)
    for start in tl.range(0, width, BLOCKS, num_stages=STAGES):
        block = start + tl.arange(0, BLOCKS)[None, :]
        if WHOLE:
            x = tl.load(a + first + block)
            sx = tl.load(sfa + first + block)
            y = tl.load(b + vector + block)
            sy = tl.load(sfb + vector + block)
        else:
            x = tl.load(a + first + block, block < width, 0)
            sx = tl.load(sfa + first + block, block < width, 0)
            y = tl.load(b + vector + block, block < width, 0)
            sy = tl.load(sfb + vector + block, block < width, 0)
        dots = tl.zeros((ROWS, BLOCKS), tl.int32)
        for half in tl.static_range(2):
            p = (x >> (32 * half)).to(tl.int32)
            q = (y >> (32 * half)).to(tl.int32)
            if PTX:
                low, high = tl.inline_asm_elementwise(
                    DECODE, "=&r,=&r,r,r", [q, table], (tl.int32, tl.int32), True, 1
                )
                dots = tl.inline_asm_elementwise(
                    DOT, "=r,r,r,r,r,r", [p, low, high, dots, table], tl.int32, True, 1
                )
            else:
                for i in tl.static_range(8):
                    dots += nibble((p >> (4 * i)) & 15) * nibble((q >> (4 * i)) & 15)
        total += dots.to(tl.float32) * (scale(sx, FP8) * (scale(sy, FP8) * 0.25))
    tl.store(c + batch * m + row, tl.sum(total, axis=1).to(tl.float16))


def launch(data: input_t) -> None:
    """One launch for all batches."""
    a, b, sfa, sfb, _, _, c = data
    m, half_k, batches = a.shape
    k = 2 * half_k
    rows, blocks, warps, stages = settings(k)
    gemv[(m // rows, batches)](
        words(a),
        words(b),
        codes(sfa),
        codes(sfb),
        c,
        m,
        k,
        ROWS=rows,
        BLOCKS=blocks,
        STAGES=stages,
        WHOLE=k % (16 * blocks) == 0,
        PTX=not INTERPRETED,
        FP8=not INTERPRETED and torch.cuda.get_device_capability() >= (8, 9),
        num_warps=warps,
    )


def settings(k):
    """Rows per program, blocks per step, warps and stages, as measured on an H200."""
    if INTERPRETED:  # which takes its time per program, not per element
        return 128, min(512, triton.next_power_of_2(k // 16)), 1, 1
    # Staging through shared memory (stages > 1) cost the first two 4 and 45 us.
    if k >= 12288:
        return 4, 128, 2, 1
    if k > 4096:
        return 8, 128, 4, 1
    return 8, min(128, triton.next_power_of_2(k // 16)), 2, 1


def codes(tensor):
    """[rows, n, L] of one-byte elements as the uint8 that is in memory, [L, rows, n]."""
    return tensor.view(torch.uint8).permute(2, 0, 1)


def words(tensor):
    """The same, eight bytes at a time."""
    return codes(tensor).view(torch.int64)


graphs: OrderedDict[tuple, torch.cuda.CUDAGraph] = OrderedDict()


def captured(data: input_t) -> torch.cuda.CUDAGraph:
    """The graph for these very tensors; what it reads and writes is looked at when it runs."""
    key = (
        torch.cuda.current_device(),
        *data[0].shape,
        *(data[i].data_ptr() for i in (0, 1, 2, 3, 6)),
    )
    graph = graphs.get(key)
    if graph is not None:
        graphs.move_to_end(key)
        return graph
    launch(data)  # compiles, which must not happen during the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        launch(data)
    graphs[key] = graph
    if len(graphs) > GRAPHS_KEPT:
        torch.cuda.current_stream().synchronize()  # the oldest may still be running
        graphs.popitem(last=False)
    return graph


def custom_kernel(data: input_t) -> output_t:
    """c, written in place on the current stream; a graph replay runs there too."""
    if data[0].is_cuda:
        captured(data).replay()
    else:
        launch(data)
    return data[6]
