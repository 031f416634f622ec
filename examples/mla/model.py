"""A DeepSeek-V2-style decoder, tensor parallel, with taps.

Each tap is made once, in ``__init__``, and called where its tensor is. While capture is off a call costs one atomic
load, so the taps stay in. Their placements say how the ranks' tensors make the whole: ``R`` every rank has it all,
``S(-1)`` each has a slice of the last dimension, ``P`` each has a summand.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from config import Config
from torch import Tensor, nn

import tpcapture


class RmsNorm(nn.Module):
    def __init__(self, size: int, config: Config) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dtype=config.dtype))
        self.eps = config.norm_eps

    def forward(self, x: Tensor) -> Tensor:
        x32 = x.float()
        normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.eps)
        return normed.to(x.dtype) * self.weight


def linear(in_features: int, out_features: int, config: Config) -> nn.Linear:
    return nn.Linear(in_features, out_features, bias=False, dtype=config.dtype)


def all_reduce(x: Tensor) -> Tensor:
    """The sum over ranks, written over `x`. A tap called before has its own copy and is not disturbed."""
    if dist.get_world_size() > 1:
        dist.all_reduce(x)
    return x


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """RoPE on the last dimension, pairing its first half with its second; x is [tokens, heads, dim]."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions[:, None, None].float() * frequencies
    a, b = x.float().split(half, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class Attention(nn.Module):
    """Multi-head latent attention: this rank computes ``heads / world`` of the heads."""

    def __init__(self, prefix: str, config: Config) -> None:
        super().__init__()
        c = self.config = config
        self.heads = c.heads // dist.get_world_size()
        self.q_a_proj = linear(c.hidden, c.q_lora_rank, c)
        self.q_a_layernorm = RmsNorm(c.q_lora_rank, c)
        self.q_b_proj = linear(c.q_lora_rank, self.heads * c.qk_head_dim, c)
        self.kv_a_proj = linear(c.hidden, c.kv_lora_rank + c.qk_rope_dim, c)
        self.kv_a_layernorm = RmsNorm(c.kv_lora_rank, c)
        self.kv_b_proj = linear(c.kv_lora_rank, self.heads * (c.qk_nope_dim + c.v_dim), c)
        self.o_proj = linear(self.heads * c.v_dim, c.hidden, c)
        self.keys = torch.empty(0, self.heads, c.qk_head_dim, dtype=c.dtype)
        self.values = torch.empty(0, self.heads, c.v_dim, dtype=c.dtype)

        self.tap_q = tpcapture.tap(f"{prefix}.q_b_proj.out", placement="S(-1)")
        self.tap_latent = tpcapture.tap(f"{prefix}.kv_a_proj.out", placement="R")
        self.tap_kv = tpcapture.tap(f"{prefix}.kv_b_proj.out", placement="S(-1)")
        self.tap_context = tpcapture.tap(f"{prefix}.context", placement="S(-1)")
        self.tap_partial = tpcapture.tap(f"{prefix}.o_proj.partial", placement="P")
        self.tap_out = tpcapture.tap(f"{prefix}.o_proj.out", placement="R")

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        c = self.config
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        self.tap_q(q)
        q_nope, q_rope = q.unflatten(-1, (self.heads, -1)).split([c.qk_nope_dim, c.qk_rope_dim], dim=-1)
        q = torch.cat([q_nope, rotate(q_rope, positions, c.rope_theta)], dim=-1)

        latent = self.kv_a_proj(x)
        self.tap_latent(latent)
        latent, k_rope = latent.split([c.kv_lora_rank, c.qk_rope_dim], dim=-1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent))
        self.tap_kv(kv)
        k_nope, v = kv.unflatten(-1, (self.heads, -1)).split([c.qk_nope_dim, c.v_dim], dim=-1)
        k_rope = rotate(k_rope[:, None], positions, c.rope_theta).expand(-1, self.heads, -1)
        self.keys = torch.cat([self.keys, torch.cat([k_nope, k_rope], dim=-1)])
        self.values = torch.cat([self.values, v])

        scores = torch.einsum("qhd,khd->hqk", q, self.keys).float() * c.qk_head_dim**-0.5
        future = torch.arange(len(self.keys)) > positions[:, None]
        weights = scores.masked_fill(future, -torch.inf).softmax(-1).to(c.dtype)
        context = torch.einsum("hqk,khd->qhd", weights, self.values).flatten(1)
        self.tap_context(context)

        partial = self.o_proj(context)
        self.tap_partial(partial)
        out = all_reduce(partial)
        self.tap_out(out)
        return out


class Mlp(nn.Module):
    """Gated MLP: gate and up are column parallel, down is row parallel."""

    def __init__(self, prefix: str, config: Config) -> None:
        super().__init__()
        width = config.intermediate // dist.get_world_size()
        self.gate_proj = linear(config.hidden, width, config)
        self.up_proj = linear(config.hidden, width, config)
        self.down_proj = linear(width, config.hidden, config)

        self.tap_act = tpcapture.tap(f"{prefix}.act", placement="S(-1)")
        self.tap_partial = tpcapture.tap(f"{prefix}.down_proj.partial", placement="P")
        self.tap_out = tpcapture.tap(f"{prefix}.down_proj.out", placement="R")

    def forward(self, x: Tensor) -> Tensor:
        act = F.silu(self.gate_proj(x)) * self.up_proj(x)
        self.tap_act(act)
        partial = self.down_proj(act)
        self.tap_partial(partial)
        out = all_reduce(partial)
        self.tap_out(out)
        return out


class Layer(nn.Module):
    def __init__(self, prefix: str, config: Config) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden, config)
        self.self_attn = Attention(f"{prefix}.self_attn", config)
        self.post_attention_layernorm = RmsNorm(config.hidden, config)
        self.mlp = Mlp(f"{prefix}.mlp", config)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), positions)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    """Token ids [tokens] and their positions to logits [tokens, vocab / world]; keeps its own KV cache."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden, dtype=config.dtype)
        self.layers = nn.ModuleList(Layer(f"layers.{i}", config) for i in range(config.layers))
        self.norm = RmsNorm(config.hidden, config)
        self.lm_head = linear(config.hidden, config.vocab // dist.get_world_size(), config)

        self.tap_embed = tpcapture.tap("embed_tokens.out", placement="R")
        self.tap_norm = tpcapture.tap("norm.out", placement="R")
        self.tap_logits = tpcapture.tap("lm_head.out", placement="S(-1)")

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        self.tap_embed(x)
        for layer in self.layers:
            x = layer(x, positions)
        x = self.norm(x)
        self.tap_norm(x)
        logits: Tensor = self.lm_head(x)
        self.tap_logits(logits)
        return logits
