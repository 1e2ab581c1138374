"""The operators, as functions.

Legend: B batch, T queries, S keys, H heads, Hkv key/value heads (Hkv divides H; head h reads key/value
head h // (H // Hkv)), D query/key width, Dv value width, E map width, F feature width.

Rules common to all: inputs have one dtype out of float32, bfloat16 and float64. What a mask excludes is
never read: NaN stored there changes nothing. A query that sees no key gives zeros and zero gradients.
Sizes of 0 work. Wrong arguments raise RuntimeError whose text is "op: rule; got values". Causality is
aligned bottom-right: query t sees keys s <= t + (S - T) (scaled_dot_product_attention aligns top-left).

Each operator is also torch.ops.hedgerow.<name>, works under torch.compile(fullgraph=True), and has second
derivatives.
"""

from __future__ import annotations

from ._entmax import entmax, entmax15, entmax_attention, entmax_loss, entmax_topk, sparsemax
from ._hedgehog import (
    hedgehog_attention,
    hedgehog_attention_state,
    hedgehog_features,
    hedgehog_step_,
)
from ._linear import linear_attention, linear_attention_state
from ._measures import attention_weights, entropy, js_divergence, kl_divergence
from ._partial import (
    greedy_positions,
    lmmse_reconstruction,
    partial_attention,
    partial_attention_selected,
)
from ._softmax import softmax_attention
from ._talking_heads import (
    bilinear_attention,
    bilinear_from_talking_heads,
    dynamic_talking_heads_attention,
    talking_heads_attention,
)

__all__ = [
    "attention_weights",
    "bilinear_attention",
    "bilinear_from_talking_heads",
    "dynamic_talking_heads_attention",
    "entmax",
    "entmax15",
    "entmax_attention",
    "entmax_loss",
    "entmax_topk",
    "entropy",
    "greedy_positions",
    "hedgehog_attention",
    "hedgehog_attention_state",
    "hedgehog_features",
    "hedgehog_step_",
    "js_divergence",
    "kl_divergence",
    "linear_attention",
    "linear_attention_state",
    "lmmse_reconstruction",
    "partial_attention",
    "partial_attention_selected",
    "softmax_attention",
    "sparsemax",
    "talking_heads_attention",
]
