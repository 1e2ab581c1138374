#include "analysis/score_report.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "analysis/spectra.h"
#include "nn/score_fit.h"

namespace hedgerow::analysis {
namespace {

using formats::Json;

constexpr double kShares[] = {0.9, 0.95, 0.99};

Json numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(formats::finite_or_null(value));
  return list;
}

Json numbers(const at::Tensor& values) {
  const at::Tensor flat = values.to(at::kDouble).reshape({-1}).contiguous();
  const double* data = flat.const_data_ptr<double>();
  return numbers(std::vector<double>(data, data + flat.numel()));
}

Json integers(const at::Tensor& values) {
  const at::Tensor flat = values.to(at::kLong).contiguous();
  const int64_t* data = flat.const_data_ptr<int64_t>();
  return std::vector<int64_t>(data, data + flat.numel());
}

std::string share_name(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", share);
  return text;
}

// The moments of every layer in one form, heads apart or as a layer.
using Form = std::function<at::Tensor(const nn::ScoreMoments&)>;
struct LayerCovariances {
  std::vector<at::Tensor> layers;  // [n,n]
  std::vector<at::Tensor> heads;   // [H,n,n]
  at::Tensor shared;               // [n,n]
};

LayerCovariances covariances(const std::vector<nn::ScoreMoments>& moments, const Form& form) {
  LayerCovariances out;
  std::vector<nn::ScoreMoments> pooled;
  for (const nn::ScoreMoments& layer : moments) {
    pooled.push_back(layer.pooled());
    out.heads.push_back(form(layer));
    out.layers.push_back(form(pooled.back()));
  }
  out.shared = form(nn::merged(pooled));
  return out;
}

at::Tensor as_is(const nn::ScoreMoments& m) { return m.covariance(); }

std::vector<nn::ScoreMoments> scores_of_layers(const ScoreCollector& scores) {
  std::vector<nn::ScoreMoments> layers;
  for (size_t i = 0; i < scores.num_layers(); ++i) layers.push_back(scores.scores(i));
  return layers;
}

// By name: the forms in which scores are looked at.
std::map<std::string, LayerCovariances> all_forms(const ScoreCollector& scores) {
  const std::vector<nn::ScoreMoments> raw = scores_of_layers(scores);
  std::vector<nn::ScoreMoments> weights;
  for (size_t i = 0; i < scores.num_layers() && scores.has_weights(); ++i)
    weights.push_back(scores.weights(i));
  std::map<std::string, LayerCovariances> forms;
  forms["scores"] = covariances(raw, as_is);
  forms["centred"] =
      covariances(raw, [](const nn::ScoreMoments& m) { return nn::row_centred(m.covariance()); });
  if (scores.has_weights()) forms["weights"] = covariances(weights, as_is);
  return forms;
}

std::vector<Spectrum> spectra(const std::vector<at::Tensor>& covariances) {
  std::vector<Spectrum> all;
  for (const at::Tensor& covariance : covariances) all.push_back(spectrum(covariance));
  return all;
}

// [[f(a, b) ..] ..] over rows a and columns b.
Json table(size_t rows, size_t columns, const std::function<double(size_t, size_t)>& f) {
  Json out = Json::array();
  for (size_t a = 0; a < rows; ++a) {
    std::vector<double> row;
    for (size_t b = 0; b < columns; ++b) row.push_back(f(a, b));
    out.push_back(numbers(row));
  }
  return out;
}

void add_overlaps(Json& out, const std::vector<at::Tensor>& covariances,
                  const std::vector<Spectrum>& ours, const std::vector<Spectrum>& theirs,
                  const std::vector<int64_t>& ks) {
  const int64_t n = ours.front().eigenvalues.size(0);
  for (const int64_t k : ks) {
    const std::string name = std::to_string(k);
    out["chance"][name] = static_cast<double>(k) / static_cast<double>(n);
    out["overlap"][name] = table(ours.size(), theirs.size(), [&](size_t a, size_t b) {
      return overlap(ours[a], theirs[b], k);
    });
    out["explained"][name] = table(ours.size(), theirs.size(), [&](size_t a, size_t b) {
      return explained(covariances[a], theirs[b], k);
    });
  }
}

Json describe_form(const LayerCovariances& c, const std::vector<int64_t>& ks) {
  const std::vector<Spectrum> layers = spectra(c.layers);
  const Spectrum shared = spectrum(c.shared);
  Json out = {{"eigenvalues", Json::array()}, {"shared_eigenvalues", numbers(shared.eigenvalues)}};
  for (const Spectrum& layer : layers) out["eigenvalues"].push_back(numbers(layer.eigenvalues));
  std::vector<std::vector<Spectrum>> heads;
  for (const at::Tensor& layer : c.heads) heads.push_back(spectra(layer.unbind(0)));
  for (const double share : kShares) {
    const std::string name = share_name(share);
    Json by_layer = Json::array(), by_head = Json::array();
    for (size_t i = 0; i < layers.size(); ++i) {
      by_layer.push_back(components_for(layers[i].eigenvalues, share));
      Json row = Json::array();
      for (const Spectrum& head : heads[i]) row.push_back(components_for(head.eigenvalues, share));
      by_head.push_back(row);
    }
    out["k"][name] = by_layer;
    out["shared_k"][name] = components_for(shared.eigenvalues, share);
    out["k_by_head"][name] = by_head;
  }
  add_overlaps(out, c.layers, layers, layers, ks);
  return out;
}

Json describe_positions(const at::Tensor& covariance, int64_t count, int64_t seed) {
  Json out = {{"positions", Json::object()}, {"residual", Json::object()}};
  const at::Tensor values = spectrum(covariance).eigenvalues;
  const int64_t rank = at::linalg_matrix_rank(covariance).item<int64_t>();
  for (const std::string& method : nn::selection_methods()) {
    const at::Tensor chosen = nn::select_positions(
        method, covariance, std::max<int64_t>(1, std::min(count, rank)), /*first=*/false, seed);
    out["positions"][method] = integers(chosen);
    out["residual"][method] = numbers(nn::residual_shares(covariance, chosen));
  }
  std::vector<double> floor = nn::residual_floor(values);
  floor.resize(static_cast<size_t>(count) + 1);
  out["residual"]["floor"] = numbers(floor);
  return out;
}

// Moments of each part, layer by layer; heads pooled.
std::vector<std::vector<nn::ScoreMoments>> pooled_parts(const ScoreCollector& scores) {
  std::vector<std::vector<nn::ScoreMoments>> layers;
  for (size_t i = 0; i < scores.num_layers(); ++i) {
    layers.emplace_back();
    for (const nn::ScoreMoments& part : scores.parts(i)) layers.back().push_back(part.pooled());
  }
  return layers;
}

// Positions as a conversion chooses them: greedily, position 0 among them.
at::Tensor fitted_positions(const std::vector<nn::ScoreMoments>& parts, int64_t count) {
  return nn::select_positions("greedy", nn::merged(parts).covariance(), count, /*first=*/true, 0);
}

Json fitted(const std::vector<std::vector<nn::ScoreMoments>>& fits,
            const std::vector<at::Tensor>& positions) {
  Json ridge = Json::array(), left = Json::array();
  for (size_t i = 0; i < fits.size(); ++i) {
    const nn::ScoreReconstruction fit = nn::fit_reconstruction(fits[i], positions[i]);
    ridge.push_back(numbers(fit.ridge));
    left.push_back(numbers(fit.left));
  }
  return {{"ridge", ridge}, {"heldout_residual", left}};
}

}  // namespace

