#include "analysis/score_collector.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "analysis/observe.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "hedgerow/error.h"
#include "nn/mixers/masked_rows.h"

namespace hedgerow::analysis {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr uint64_t kSketchSeed = 0;

int64_t heads_of(models::Encoder& model, int64_t layer) {
  return model.attention(layer).mixer().layout().key_heads;
}

std::vector<int64_t> groups_of(models::Encoder& model, const ScoreOptions& options, int64_t layer) {
  std::vector<int64_t> groups;
  if (!options.pool_heads) groups.push_back(heads_of(model, layer));
  if (options.by_query || options.mean_by_query) groups.push_back(options.length);
  return groups;
}

nn::ScoreMoments moments_of(models::Encoder& model, const ScoreOptions& options, int64_t layer,
                            at::Device device = at::kCPU) {
  return nn::ScoreMoments::zeros(groups_of(model, options, layer), options.length,
                                 options.mean_by_query ? 1 : 0, device);
}

// [B,H,T,S] -> [H,B T,S], or [H,T,B,S] by query; heads together [B H T,S], [T,B H,S].
at::Tensor by_group(const at::Tensor& rows, const ScoreOptions& options) {
  const bool by_query = options.by_query || options.mean_by_query;
  if (options.pool_heads)
    return by_query ? rows.permute({2, 0, 1, 3}).flatten(1, 2) : rows.flatten(0, 2);
  return by_query ? rows.permute({1, 2, 0, 3}) : rows.transpose(0, 1).flatten(1, 2);
}

}  // namespace

int64_t ScoreCollector::bytes(models::Encoder& model, const ScoreOptions& options) {
  const int64_t n = options.length;
  int64_t numbers = 0;
  for (const int64_t layer : options.layers) {
    const nn::ScoreMoments one = moments_of(model, options, layer, at::kMeta);
    numbers +=
        (one.mean.numel() + one.scatter.numel()) * (options.num_parts + (options.weights ? 1 : 0));
    numbers += 2 * n * n * options.matrix_rank;
    if (options.mean_weights) numbers += heads_of(model, layer) * n * n;
  }
  return numbers * static_cast<int64_t>(sizeof(double));
}

ScoreCollector::ScoreCollector(models::Encoder& model, const ScoreOptions& options)
    : model_(model), options_(options) {
  const int64_t positions = model.max_tokens();
  HEDGEROW_CHECK(options.length >= 1 && options.length <= positions, "scores: n must be in [1, ",
                 positions, "], the model's positions; got ", options.length);
  HEDGEROW_CHECK(options.num_parts >= 1, "scores: there must be at least 1 part; got ",
                 options.num_parts);
  const int64_t needed = bytes(model, options), available = available_memory();
  char text[96];
  std::snprintf(text, sizeof text, "%.2f GiB, of which %.2f are free",
                static_cast<double>(needed) / kGiB, static_cast<double>(available) / kGiB);
  HEDGEROW_CHECK(needed < available, "scores: moments of n = ", options.length,
                 options.by_query ? " by query" : "", " take ", text,
                 "; take a smaller n or fewer layers");
  for (const int64_t layer : options.layers) {
    scores_.emplace_back();
    for (int64_t part = 0; part < options.num_parts; ++part)
      scores_.back().push_back(moments_of(model, options, layer));
    if (options.weights) weights_.push_back(moments_of(model, options, layer));
    if (options.mean_weights)
      weight_sums_.push_back(
          at::zeros({heads_of(model, layer), options.length, options.length}, at::kDouble));
    if (options.matrix_rank > 0)
      sketches_.push_back(
          MatrixSketch::make(options.length * options.length, options.matrix_rank, kSketchSeed));
  }
}

void ScoreCollector::add_layer(size_t i, const nn::AttentionTrace& trace) {
  HEDGEROW_CHECK(!trace.mask.key_mask && !trace.mask.attn_mask && !trace.mask.is_causal,
                 "scores: windows must have neither padding nor a mask");
  const double scale = 1.0 / std::sqrt(static_cast<double>(trace.q.size(-1)));
  const at::Tensor scores = nn::grouped_matmul(trace.q, trace.k) * scale;  // [B,H,n,n]
  scores_[i][static_cast<size_t>(num_passes_ % options_.num_parts)].add(by_group(scores, options_));
  if (options_.weights || options_.mean_weights) {
    const nn::FixedProjector project(trace.q, trace.k, trace.v);
    const at::Tensor weights = model_.attention(options_.layers[i])
                                   .mixer()
                                   .weights({trace.x, trace.m, project, trace.mask});
    if (options_.weights) weights_[i].add(by_group(weights, options_));
    if (options_.mean_weights) weight_sums_[i].add_(weights.to(at::kDouble).sum(0));
  }
  if (options_.matrix_rank > 0) sketches_[i].add(scores.flatten(2).flatten(0, 1));
}

