"""Sizes of the demo's model: DeepSeek-V2's shape, small enough for a laptop's CPU."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Config:
    vocab: int = 512
    hidden: int = 256
    layers: int = 4
    heads: int = 8
    # Queries, and keys with values, pass through a narrow latent each (multi-head latent attention).
    q_lora_rank: int = 96
    kv_lora_rank: int = 64
    # A head's query and key: a part without position, then a part turned by RoPE (its key shared by all heads).
    qk_nope_dim: int = 32
    qk_rope_dim: int = 16
    v_dim: int = 32
    intermediate: int = 512
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-6
    dtype: torch.dtype = torch.bfloat16

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_dim + self.qk_rope_dim
