#include "bench/partial_methods.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "hedgerow/ops.h"
#include "metrics/attention_cost.h"

namespace hedgerow::bench {
namespace {

// Inputs. Operators: q, k, v, then kR and the mean. Layer: tokens of queries, keys and values
// [B,1,T,M] (one tensor), the projections [M,M], then R and the mean.
constexpr size_t kR = 3, kMean = 4;
constexpr size_t kQueryProj = 3, kKeyProj = 4, kValueProj = 5, kOutputProj = 6, kLayerR = 7,
                 kLayerMean = 8;

at::Tensor positions_of(const AttentionBenchConfig& config, int64_t keys) {
  return at::arange(config.num_positions, at::kLong).mul(keys / config.num_positions);
}

at::Tensor normal(std::vector<int64_t> shape, at::Generator& generator, double size = 1.0) {
  return at::randn(shape, generator, at::kFloat) * size;
}

double inverse_root(int64_t n) { return 1 / std::sqrt(static_cast<double>(n)); }

// Of a size that gives reconstructed scores the size of exact ones.
void add_reconstruction(const AttentionBenchConfig& config, int64_t length,
                        at::Generator& generator, Tensors* inputs) {
  const int64_t P = config.num_positions;
  inputs->push_back(normal({length, P}, generator, inverse_root(P)));
  inputs->push_back(normal({length}, generator));
}

// ---- operators ---------------------------------------------------------------------------------

BenchInputs all_keys_inputs(const AttentionBenchConfig& config, int64_t length,
                            at::Generator& generator) {
  const std::vector<int64_t> shape = {config.batch, config.heads, length, config.head_dim};
  BenchInputs x;
  x.exact = {normal(shape, generator, config.input_scale),
             normal(shape, generator, config.input_scale), normal(shape, generator)};
  x.own = x.exact;
  add_reconstruction(config, length, generator, &x.own);
  return x;
}

BenchInputs selected_inputs(const AttentionBenchConfig& config, int64_t length,
                            at::Generator& generator) {
  BenchInputs x = all_keys_inputs(config, length, generator);
  x.own[1] = x.own[1].index_select(2, positions_of(config, length));
  return x;
}

at::Tensor run_all_keys(const AttentionBenchConfig& config, const Tensors& x, bool causal) {
  return ops::partial_attention(x[0], x[1], x[2], positions_of(config, x[2].size(2)), x[kR],
                                {.mean = x[kMean], .is_causal = causal});
}

at::Tensor run_selected(const AttentionBenchConfig& config, const Tensors& x, bool causal) {
  return ops::partial_attention_selected(x[0], x[1], x[2], positions_of(config, x[2].size(2)),
                                         x[kR], {.mean = x[kMean], .is_causal = causal});
}

at::Tensor exact_attention(const AttentionBenchConfig&, const Tensors& x, bool causal) {
  return ops::softmax_attention(x[0], x[1], x[2], {}, causal);
}

// The formula, for q [B,H,R,D], selected keys k [B,H,P,D] and hidden keys [R,S]; reconstruction
// [S,P] and mean [S], or [1,R,S,P] and [1,R,S] of the rows.
at::Tensor weights_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& reconstruction,
                      const at::Tensor& mean, const at::Tensor& positions, const at::Tensor& hidden,
                      double* largest) {
  const at::Tensor exact = at::matmul(q, k.transpose(-1, -2)) * inverse_root(q.size(-1));
  const at::Tensor centred =
      (exact - mean.index_select(-1, positions)).masked_fill(hidden.index_select(1, positions), 0);
  const auto reconstructed = [](const at::Tensor& c, const at::Tensor& r) {
    return r.dim() == 2 ? at::matmul(c, r.t()) : at::einsum("bhtp,tsp->bhts", {c, r.squeeze(0)});
  };
  // rounding is of the terms of the sums
  raise_to(reconstructed(centred.abs(), reconstruction.abs()) + mean.abs(), largest);
  const at::Tensor scores = mean + reconstructed(centred, reconstruction);
  return scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()).softmax(-1);
}

at::Tensor selected_rows(const AttentionBenchConfig& config, const Tensors& x,
                         const at::Tensor& hidden, double* largest) {
  return weights_of(x[0], x[1], x[kR], x[kMean], positions_of(config, hidden.size(1)), hidden,
                    largest);
}

at::Tensor all_keys_rows(const AttentionBenchConfig& config, const Tensors& x,
                         const at::Tensor& hidden, double* largest) {
  Tensors selected = x;
  selected[1] = x[1].index_select(2, positions_of(config, hidden.size(1)));
  return selected_rows(config, selected, hidden, largest);
}

// R and mean of its own for each query; positions too, though these are the same ones.
BenchInputs by_query_inputs(const AttentionBenchConfig& config, int64_t length,
                            at::Generator& generator) {
  const int64_t P = config.num_positions;
  BenchInputs x = all_keys_inputs(config, length, generator);
  x.own[kR] = normal({1, length, length, P}, generator, inverse_root(P));
  x.own[kMean] = normal({1, length, length}, generator);
  return x;
}

at::Tensor run_by_query(const AttentionBenchConfig& config, const Tensors& x, bool causal) {
  const int64_t length = x[0].size(2);
  const at::Tensor positions =
      positions_of(config, length).expand({1, length, config.num_positions});
  return ops::partial_attention(x[0], x[1], x[2], positions, x[kR],
                                {.mean = x[kMean], .is_causal = causal});
}

