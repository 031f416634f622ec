"""Write the demo's full checkpoint: seeded random weights, named as the model names them.

Linear weights are [out_features, in_features], as torch stores them. One tensor is out of the ordinary, and the
story hangs on it: ``kv_b_proj`` has the key rows of all heads first and the value rows of all heads after, which is
how a checkpoint looks that went through a GGUF conversion (it splits keys from values). The model itself wants the
rows head by head; bringing them there is the loader's work.
"""

import sys
from pathlib import Path

import torch
from config import Config
from safetensors.torch import save_file


def make_weights(config: Config, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def linear(out_features: int, in_features: int) -> torch.Tensor:
        weight = torch.randn(out_features, in_features, generator=generator)
        return (weight * in_features**-0.5).to(config.dtype)

    def norm(size: int) -> torch.Tensor:
        return (1 + 0.1 * torch.randn(size, generator=generator)).to(config.dtype)

    c = config
    weights = {"embed_tokens.weight": torch.randn(c.vocab, c.hidden, generator=generator).to(c.dtype)}
    for i in range(c.layers):
        attn, mlp = f"layers.{i}.self_attn", f"layers.{i}.mlp"
        weights |= {
            f"layers.{i}.input_layernorm.weight": norm(c.hidden),
            f"{attn}.q_a_proj.weight": linear(c.q_lora_rank, c.hidden),
            f"{attn}.q_a_layernorm.weight": norm(c.q_lora_rank),
            f"{attn}.q_b_proj.weight": linear(c.heads * c.qk_head_dim, c.q_lora_rank),
            f"{attn}.kv_a_proj.weight": linear(c.kv_lora_rank + c.qk_rope_dim, c.hidden),
            f"{attn}.kv_a_layernorm.weight": norm(c.kv_lora_rank),
            f"{attn}.kv_b_proj.weight": torch.cat(
                [
                    linear(c.heads * c.qk_nope_dim, c.kv_lora_rank),  # K of all heads
                    linear(c.heads * c.v_dim, c.kv_lora_rank),  # V of all heads
                ]
            ),
            f"{attn}.o_proj.weight": linear(c.hidden, c.heads * c.v_dim),
            f"layers.{i}.post_attention_layernorm.weight": norm(c.hidden),
            f"{mlp}.gate_proj.weight": linear(c.intermediate, c.hidden),
            f"{mlp}.up_proj.weight": linear(c.intermediate, c.hidden),
            f"{mlp}.down_proj.weight": linear(c.hidden, c.intermediate),
        }
    weights |= {"norm.weight": norm(c.hidden), "lm_head.weight": linear(c.vocab, c.hidden)}
    return weights


if __name__ == "__main__":
    path = Path(sys.argv[1])
    save_file(make_weights(Config()), path)
