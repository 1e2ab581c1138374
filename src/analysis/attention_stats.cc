#include "analysis/attention_stats.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "analysis/observe.h"
#include "analysis/query_blocks.h"
#include "base/interrupt.h"
#include "hedgerow/error.h"

namespace hedgerow::analysis {
namespace {

// Sums over queries, and their number, per layer and head.
class HeadSums {
 public:
  explicit HeadSums(int64_t num_layers) : sums_(num_layers), counts_(num_layers, 0) {}

  // values [B,H,count] of queries that start at `begin`; padded ones are left out.
  void add(int64_t layer, const at::Tensor& values, const nn::AttentionTrace& heads,
           int64_t begin) {
    at::Tensor kept = values.to(at::kDouble);
    int64_t count = kept.size(0) * kept.size(2);
    // Self-attention: padding of the keys is padding of the queries.
    if (heads.mask.key_mask && heads.q.size(2) == heads.k.size(2)) {
      const at::Tensor keep = heads.mask.key_mask->narrow(1, begin, kept.size(2));  // [B,count]
      kept = kept.masked_fill(keep.logical_not().unsqueeze(1), 0);
      count = keep.sum().item<int64_t>();
    }
    const at::Tensor per_head = kept.sum(at::IntArrayRef{0, 2}).contiguous();  // [H]
    auto& sums = sums_[layer];
    sums.resize(per_head.size(0), 0.0);
    for (size_t h = 0; h < sums.size(); ++h) sums[h] += per_head.const_data_ptr<double>()[h];
    counts_[layer] += count;
  }

  HeadTable means() const {
    HeadTable table = sums_;
    for (size_t layer = 0; layer < table.size(); ++layer)
      for (double& value : table[layer])
        value /= static_cast<double>(std::max<int64_t>(counts_[layer], 1));
    return table;
  }

 private:
  HeadTable sums_;
  std::vector<int64_t> counts_;
};

// sum_s p_s (log p_s - log m_s), 0 where p_s is 0: [B,H,T].
at::Tensor kl_rows(const at::Tensor& log_p, const at::Tensor& log_m) {
  const at::Tensor p = log_p.exp();
  return at::where(p > 0, p * (log_p - log_m), 0).sum(-1);
}

void check_same_layers(models::Encoder& teacher, models::Encoder& model) {
  HEDGEROW_CHECK(teacher.num_layers() == model.num_layers(),
                 "analysis: both models must have the same layers; got ", teacher.num_layers(),
                 " and ", model.num_layers());
  for (int64_t layer = 0; layer < model.num_layers(); ++layer) {
    const int64_t a = teacher.attention(layer).mixer().layout().heads,
                  b = model.attention(layer).mixer().layout().heads;
    HEDGEROW_CHECK(a == b, "analysis: both models must have the same heads; got ", a, " and ", b,
                   " in layer ", layer);
  }
}

HeadTable checked_kl(HeadTable table) {
  for (const auto& heads : table)
    for (double value : heads)
      if (!(value > -1e-5))
        throw Failure(concat("analysis: a KL divergence must be at least 0; got ", value));
  return table;
}

HeadTable kl_table(models::Encoder& teacher, models::Encoder& model,
                   const std::vector<models::EncoderInput>& inputs, bool own_heads) {
  check_same_layers(teacher, model);
  const at::NoGradGuard no_grad;
  HeadSums sums(teacher.num_layers());
  const auto compare = [&](int64_t layer, const nn::AttentionTrace& theirs,
                           const nn::AttentionTrace& ours) {
    for_each_query_block(theirs, [&](const QueryBlock& block) {
      const at::Tensor log_p = log_weights(teacher.attention(layer).mixer(), theirs, block);
      const QueryBlock our_block = own_heads ? with_queries(block, ours) : block;
      const at::Tensor log_m = log_weights(model.attention(layer).mixer(), ours, our_block);
      sums.add(layer, kl_rows(log_p, log_m), theirs, block.begin);
    });
  };
  for (const models::EncoderInput& input : inputs) {
    check_interrupt();
    std::vector<nn::AttentionTrace> traces(teacher.num_layers());
    {
      const ObserveLayers observe(teacher, [&](int64_t layer, const nn::AttentionTrace& trace) {
        if (own_heads)
          traces[layer] = trace;
        else
          compare(layer, trace, trace);
      });
      teacher.forward(input);
    }
    if (!own_heads) continue;
    const ObserveLayers observe(model, [&](int64_t layer, const nn::AttentionTrace& trace) {
      compare(layer, traces[layer], trace);
    });
    model.forward(input);
  }
  return checked_kl(sums.means());
}

}  // namespace

double mean_over_layers(const HeadTable& table) {
  double total = 0;
  for (const auto& heads : table) {
    double sum = 0;
    for (double value : heads) sum += value;
    total += sum / static_cast<double>(heads.size());
  }
  return total / static_cast<double>(table.size());
}

HeadTable kl_on_teacher_heads(models::Encoder& teacher, models::Encoder& model,
                              const std::vector<models::EncoderInput>& inputs) {
  return kl_table(teacher, model, inputs, /*own_heads=*/false);
}

HeadTable kl_of_models(models::Encoder& teacher, models::Encoder& model,
                       const std::vector<models::EncoderInput>& inputs) {
  return kl_table(teacher, model, inputs, /*own_heads=*/true);
}

HeadTable entropy(models::Encoder& model, const std::vector<models::EncoderInput>& inputs) {
  const at::NoGradGuard no_grad;
  HeadSums sums(model.num_layers());
  const ObserveLayers observe(model, [&](int64_t layer, const nn::AttentionTrace& trace) {
    for_each_query_block(trace, [&](const QueryBlock& block) {
      const at::Tensor log_p = log_weights(model.attention(layer).mixer(), trace, block);
      const at::Tensor p = log_p.exp();
      sums.add(layer, at::where(p > 0, -p * log_p, 0).sum(-1), trace, block.begin);
    });
  });
  for (const models::EncoderInput& input : inputs) {
    check_interrupt();
    model.forward(input);
  }
  return sums.means();
}

void visit_weights(models::Encoder& model, const models::EncoderInput& input,
                   const std::function<void(int64_t, const at::Tensor&)>& visit) {
  const at::NoGradGuard no_grad;
  const ObserveLayers observe(model, [&](int64_t layer, const nn::AttentionTrace& trace) {
    const nn::FixedProjector project(trace.q, trace.k, trace.v);
    visit(layer, model.attention(layer).mixer().weights({trace.x, trace.m, project, trace.mask}));
  });
  model.forward(input);
}

}  // namespace hedgerow::analysis
