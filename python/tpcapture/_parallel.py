"""How the tensors of parallel layers make whole ones, by what the layers of vLLM and Megatron say of themselves."""

from typing import Any


def of_module(module: Any, what: str) -> str | None:
    """The placement of a module's `output` or `input` on its rank; None where it says nothing."""
    kinds = _kinds(module)
    if what == "input":
        is_sliced = "RowParallelLinear" in kinds and getattr(module, "input_is_parallel", False)
        return "S(-1)" if is_sliced else None
    if "RowParallelLinear" in kinds:
        return "R" if getattr(module, "reduce_results", True) else "P"
    if "ColumnParallelLinear" in kinds:
        if getattr(module, "gather_output", False):
            return "R"
        return _sliced("-1", module, kinds)
    if {"VocabParallelEmbedding", "ReplicatedLinear"} & kinds:
        # The head is a slice of the embedding's table, and its product one of the logits.
        return None if "ParallelLMHead" in kinds else "R"
    return None


def of_parameter(module: Any, name: str) -> str | None:
    """The placement of a module's own parameter of that name."""
    kinds = _kinds(module)
    if name not in ("weight", "bias"):
        return None
    if "RowParallelLinear" in kinds:
        return "S(1)" if name == "weight" else "R"
    if "ColumnParallelLinear" in kinds:
        return _sliced("0", module, kinds)
    if "VocabParallelEmbedding" in kinds:
        return "S(0)"
    return "R" if "ReplicatedLinear" in kinds else None


def _kinds(module: Any) -> set[str]:
    return {kind.__name__ for kind in type(module).__mro__}


def _sliced(dim: str, module: Any, kinds: set[str]) -> str | None:
    """A slice of one dimension, or of each of the parts that were merged in it."""
    if "QKVParallelLinear" in kinds:
        heads, kv_heads, size = module.total_num_heads, module.total_num_kv_heads, module.head_size
        # Where there are fewer heads of k and v than ranks, some ranks hold the same.
        is_shared = kv_heads < getattr(module, "tp_size", 1)
        shared = f"{kv_heads * size}/{kv_heads}" if is_shared else kv_heads * size
        parts = [heads * size, shared, shared]
    elif "MergedColumnParallelLinear" in kinds:
        parts = list(module.output_sizes)
    else:
        return f"S({dim})"
    return f"S({dim}, sections=[{','.join(map(str, parts))}])"