void ScoreCollector::add(const at::Tensor& input_ids) {
  HEDGEROW_CHECK(input_ids.dim() == 2 && input_ids.size(1) == options_.length,
                 "scores: windows must be [B, ", options_.length, "]; got ", input_ids.sizes());
  check_interrupt();
  const at::NoGradGuard no_grad;
  const ObserveLayers observe(model_, [&](int64_t layer, const nn::AttentionTrace& trace) {
    const auto found = std::find(options_.layers.begin(), options_.layers.end(), layer);
    if (found != options_.layers.end())
      add_layer(static_cast<size_t>(found - options_.layers.begin()), trace);
  });
  models::EncoderInput input;
  input.input_ids = input_ids;
  model_.forward(input);
  num_passes_ += 1;
  num_windows_ += input_ids.size(0);
}

std::vector<nn::ScoreMoments> ScoreCollector::parts(size_t i) const {
  std::vector<nn::ScoreMoments> some;
  for (const nn::ScoreMoments& part : scores_.at(i))
    if (part.count > 0) some.push_back(part);
  return some;
}

nn::ScoreMoments ScoreCollector::scores(size_t i) const { return nn::merged(scores_.at(i)); }

nn::ScoreMoments ScoreCollector::weights(size_t i) const { return weights_.at(i); }

at::Tensor ScoreCollector::mean_weights(size_t i) const {
  return weight_sums_.at(i) / static_cast<double>(num_windows_);
}

// Numbers that are not tensors stand in "counts": passes, windows, then those of all moments and
// sketches in order.
std::vector<std::pair<std::string, at::Tensor>> ScoreCollector::state() const {
  std::vector<std::pair<std::string, at::Tensor>> out;
  std::vector<double> counts = {static_cast<double>(num_passes_),
                                static_cast<double>(num_windows_)};
  const auto add = [&](const std::string& name, const nn::ScoreMoments& moments) {
    out.emplace_back(name + ".mean", moments.mean);
    out.emplace_back(name + ".scatter", moments.scatter);
    counts.push_back(static_cast<double>(moments.count));
  };
  for (size_t i = 0; i < scores_.size(); ++i) {
    const std::string layer = concat("layer.", options_.layers[i]);
    for (size_t part = 0; part < scores_[i].size(); ++part)
      add(concat(layer, ".scores.", part), scores_[i][part]);
    if (options_.weights) add(layer + ".weights", weights_[i]);
    if (options_.mean_weights) out.emplace_back(layer + ".mean_weights", weight_sums_[i]);
    if (options_.matrix_rank == 0) continue;
    out.emplace_back(layer + ".matrices.products", sketches_[i].products);
    out.emplace_back(layer + ".matrices.sum", sketches_[i].sum);
    counts.push_back(static_cast<double>(sketches_[i].count));
    counts.push_back(sketches_[i].squares);
  }
  out.emplace_back("counts", at::tensor(counts, at::kDouble));
  return out;
}

void ScoreCollector::restore(const std::vector<std::pair<std::string, at::Tensor>>& state) {
  size_t next = 0;
  const at::Tensor numbers = state.back().second.contiguous();
  const double* count = numbers.const_data_ptr<double>();
  const auto take = [&] { return state.at(next++).second.clone(); };
  num_passes_ = static_cast<int64_t>(*count++);
  num_windows_ = static_cast<int64_t>(*count++);
  const auto restore_moments = [&](nn::ScoreMoments& moments) {
    moments.mean = take();
    moments.scatter = take();
    moments.count = static_cast<int64_t>(*count++);
  };
  for (size_t i = 0; i < scores_.size(); ++i) {
    for (nn::ScoreMoments& part : scores_[i]) restore_moments(part);
    if (options_.weights) restore_moments(weights_[i]);
    if (options_.mean_weights) weight_sums_[i] = take();
    if (options_.matrix_rank == 0) continue;
    sketches_[i].products = take();
    sketches_[i].sum = take();
    sketches_[i].count = static_cast<int64_t>(*count++);
    sketches_[i].squares = *count++;
  }
}

}  // namespace hedgerow::analysis