// Scores of selected keys, R and values; the backward has two products of the first kind and, with
// scores formed again, three and two of the others.
double operator_flops(const AttentionBenchConfig& config, const AttentionBenchRow& row) {
  const double P = static_cast<double>(row.positions), D = static_cast<double>(config.head_dim);
  const double selected = static_cast<double>(config.batch * config.heads * row.length) * P * D;
  const double pairs = pairs_of(config, row);
  return is_training(row) ? 2 * (3 * selected + pairs * (4 * P + 3 * D))
                          : 2 * (selected + pairs * (P + D));
}

// ---- layer -------------------------------------------------------------------------------------

BenchInputs layer_inputs(const AttentionBenchConfig& config, int64_t length,
                         at::Generator& generator) {
  const int64_t M = config.heads * config.head_dim;
  const at::Tensor tokens = normal({config.batch, 1, length, M}, generator);
  BenchInputs x;
  x.exact = {tokens, tokens, tokens};
  for (int i = 0; i < 4; i++) x.exact.push_back(normal({M, M}, generator, inverse_root(M)));
  x.own = x.exact;
  add_reconstruction(config, length, generator, &x.own);
  return x;
}

// Tokens [B,1,n,M] -> heads [B,H,n,D], and back.
at::Tensor heads_of(const AttentionBenchConfig& config, const at::Tensor& tokens,
                    const at::Tensor& proj) {
  return at::linear(tokens.squeeze(1), proj)
      .unflatten(-1, {config.heads, config.head_dim})
      .transpose(1, 2);
}
at::Tensor tokens_of(const at::Tensor& heads, const at::Tensor& proj) {
  return at::linear(heads.transpose(1, 2).flatten(2), proj).unsqueeze(1);
}

// Heads of the keys at the positions alone.
at::Tensor selected_heads(const AttentionBenchConfig& config, const Tensors& x,
                          const at::Tensor& positions) {
  return heads_of(config, x[1].index_select(2, positions), x[kKeyProj]);
}

at::Tensor run_layer(const AttentionBenchConfig& config, const Tensors& x, bool causal) {
  const at::Tensor positions = positions_of(config, x[2].size(2));
  const at::Tensor out = ops::partial_attention_selected(
      heads_of(config, x[0], x[kQueryProj]), selected_heads(config, x, positions),
      heads_of(config, x[2], x[kValueProj]), positions, x[kLayerR],
      {.mean = x[kLayerMean], .is_causal = causal});
  return tokens_of(out, x[kOutputProj]);
}

template <typename Attention>
at::Tensor exact_layer_of(const AttentionBenchConfig& config, const Tensors& x,
                          const Attention& attention) {
  const at::Tensor out =
      attention(heads_of(config, x[0], x[kQueryProj]), heads_of(config, x[1], x[kKeyProj]),
                heads_of(config, x[2], x[kValueProj]));
  return tokens_of(out, x[kOutputProj]);
}

at::Tensor exact_layer(const AttentionBenchConfig& config, const Tensors& x, bool causal) {
  return exact_layer_of(config, x, [&](const auto& q, const auto& k, const auto& v) {
    return ops::softmax_attention(q, k, v, {}, causal);
  });
}

at::Tensor sdpa_layer(const AttentionBenchConfig& config, const Tensors& x, bool causal) {
  return exact_layer_of(config, x, [&](const auto& q, const auto& k, const auto& v) {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal);
  });
}

at::Tensor layer_rows(const AttentionBenchConfig& config, const Tensors& x,
                      const at::Tensor& hidden, double* largest) {
  const at::Tensor positions = positions_of(config, hidden.size(1));
  return weights_of(heads_of(config, x[0], x[kQueryProj]), selected_heads(config, x, positions),
                    x[kLayerR], x[kLayerMean], positions, hidden, largest);
}

at::Tensor layer_row_output(const AttentionBenchConfig& config, const Tensors& x,
                            const at::Tensor& weights) {
  return tokens_of(at::matmul(weights, heads_of(config, x[2], x[kValueProj])), x[kOutputProj]);
}

// A projection's backward has two products of its forward's size.
double layer_flops(const AttentionBenchConfig& config, const AttentionBenchRow& row) {
  const double M = static_cast<double>(config.heads * config.head_dim);
  const double projected = static_cast<double>(config.batch * (3 * row.length + row.positions));
  return operator_flops(config, row) + 2 * M * M * projected * (is_training(row) ? 3 : 1);
}

}  // namespace

std::vector<BenchMethod> partial_methods() {
  BenchMethod all_keys, selected, layer;
  all_keys.name = "partial_all_keys";
  all_keys.run = run_all_keys;
  all_keys.row_weights = all_keys_rows;
  all_keys.flops = operator_flops;
  all_keys.family = "partial";
  all_keys.takes_positions = true;
  all_keys.inputs = all_keys_inputs;
  all_keys.exact = exact_attention;

  selected = all_keys;
  selected.name = "partial_selected";
  selected.run = run_selected;
  selected.row_weights = selected_rows;
  selected.inputs = selected_inputs;

  layer = all_keys;
  layer.name = "partial_layer";
  layer.run = run_layer;
  layer.row_weights = layer_rows;
  layer.row_output = layer_row_output;
  layer.flops = layer_flops;
  layer.inputs = layer_inputs;
  layer.exact = exact_layer;
  layer.sdpa = sdpa_layer;

  BenchMethod by_query = all_keys;  // alone: R has T S P numbers
  by_query.name = "partial_by_query";
  by_query.family = "";
  by_query.run = run_by_query;
  by_query.by_query = {kR, kMean};
  by_query.inputs = by_query_inputs;
  return {all_keys, selected, layer, by_query};
}

}  // namespace hedgerow::bench
