#include "convert/verify.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "hedgerow/error.h"
#include "train/progress.h"

namespace hedgerow::convert {
namespace {

// Tokens of windows in one forward pass.
constexpr int64_t kTokensPerPass = 1024;

std::vector<models::EncoderInput> make_windows(const Verifier::Data& data, int64_t length,
                                               int64_t num_windows) {
  data::WindowOptions options;
  options.window = length;
  options.prefix = data.prefix;
  options.suffix = data.suffix;
  std::vector<data::Sequence> windows = data::pack_windows(data.bodies, options);
  if (static_cast<int64_t>(windows.size()) > num_windows) windows.resize(num_windows);
  std::vector<models::EncoderInput> inputs;
  const int64_t per_pass = std::max<int64_t>(1, kTokensPerPass / length);
  for (size_t begin = 0; begin < windows.size(); begin += per_pass) {
    std::vector<int64_t> rows;
    for (size_t i = begin; i < std::min(windows.size(), begin + per_pass); ++i)
      rows.push_back(static_cast<int64_t>(i));
    models::EncoderInput input;
    input.input_ids = data::make_batch(windows, rows, 0).input_ids;
    inputs.push_back(input);
  }
  return inputs;
}

}  // namespace

Verifier::Verifier(const models::LoadedModel& teacher, Data data, bool quiet)
    : teacher_(teacher), data_(std::move(data)), quiet_(quiet) {
  int64_t num_tokens = 0;
  for (const auto& body : data_.bodies) num_tokens += static_cast<int64_t>(body.size());
  const int64_t fixed = static_cast<int64_t>(data_.prefix.size() + data_.suffix.size());
  for (const int64_t length : data_.kl_lengths) {
    if (length > teacher.encoder->max_tokens() || length <= fixed || num_tokens < length - fixed)
      continue;
    windows_[length] = make_windows(data_, length, std::max<int64_t>(1, data_.kl_tokens / length));
  }
}

at::Tensor Verifier::embed(const models::LoadedModel& model, const std::string& label) const {
  train::Progress progress(label, static_cast<int64_t>(data_.texts.size()), quiet_);
  return analysis::embed_texts(model, data_.texts,
                               [&](int64_t done) { progress.update(done, "texts embedded"); });
}

const at::Tensor& Verifier::teacher_embeddings() {
  if (!teacher_embeddings_.defined()) teacher_embeddings_ = embed(teacher_, "teacher");
  return teacher_embeddings_;
}

namespace {

// Whether f holds for the heads of every layer of both.
template <class F>
bool all_layers(models::Encoder& a, models::Encoder& b, F f) {
  for (int64_t i = 0; i < a.num_layers(); ++i) {
    if (!f(a.attention(i).mixer().layout(), b.attention(i).mixer().layout())) return false;
  }
  return true;
}

}  // namespace

bool same_heads(models::Encoder& a, models::Encoder& b) {
  return all_layers(
      a, b, [](const nn::HeadLayout& x, const nn::HeadLayout& y) { return x.heads == y.heads; });
}

Measures Verifier::measure(models::LoadedModel& model, const std::string& label) {
  Measures out;
  teacher_embeddings();
  model_embeddings_ = embed(model, label);
  out.embedding = analysis::embedding_fidelity(teacher_embeddings_, model_embeddings_);
  out.own_kl = std::nan("");
  models::Encoder &theirs = *teacher_.encoder, &ours = *model.encoder;
  if (!same_heads(theirs, ours)) return out;
  const bool same = all_layers(theirs, ours, std::equal_to<nn::HeadLayout>());
  for (const auto& [length, inputs] : windows_) {
    const analysis::HeadTable table = same ? analysis::kl_on_teacher_heads(theirs, ours, inputs)
                                           : analysis::kl_of_models(theirs, ours, inputs);
    out.kl[length] = analysis::mean_over_layers(table);
    if (length != report_length()) continue;
    out.kl_by_head = table;
    out.own_kl_by_head = same ? analysis::kl_of_models(theirs, ours, inputs) : table;
    out.own_kl = analysis::mean_over_layers(out.own_kl_by_head);
  }
  return out;
}

formats::Json as_json(const Measures& m) {
  formats::Json kl = formats::Json::object();
  for (const auto& [length, value] : m.kl)
    kl[std::to_string(length)] = formats::finite_or_null(value);
  return {{"embedding_cosine", formats::finite_or_null(m.embedding.embedding_cosine)},
          {"nn_agreement", formats::finite_or_null(m.embedding.nn_agreement)},
          {"top10_overlap", formats::finite_or_null(m.embedding.top10_overlap)},
          {"kl", kl},
          {"kl_own_heads", formats::finite_or_null(m.own_kl)}};
}

formats::Json as_json(const analysis::HeadTable& table) {
  formats::Json rows = formats::Json::array();
  for (const auto& heads : table) {
    formats::Json row = formats::Json::array();
    for (double value : heads) row.push_back(formats::finite_or_null(value));
    rows.push_back(row);
  }
  return rows;
}

}  // namespace hedgerow::convert