Json describe_spectra(const ScoreCollector& scores, const ScoreReportOptions& options) {
  Json forms = Json::object();
  for (const auto& [name, form] : all_forms(scores))
    forms[name] = describe_form(form, options.positions);
  return forms;
}

Json describe_against(const ScoreCollector& scores, const ScoreCollector& others,
                      const ScoreReportOptions& options) {
  const auto ours = all_forms(scores), theirs = all_forms(others);
  Json forms = Json::object();
  for (const auto& [name, form] : ours) {
    if (theirs.count(name) == 0) continue;
    add_overlaps(forms[name], form.layers, spectra(form.layers), spectra(theirs.at(name).layers),
                 options.positions);
  }
  return forms;
}

Json describe_selection(const ScoreCollector& scores, const ScoreReportOptions& options) {
  const LayerCovariances c = covariances(scores_of_layers(scores), as_is);
  const int64_t count = *std::max_element(options.positions.begin(), options.positions.end());
  Json layers = Json::array();
  for (const at::Tensor& layer : c.layers)
    layers.push_back(describe_positions(layer, count, options.seed));
  return {{"layers", layers}, {"shared", describe_positions(c.shared, count, options.seed)}};
}

Json describe_reconstruction(const ScoreCollector& scores, const ScoreReportOptions& options) {
  const auto layers = pooled_parts(scores);
  std::vector<std::vector<nn::ScoreMoments>> heads;
  for (size_t i = 0; i < scores.num_layers(); ++i) heads.push_back(scores.parts(i));
  const std::vector<std::vector<nn::ScoreMoments>> shared = {nn::merged_by_part(layers)};
  Json out = Json::array();
  for (const int64_t count : options.positions) {
    std::vector<at::Tensor> positions;
    for (const auto& parts : layers) positions.push_back(fitted_positions(parts, count));
    const auto add = [&](const char* sharing, Json fit) {
      fit["positions"] = count;
      fit["sharing"] = sharing;
      out.push_back(fit);
    };
    add("layer", fitted(layers, positions));
    add("shared", fitted(shared, {fitted_positions(shared.front(), count)}));
    add("head", fitted(heads, positions));
  }
  return out;
}

