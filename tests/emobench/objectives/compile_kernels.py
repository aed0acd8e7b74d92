"""Compile every kernel for sm_90 and print a line for each: its name, spilled bytes, loads of under 16 bytes, barriers.

Run by test_triton.py in a process of its own. A row of logits or costs must be read 16 bytes at a time; one narrow load
of the target's logit is allowed, and those of numbers per token are not counted. Of the barriers, those within a loop
count: there the threads of a program wait for each other again and again.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from emobench.inference.decoding.attention_kernel import attend_kernel, constants_of
from emobench.inference.decoding.draw_kernel import TILE, sum_blocks_kernel
from emobench.objectives.engine import triton_kernels as kernels
from emobench.objectives.engine.products import padded
from emobench.objectives.engine.triton_rows import (
    DIFFERENTIATE_BLOCK,
    DIFFERENTIATE_WARPS,
    REDUCE_BLOCK,
    REDUCE_LANES,
    REDUCE_WARPS,
    SCALE_BLOCK,
    SCALE_BLOCKS,
    TritonRows,
)

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
WIDTH = {"WIDTH": padded(50257, TritonRows.row_multiple)}
ROW = {"fp32": "*fp32", "bf16": "*bf16", "fp16": "*fp16"}
SHORT = {name: ROW[name] for name in ("fp32", "bf16")}
"""For kernels that do the same with both halves."""


def compile_kernel(
    label: str, fn: Any, types: dict[str, str], constants: dict[str, Any], warps: int, *, masked: int = 0
) -> None:
    names = list(types)
    # As at a launch: what is not specialised is not known to be aligned, and a vocabulary may be any number.
    free = {p.name for p in fn.params if p.do_not_specialize or p.do_not_specialize_on_alignment}
    free |= {"vocabulary", "blocks", "scaling"}
    divisible: dict[Any, Any] = {(names.index(n),): [["tt.divisibility", 16]] for n in names if n not in free}
    source = ASTSource(
        fn=fn, signature={**types, **dict.fromkeys(constants, "constexpr")}, constexprs=constants, attrs=divisible
    )
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        usage = subprocess.run([CUOBJDUMP, "--dump-resource-usage", file.name], capture_output=True, text=True).stdout
        code = subprocess.run([CUOBJDUMP, "--dump-sass", file.name], capture_output=True, text=True).stdout
    stack = re.search(r"STACK:(\d+)", usage)
    assert stack is not None, usage
    # 16-bit rows have 16-bit narrow loads; of float32 rows, a narrow load looks like one of a number per token.
    narrow = len(re.findall(r"LDG\.E\.U16", code)) - masked - ("LDG.E.U16" in code and "reduce" in label)
    wide = len(re.findall(r"LDG\.E\.128", code))
    assert wide, f"{label}: no 16-byte loads"
    print(f"{label}: spilled {stack[1]}, narrow {narrow}, wide {wide}, barriers {_barriers_in_loops(code)}")


def _barriers_in_loops(code: str) -> int:
    lines = [(int(at, 16), line) for at, line in re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", code)]
    jumps = ((at, re.search(r"BRA.* 0x([0-9a-f]+)", line)) for at, line in lines)
    loops = [(int(jump[1], 16), at) for at, jump in jumps if jump is not None and int(jump[1], 16) < at]
    return sum("BAR.SYNC" in line and any(first <= at <= last for first, last in loops) for at, line in lines)


def main() -> None:
    for name, row in ROW.items():
        cost = "*fp32" if name == "fp32" else "*fp16"
        tables = {"logits_ptr": row, "targets_ptr": "*i64", "fresh_ptr": cost, "kept_ptr": cost, "index_ptr": "*i64"}
        strides = dict.fromkeys(("vocabulary", "logits_stride", "fresh_stride", "kept_stride"), "i32")
        numbers = {
            f"{n}_ptr": "*fp32" for n in ("log_partition", "base", "target", "cost", "log_q", "q", "shift", "squares")
        }
        for everything in (False, True):
            shared = {"SCALE": 1.0, "CAP": 30.0 * everything, "HAS_COST": True, "HAS_KEPT": everything} | WIDTH
            flags = dict.fromkeys(("HAS_ENTROPY", "HAS_SQUARES", "HAS_MEAN"), everything)
            flags |= {"BLOCK": REDUCE_BLOCK, "LANES": REDUCE_LANES}
            types = {**tables, "out_ptr": "*fp32", "tokens": "i32", **strides}
            compile_kernel(f"reduce {name} {everything}", kernels.reduce_kernel, types, shared | flags, REDUCE_WARPS)
            flags = dict.fromkeys(("HAS_LOG_Q", "HAS_Q", "HAS_SHIFT"), everything) | {"BLOCK": DIFFERENTIATE_BLOCK}
            types = {**tables, **numbers, **strides}
            flags |= shared
            compile_kernel(
                f"differentiate {name} {everything}", kernels.differentiate_kernel, types, flags, DIFFERENTIATE_WARPS
            )
    types = {"rows_ptr": "*fp16", "tokens_ptr": "*i64", "inverse_norm_ptr": "*fp32"}
    types |= dict.fromkeys(("vocabulary", "stride"), "i32")
    compile_kernel("finish_costs", kernels.finish_costs_kernel, types, WIDTH | {"BLOCK": DIFFERENTIATE_BLOCK}, 4)
    for name, row in SHORT.items():
        types = {"rows_ptr": row, "places_ptr": "*i64", "scale_ptr": "*fp32", "out_ptr": row, "width": "i32"}
        scale = {"values_ptr": row, "scale_ptr": "*fp32", "out_ptr": row, "count": "i32"}
        steps = {"IN_PLACE": True, "BLOCK": SCALE_BLOCK, "BLOCKS": SCALE_BLOCKS}
        compile_kernel(f"scale {name}", kernels.scale_kernel, scale, steps, 4)
        rounded = scale | {"values_ptr": "*fp32"}
        compile_kernel(f"scale fp32 to {name}", kernels.scale_kernel, rounded, steps | {"IN_PLACE": False}, 4)
        compile_kernel(f"place_scaled {name}", kernels.place_scaled_kernel, types, {"BLOCK": SCALE_BLOCK}, 4)
        last = 0 if name == "fp32" else 32  # loads where the vocabulary ends
        sums = {"scores_ptr": row, "tops_ptr": "*fp32", "sums_ptr": "*fp32"}
        sums |= dict.fromkeys(("vocabulary", "blocks", "scores_stride"), "i32")
        compile_kernel(f"sum_blocks {name}", sum_blocks_kernel, sums, {"BITS": 7, "TILE": TILE}, 4, masked=last)
    for name, states in SHORT.items():
        for group, width in ((1, 64), (3, 80), (4, 128), (8, 128)):
            constants, warps = constants_of(heads=4, group=group, width=width, value_width=width, half=name != "fp32")
            pointers = dict.fromkeys(("query_ptr", "key_ptr", "value_ptr"), states)
            types = {**pointers, "seen_ptr": "*u8", "out_ptr": states, "positions": "i32", "scaling": "fp32"}
            types |= {argument: "i32" for argument in attend_kernel.arg_names if argument.endswith("stride")}
            constants |= {"HAS_SEEN": True}
            compile_kernel(f"attend {name} {group} x {width}", attend_kernel, types, constants, warps)


main()
