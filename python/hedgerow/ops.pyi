from torch import Tensor

def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor: ...
def entmax(
    x: Tensor, alpha: Tensor | float, dim: int = -1, mask: Tensor | None = None
) -> Tensor: ...
def sparsemax(x: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor: ...
def entmax15(x: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor: ...
def entmax_topk(
    x: Tensor, alpha: Tensor | float, k: int, dim: int = -1, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]: ...
def entmax_loss(
    x: Tensor, target: Tensor, alpha: Tensor | float, ignore_index: int = -100
) -> Tensor: ...
def entmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor | float,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor: ...
def talking_heads_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    logits_proj: Tensor | None,
    weights_proj: Tensor | None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    alpha: Tensor | float | None = None,
    x_logits: Tensor | None = None,
    m_logits: Tensor | None = None,
    x_weights: Tensor | None = None,
    m_weights: Tensor | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor: ...
def dynamic_talking_heads_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    logits_proj: Tensor | None,
    weights_proj: Tensor | None,
    x: Tensor | None = None,
    m: Tensor | None = None,
    x2l: Tensor | None = None,
    m2l: Tensor | None = None,
    x2w: Tensor | None = None,
    m2w: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    alpha: Tensor | float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor: ...
def bilinear_attention(
    x: Tensor,
    m: Tensor,
    p: Tensor,
    p_out: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    alpha: Tensor | float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor: ...
def bilinear_from_talking_heads(
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wo: Tensor,
    logits_proj: Tensor | None = None,
    weights_proj: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]: ...
def partial_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    reconstruction: Tensor,
    mean: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    alpha: Tensor | float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor: ...
def partial_attention_selected(
    q: Tensor,
    k_selected: Tensor,
    v: Tensor,
    positions: Tensor,
    reconstruction: Tensor,
    mean: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    alpha: Tensor | float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor: ...
def greedy_positions(covariance: Tensor, count: int) -> Tensor: ...
def lmmse_reconstruction(covariance: Tensor, positions: Tensor, ridge: float = 0.0) -> Tensor: ...
def hedgehog_features(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, variant: str = "exp"
) -> Tensor: ...
def linear_attention(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, key_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor: ...
def linear_attention_state(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    key_mask: Tensor | None = None,
    s: Tensor | None = None,
    z: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]: ...
def hedgehog_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    wq: Tensor,
    wk: Tensor,
    bq: Tensor | None = None,
    bk: Tensor | None = None,
    variant: str = "exp",
    key_mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor: ...
def hedgehog_attention_state(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    wq: Tensor,
    wk: Tensor,
    bq: Tensor | None = None,
    bk: Tensor | None = None,
    variant: str = "exp",
    key_mask: Tensor | None = None,
    s: Tensor | None = None,
    z: Tensor | None = None,
    m: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
def hedgehog_step_(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    wq: Tensor,
    wk: Tensor,
    bq: Tensor | None,
    bk: Tensor | None,
    variant: str,
    s: Tensor,
    z: Tensor,
    m: Tensor,
) -> Tensor: ...
def attention_weights(
    kind: str,
    q: Tensor,
    k: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    wq: Tensor | None = None,
    wk: Tensor | None = None,
    bq: Tensor | None = None,
    bk: Tensor | None = None,
    variant: str = "exp",
    key_mask: Tensor | None = None,
    alpha: Tensor | float | None = None,
    logits_proj: Tensor | None = None,
    weights_proj: Tensor | None = None,
    x_logits: Tensor | None = None,
    m_logits: Tensor | None = None,
    x_weights: Tensor | None = None,
    m_weights: Tensor | None = None,
    positions: Tensor | None = None,
    reconstruction: Tensor | None = None,
    mean: Tensor | None = None,
) -> Tensor: ...
def entropy(p: Tensor) -> Tensor: ...
def kl_divergence(p: Tensor, q: Tensor) -> Tensor: ...
def js_divergence(p: Tensor, q: Tensor) -> Tensor: ...