Json describe_queries(const ScoreCollector& scores, const ScoreCollector& own, int64_t positions) {
  const auto layers = pooled_parts(scores);
  std::vector<double> common, by_query;
  for (size_t i = 0; i < layers.size(); ++i) {
    common.push_back(nn::fit_reconstruction(layers[i], fitted_positions(layers[i], positions))
                         .left.item<double>());
    // What is left of each query position's own variance, as a share of all variance: the means
    // differ by position too.
    const std::vector<nn::ScoreMoments> parts = own.parts(i);
    const nn::ScoreReconstruction fit =
        nn::fit_reconstruction(parts, fitted_positions(parts, positions));
    const nn::ScoreMoments all = nn::merged(parts);
    const at::Tensor variance = all.covariance().diagonal(0, -2, -1).sum(-1);  // [n]
    by_query.push_back(
        ((fit.left * variance).mean() / all.pooled().covariance().diagonal().sum()).item<double>());
  }
  return {{"positions", positions}, {"common", numbers(common)}, {"own", numbers(by_query)}};
}

Json describe_matrices(const ScoreCollector& scores, int64_t num_pairs) {
  Json out = {{"eigenvalues", Json::array()},
              {"total", Json::array()},
              {"pairs", Json::array()},
              {"residual", Json::array()}};
  const int64_t n = scores.length();
  for (size_t i = 0; i < scores.num_layers(); ++i) {
    const MatrixSketch& sketch = scores.matrices(i);
    const MatrixSketch::Components components = sketch.components();
    const SketchSelection selection = select_coordinates(components, num_pairs);
    Json pairs = Json::array();
    for (const int64_t j : selection.coordinates) pairs.push_back({j / n, j % n});
    out["samples"] = sketch.count;
    out["rank"] = components.eigenvalues.size(0);
    out["eigenvalues"].push_back(numbers(components.eigenvalues));
    out["total"].push_back(formats::finite_or_null(components.total));
    out["pairs"].push_back(pairs);
    out["residual"].push_back(numbers(selection.left));
  }
  return out;
}

Json describe_cost(const metrics::AttentionSizes& sizes, const std::vector<int64_t>& positions) {
  Json out = Json::object();
  const metrics::AttentionCost exact = metrics::exact_cost(sizes);
  for (const int64_t count : positions) {
    const metrics::AttentionShares shares =
        metrics::shares_of(metrics::partial_cost(sizes, count), exact);
    out[std::to_string(count)] = {
        {"scores", shares.scores}, {"core", shares.core}, {"layer", shares.layer}};
  }
  return out;
}

}  // namespace hedgerow::analysis
