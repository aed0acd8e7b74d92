"""The engine's GPU kernels, in Triton: statistics of logits, their gradient in place, and finished cost rows.

Legend: C tokens of a chunk (one row of logits each), U cost rows, V vocabulary.

Logits have the dtype of the matrix product; all arithmetic is float32. Rows have WIDTH entries, a multiple of 128, so
that each load takes 16 bytes; entries after the vocabulary are masked by arithmetic. With TRITON_INTERPRET=1, set
before triton is imported, the same kernels run slowly on a CPU; the tests without a GPU use this. WIDTH is a constant,
because the interpreter of triton 3.6 cannot loop to a variable number.

`log1p` and `tanh` are written out, because libdevice does not have them for every back end.
"""

# A type checker does not understand Triton's language.
# pyright: reportOperatorIssue=false, reportPossiblyUnboundVariable=false, reportArgumentType=false

from __future__ import annotations

import triton
import triton.language as tl

_TINY_TARGET = tl.constexpr(1e-20)  # below it, log1p(rest / target) overflows or loses digits


@triton.jit
def _exp(x):
    # As a power of two it is four instructions less: what is lost are results below 1.2e-38.
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def _log1p(x):
    # Kahan's form is accurate for any x >= 0, although 1 + x is rounded.
    u = 1.0 + x
    near = u == 1.0
    return tl.where(near, x, tl.log(u) * (x / tl.where(near, 1.0, u - 1.0)))


@triton.jit
def _log_prob(target_logit, target_mass, rest, log_partition):
    # log q_t = -log(1 + rest / target) keeps its digits where q_t is almost 1.
    sure = target_mass > _TINY_TARGET
    return tl.where(sure, -_log1p(rest / tl.where(sure, target_mass, 1.0)), target_logit - log_partition)


@triton.jit
def _logit(raw, SCALE: tl.constexpr, CAP: tl.constexpr):
    z = raw.to(tl.float32)
    if SCALE != 1.0:
        z = z * SCALE
    if CAP > 0.0:
        z = CAP * (1.0 - 2.0 / (tl.exp(z * (2.0 / CAP)) + 1.0))
    return z


@triton.jit
def _cost_row(fresh_ptr, kept_ptr, index, fresh_stride, kept_stride, HAS_KEPT: tl.constexpr):
    row = fresh_ptr + index * fresh_stride
    if HAS_KEPT:
        row = tl.where(index < 0, kept_ptr + (-1 - index) * kept_stride, row)
    return row


@triton.jit
def _base(top):
    """Return the number to subtract from logits before the exponential: their top, or 0 if all are -inf."""
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def _shrunk(sums, base, HAS_ENTROPY: tl.constexpr):
    """Return the sums of masses for another, larger top."""
    top, rest, cost_sum, squares, weighted, total_logit = sums  # weighted: of mass * (z - top), for the entropy
    shrink = _exp(tl.where(top == float("-inf"), base, top) - base)
    if HAS_ENTROPY:
        fall = tl.where(top == float("-inf"), 0.0, top - base)
        weighted = (weighted + rest * fall) * shrink
    return rest * shrink, cost_sum * shrink, squares * shrink * shrink, weighted, total_logit


