#include "analysis/attention_stats.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "analysis/observe.h"
#include "base/interrupt.h"
#include "hedgerow/error.h"

namespace hedgerow::analysis {
namespace {

// Pairs (query, key) of one head that a block of queries may span: bounds memory at long texts.
constexpr int64_t kPairsAtOnce = int64_t{1} << 19;

// log of the weights that `mixer` gives to queries [begin, begin + count) of the heads:
// [B,H,count,S].
at::Tensor log_weights(nn::Mixer& mixer, const nn::AttentionTrace& heads, int64_t begin,
                       int64_t count) {
  const int64_t num_queries = heads.q.size(2), num_keys = heads.k.size(2);
  nn::AttentionMask mask = heads.mask;
  at::Tensor k = heads.k, v = heads.v;
  if (mask.attn_mask && mask.attn_mask->dim() >= 2 && mask.attn_mask->size(-2) == num_queries)
    mask.attn_mask = mask.attn_mask->narrow(-2, begin, count);
  // Causality is aligned at the end, so a block in the middle is an offset mask of its own.
  if (mask.is_causal && count < num_queries) {
    const at::Tensor seen =
        at::ones({count, num_keys}, at::kBool).tril(begin + num_keys - num_queries);
    mask.attn_mask = mask.attn_mask
                         ? at::where(seen, *mask.attn_mask, -std::numeric_limits<float>::infinity())
                         : seen;
    mask.is_causal = false;
  }
  const nn::FixedProjector project(heads.q.narrow(2, begin, count), k, v);
  return mixer.log_weights({{}, {}, project, mask});
}

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

void for_each_block(const nn::AttentionTrace& heads,
                    const std::function<void(int64_t, int64_t)>& body) {
  const int64_t num_queries = heads.q.size(2);
  const int64_t pairs_per_query = std::max<int64_t>(1, heads.q.size(0) * heads.k.size(2));
  const int64_t block = std::max<int64_t>(1, kPairsAtOnce / pairs_per_query);
  for (int64_t begin = 0; begin < num_queries; begin += block)
    body(begin, std::min(block, num_queries - begin));
}

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
    for_each_block(theirs, [&](int64_t begin, int64_t count) {
      const at::Tensor log_p = log_weights(teacher.attention(layer).mixer(), theirs, begin, count);
      const at::Tensor log_m = log_weights(model.attention(layer).mixer(), ours, begin, count);
      sums.add(layer, kl_rows(log_p, log_m), theirs, begin);
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
    for_each_block(trace, [&](int64_t begin, int64_t count) {
      const at::Tensor log_p = log_weights(model.attention(layer).mixer(), trace, begin, count);
      const at::Tensor p = log_p.exp();
      sums.add(layer, at::where(p > 0, -p * log_p, 0).sum(-1), trace, begin);
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
    visit(layer, model.attention(layer).mixer().weights({{}, {}, project, trace.mask}));
  });
  model.forward(input);
}

}  // namespace hedgerow::analysis
