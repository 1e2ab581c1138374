#include "convert/fit_scores.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "analysis/score_collector.h"
#include "hedgerow/error.h"

namespace hedgerow::convert {
namespace {

// Training text that mechanisms are fitted on: 256 windows, in parts for cross-validation.
constexpr int64_t kPasses = 32, kWindowsPerPass = 8, kParts = 4;

// [[..groups] ..layers], queries of a head as their mean.
formats::Json group_means(const at::Tensor& values) {
  at::Tensor heads = values.dim() > 1 ? values.mean(-1) : values;
  heads = heads.reshape({-1}).to(at::kDouble).contiguous();
  return std::vector<double>(heads.const_data_ptr<double>(),
                             heads.const_data_ptr<double>() + heads.numel());
}

}  // namespace

formats::Json fit_to_scores(models::Encoder& teacher, models::Encoder& model,
                            const std::vector<int64_t>& layers, const Corpus& corpus) {
  // One conversion gives all its layers the same options.
  const auto request = model.attention(layers.front()).mixer().score_request();
  if (!request) return nullptr;
  analysis::ScoreOptions options;
  options.length = request->length;
  options.by_query = request->by_query;
  options.pool_heads = request->pool_heads;
  options.mean_by_query = request->mean_by_query;
  options.num_parts = kParts;
  options.mean_weights = true;
  options.layers = layers;
  std::sort(options.layers.begin(), options.layers.end());
  analysis::ScoreCollector scores(teacher, options);
  for (const at::Tensor& ids : spread_windows(corpus, options.length, kPasses, kWindowsPerPass))
    scores.add(ids);
  std::vector<std::vector<nn::ScoreMoments>> parts;
  std::vector<at::Tensor> weights;
  for (size_t i = 0; i < options.layers.size(); ++i) {
    parts.push_back(scores.parts(i));
    weights.push_back(scores.mean_weights(i));
  }
  if (request->over_layers) std::fill(weights.begin(), weights.end(), at::stack(weights).mean(0));
  if (request->over_layers && request->mean_by_query) {
    // Means of each layer, and the mean of the layers' scatters.
    for (size_t part = 0; part < parts[0].size(); ++part) {
      std::vector<at::Tensor> scatters;
      for (const auto& layer : parts) scatters.push_back(layer[part].scatter);
      const at::Tensor mean = at::stack(scatters).mean(0);
      for (auto& layer : parts) layer[part].scatter = mean;
    }
  } else if (request->over_layers) {
    parts = {nn::merged_by_part(parts)};
  }
  formats::Json fit = {{"windows", scores.num_windows()},
                       {"ridge", formats::Json::array()},
                       {"heldout_residual", formats::Json::array()}};
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto found =
        model.attention(options.layers[i]).mixer().start_from({parts[i], weights[i]});
    if (!found) continue;
    fit["ridge"].push_back(group_means(found->ridge));
    fit["heldout_residual"].push_back(group_means(found->left));
  }
  return fit;
}

}  // namespace hedgerow::convert