@triton.jit
def _add_block(
    sums,
    row_ptr,
    cost_ptr,
    at,
    target,
    vocabulary,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    CAP: tl.constexpr,
    HAS_COST: tl.constexpr,
    HAS_ENTROPY: tl.constexpr,
    HAS_SQUARES: tl.constexpr,
    HAS_MEAN: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Add entries `at`, (rows, LANES), of one row of logits to the sums of each lane.

    The entries of a lane belong to one thread, so that threads wait for each other only after the last block.
    """
    other = at != target
    logit_sum = 0.0
    if MASKED:
        z = _logit(tl.load(row_ptr + at, mask=at < WIDTH, other=0.0), SCALE, CAP)
        inside = at < vocabulary
        if HAS_MEAN:
            logit_sum = tl.sum(tl.where(inside, z, 0.0), axis=0)
        other = inside & other
    else:
        z = _logit(tl.load(row_ptr + at), SCALE, CAP)
        if HAS_MEAN:
            logit_sum = tl.sum(z, axis=0)
    z = tl.where(other, z, float("-inf"))
    top = tl.maximum(sums[0], tl.max(z, axis=0))
    base = _base(top)
    rest, cost_sum, squares, weighted, total_logit = _shrunk(sums, base, HAS_ENTROPY)
    gap = z - base[None, :]
    mass = _exp(gap)
    rest += tl.sum(mass, axis=0)
    if HAS_ENTROPY:
        weighted += tl.sum(mass * tl.where(mass > 0.0, gap, 0.0), axis=0)
    if HAS_COST:
        if MASKED:
            cost = tl.load(cost_ptr + at, mask=at < WIDTH, other=0.0).to(tl.float32)
        else:
            cost = tl.load(cost_ptr + at).to(tl.float32)
        cost_sum += tl.sum(mass * cost, axis=0)
    if HAS_SQUARES:
        squares += tl.sum(mass * mass, axis=0)
    return top, rest, cost_sum, squares, weighted, total_logit + logit_sum


# Per-token values are read one by one: a chunk with another start or size then needs no new compilation.
PER_TOKEN = (
    "targets_ptr",
    "index_ptr",
    "out_ptr",
    "squares_ptr",
    "tokens_ptr",
    *(f"{name}_ptr" for name in ("log_partition", "base", "target", "cost", "log_q", "q", "shift")),
)


@triton.jit(do_not_specialize=["tokens"], do_not_specialize_on_alignment=PER_TOKEN)
def reduce_kernel(
    logits_ptr,  # (C, V), rows logits_stride apart
    targets_ptr,  # (C,), int64
    fresh_ptr,  # (U, V) cost rows computed for this chunk, rows fresh_stride apart
    kept_ptr,  # (K, V) kept cost rows, rows kept_stride apart
    index_ptr,  # (C,), int64: row of fresh, or -1 - row of kept
    out_ptr,  # (7, C), float32: the order of `triton_rows.OUTPUTS`
    tokens,
    vocabulary,
    logits_stride,
    fresh_stride,
    kept_stride,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    CAP: tl.constexpr,
    HAS_COST: tl.constexpr,
    HAS_KEPT: tl.constexpr,
    HAS_ENTROPY: tl.constexpr,
    HAS_SQUARES: tl.constexpr,
    HAS_MEAN: tl.constexpr,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
):
    """Reduce one row of logits to its token's statistics in one pass (online softmax).

    Every sum leaves out the target's own mass, which is added in closed form at the end, as in
    `torch_rows.reduce_rows`.
    """
    token = tl.program_id(0).to(tl.int64)
    target = tl.load(targets_ptr + token).to(tl.int32)
    row_ptr = logits_ptr + token * logits_stride
    cost_ptr = row_ptr
    target_logit = _logit(tl.load(row_ptr + target), SCALE, CAP)
    if HAS_COST:
        cost_ptr = _cost_row(fresh_ptr, kept_ptr, tl.load(index_ptr + token), fresh_stride, kept_stride, HAS_KEPT)

    zeros = tl.zeros((LANES,), tl.float32)
    sums = (target_logit + zeros, zeros, zeros, zeros, zeros, zeros)  # the order of `_shrunk`
    columns = tl.arange(0, BLOCK // LANES)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    # All entries of a whole block are of the vocabulary, since a row is at most 127 longer; the last one is masked.
    WHOLE: tl.constexpr = (WIDTH - 128) // BLOCK * BLOCK
    for start in range(0, WHOLE, BLOCK):
        sums = _add_block(
            sums, row_ptr, cost_ptr, start + columns, target, vocabulary, WIDTH, SCALE, CAP,
            HAS_COST, HAS_ENTROPY, HAS_SQUARES, HAS_MEAN, False,
        )  # fmt: skip
    for start in range(WHOLE, WIDTH, BLOCK):
        sums = _add_block(
            sums, row_ptr, cost_ptr, start + columns, target, vocabulary, WIDTH, SCALE, CAP,
            HAS_COST, HAS_ENTROPY, HAS_SQUARES, HAS_MEAN, True,
        )  # fmt: skip
    base = _base(tl.max(sums[0], axis=0))
    rest, cost_sum, squares, weighted, total_logit = _shrunk(sums, base, HAS_ENTROPY)
    rest = tl.sum(rest, axis=0)
    target_mass = tl.exp(target_logit - base)
    total = rest + target_mass
    log_partition = base + tl.log(total)
    log_prob = _log_prob(target_logit, target_mass, rest, log_partition)
    tl.store(out_ptr + token, log_prob)
    tl.store(out_ptr + tokens + token, log_partition)
    if HAS_COST:
        tl.store(out_ptr + 2 * tokens + token, tl.sum(cost_sum, axis=0) / total)
    if HAS_ENTROPY:
        own = tl.where(target_mass > 0.0, tl.exp(log_prob) * tl.where(target_mass > 0.0, log_prob, 0.0), 0.0)
        tl.store(out_ptr + 3 * tokens + token, (rest * tl.log(total) - tl.sum(weighted, axis=0)) / total - own)
    if HAS_MEAN:
        tl.store(out_ptr + 4 * tokens + token, tl.sum(total_logit, axis=0) / vocabulary - log_partition)
    if HAS_SQUARES:
        squares = tl.sum(squares, axis=0)
        tl.store(out_ptr + 5 * tokens + token, squares / (total * total) + tl.exp(2.0 * log_prob))
        some = squares > 0.0
        tl.store(out_ptr + 6 * tokens + token, tl.where(some, rest * rest / tl.where(some, squares, 1.0), 0.0))


@triton.jit(do_not_specialize_on_alignment=PER_TOKEN)
def differentiate_kernel(
    logits_ptr,  # (C, V), overwritten
    targets_ptr,  # (C,), int64
    fresh_ptr,
    kept_ptr,
    index_ptr,
    log_partition_ptr,  # (C,), float32, as the coefficients below
    base_ptr,
    target_ptr,
    cost_ptr,
    log_q_ptr,
    q_ptr,
    shift_ptr,
    squares_ptr,  # (C, blocks), float32: sums of squares of d loss / d logits
    vocabulary,
    logits_stride,
    fresh_stride,
    kept_stride,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    CAP: tl.constexpr,
    HAS_COST: tl.constexpr,
    HAS_KEPT: tl.constexpr,
    HAS_LOG_Q: tl.constexpr,
    HAS_Q: tl.constexpr,
    HAS_SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Overwrite a block of one row of logits with d loss / d raw output of the head; see `coefficients.py`.

    The target's entry is computed from the statistics, not from the buffer, so programs do not wait for each other.
    """
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    entry_ptr = logits_ptr + token * logits_stride + at
    z = _logit(tl.load(entry_ptr, mask=inside, other=0.0), SCALE, CAP)
    log_q = z - tl.load(log_partition_ptr + token)
    q = _exp(log_q)
    factor = tl.load(base_ptr + token) + tl.zeros_like(q)
    if HAS_COST:
        row_ptr = _cost_row(fresh_ptr, kept_ptr, tl.load(index_ptr + token), fresh_stride, kept_stride, HAS_KEPT)
        cost = tl.load(row_ptr + at, mask=inside, other=0.0).to(tl.float32)
        factor += tl.load(cost_ptr + token) * cost
    if HAS_LOG_Q:
        factor += tl.load(log_q_ptr + token) * tl.where(q > 0.0, log_q, 0.0)
    if HAS_Q:
        factor += tl.load(q_ptr + token) * q
    gradient = q * factor
    if HAS_SHIFT:
        gradient += tl.load(shift_ptr + token)
    gradient = tl.where(at == tl.load(targets_ptr + token).to(tl.int32), tl.load(target_ptr + token), gradient)
    # Padding after the vocabulary stays 0: some matrix products read it.
    gradient = tl.where(at < vocabulary, gradient, 0.0)
    square = tl.sum(gradient * gradient, axis=0)
    tl.store(squares_ptr + token * tl.num_programs(1) + tl.program_id(1), square)
    if CAP > 0.0:
        bend = z / CAP
        gradient = gradient * (1.0 - bend * bend)
    if SCALE != 1.0:
        gradient = gradient * SCALE
    tl.store(entry_ptr, gradient.to(logits_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize_on_alignment=PER_TOKEN)
def finish_costs_kernel(
    rows_ptr,  # (U, V), 1 - inner product of the rows; overwritten with costs
    tokens_ptr,  # (U,), int64
    inverse_norm_ptr,  # (V,), float32
    vocabulary,
    stride,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Turn 1 - <x_t, x_v> of rounded rows into 1 - cos, at least 0 and exactly 0 for the token itself."""
    row = tl.program_id(0).to(tl.int64)
    token = tl.load(tokens_ptr + row)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    entry_ptr = rows_ptr + row * stride + at
    norm = tl.load(inverse_norm_ptr + token) * tl.load(inverse_norm_ptr + at, mask=at < vocabulary, other=0.0)
    far = tl.load(entry_ptr, mask=inside, other=0.0).to(tl.float32)
    # 1 - (1 - far) norm, in a form that keeps the digits of a small `far`.
    cost = tl.maximum(far * norm + (1.0 - norm), 0.0)
    cost = tl.where(at == token.to(tl.int32), 0.0, cost)
    tl.store(entry_ptr, cost.to(rows_ptr.dtype.element_ty), mask=inside)


@triton.jit
def scale_kernel(
    values_ptr,  # (count,)
    scale_ptr,  # (), float32
    out_ptr,  # (count,); may be the values
    count,  # Triton compiles a multiple of 16 by itself, with loads of 16 bytes
    IN_PLACE: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,  # of a program
):
    """Multiply by a number on the device, in float32, rounded once. By 1 in place, there is nothing to do."""
    scale = tl.load(scale_ptr)
    if not IN_PLACE or scale != 1.0:
        first = tl.program_id(0).to(tl.int64) * (BLOCK * BLOCKS) + tl.arange(0, BLOCK)
        for start in range(0, BLOCK * BLOCKS, BLOCK):
            at = first + start
            inside = at < count
            values = tl.load(values_ptr + at, mask=inside, other=0.0).to(tl.float32)
            tl.store(out_ptr + at, (values * scale).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def place_scaled_kernel(
    rows_ptr,  # (M, D), contiguous
    places_ptr,  # (M,), int64: each another row of out
    scale_ptr,  # (), float32
    out_ptr,  # (N, D), contiguous
    width,
    BLOCK: tl.constexpr,
):
    """Write each row times a number on the device to its place; in float32, rounded once."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.load(places_ptr + row)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    values = tl.load(rows_ptr + row * width + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + place * width + at, (values * tl.load(scale_ptr)).to(out_ptr.dtype.element_ty), mask=inside)
