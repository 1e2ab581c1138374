#include "analysis/head_grams.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "analysis/observe.h"
#include "base/interrupt.h"
#include "hedgerow/error.h"

namespace hedgerow::analysis {
namespace {

at::Tensor zeros(int64_t heads, int64_t dim) {
  return at::zeros(std::vector<int64_t>(dim, heads), at::kDouble);
}

// sum over queries of Cov_w(J_a, J_b) for the weights of every head.
void add_logits(nn::HeadGrams& grams, const at::Tensor& scores, const at::Tensor& weights) {
  const int64_t heads = scores.size(1), num_keys = scores.size(3);
  const at::Tensor j = scores.transpose(0, 1).flatten(1, 2).to(at::kDouble);  // [H,N,S]
  for (int64_t h = 0; h < heads; ++h) {
    // half of the uniform distribution, so that keys of little weight are not free to gain some
    const at::Tensor w =
        (weights.select(1, h).flatten(0, 1).to(at::kDouble) + 1.0 / num_keys) / 2;  // [N,S]
    const at::Tensor mean = (j * w).sum(-1, true);                                  // [H,N,1]
    const at::Tensor centred = ((j - mean) * w.sqrt()).flatten(1);
    grams.logits.select(0, h).add_(centred.matmul(centred.t()));
  }
}

// Gram matrices of what value head c puts out with the weights of head h.
void add_outputs(nn::HeadGrams& grams, const at::Tensor& weights, const at::Tensor& v,
                 const at::Tensor& output_weight) {
  const int64_t heads = v.size(1), width = v.size(3);
  const at::Tensor wo =
      output_weight.t().view({heads, width, output_weight.size(0)}).unsqueeze(0);  // [1,H,Dv,d]
  const at::Tensor values = v.matmul(wo);                                          // [B,H,S,d]
  std::vector<at::Tensor> own;
  for (int64_t h = 0; h < heads; ++h) {
    const at::Tensor out = weights.narrow(1, h, 1).matmul(values);           // [B,H,T,d]
    const at::Tensor rows = out.transpose(0, 1).flatten(1).to(at::kDouble);  // [H,N d]
    grams.outputs.select(0, h).add_(rows.matmul(rows.t()));
    own.push_back(rows.select(0, h));
  }
  const at::Tensor rows = at::stack(own);
  grams.contributions.add_(rows.matmul(rows.t()));
}

}  // namespace

std::vector<nn::HeadGrams> head_grams(models::Encoder& model, const std::vector<int64_t>& layers,
                                      const std::vector<models::EncoderInput>& inputs) {
  std::vector<nn::HeadGrams> grams;
  for (const int64_t layer : layers) {
    const nn::HeadLayout& layout = model.attention(layer).mixer().layout();
    const int64_t heads = layout.heads;
    HEDGEROW_CHECK(layout == nn::HeadLayout::multi_head(heads, layout.head_dim),
                   "head_grams: layer ", layer, " must have as many heads of q, k and v");
    grams.push_back({zeros(heads, 3), zeros(heads, 3), zeros(heads, 2)});
  }
  const at::NoGradGuard no_grad;
  const ObserveLayers observe(model, [&](int64_t layer, const nn::AttentionTrace& trace) {
    const auto found = std::find(layers.begin(), layers.end(), layer);
    if (found == layers.end()) return;
    HEDGEROW_CHECK(!trace.mask.key_mask, "head_grams: the inputs must have no padding");
    nn::HeadGrams& sums = grams[found - layers.begin()];
    nn::Attention& attention = model.attention(layer);
    const nn::FixedProjector project(trace.q, trace.k, trace.v);
    const at::Tensor weights =
        attention.mixer().weights({trace.x, trace.m, project, trace.mask});  // [B,H,T,S]
    const double scale = 1.0 / std::sqrt(static_cast<double>(trace.q.size(-1)));
    add_logits(sums, trace.q.matmul(trace.k.transpose(-1, -2)) * scale, weights);
    add_outputs(sums, weights, trace.v, attention.output().weight);
  });
  for (const models::EncoderInput& input : inputs) {
    check_interrupt();
    model.forward(input);
  }
  return grams;
}

}  // namespace hedgerow::analysis
