#include "convert/fewer_heads.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "analysis/head_grams.h"
#include "hedgerow/error.h"

namespace hedgerow::convert {
namespace {

// Training text that heads are chosen on: windows of so many tokens, so many of them at most.
constexpr int64_t kWindow = 128, kNumWindows = 32, kWindowsPerPass = 8;

// Windows of running text from places spread over the corpus.
std::vector<models::EncoderInput> sample(const Corpus& corpus, int64_t max_positions) {
  const int64_t fixed = static_cast<int64_t>(corpus.prefix.size() + corpus.suffix.size());
  const int64_t length = std::min(kWindow, max_positions);
  HEDGEROW_CHECK(length > fixed, "convert: the model has ", max_positions,
                 " positions, of which special tokens take ", fixed);
  const int64_t num_texts = static_cast<int64_t>(corpus.train_bodies.size());
  std::vector<models::EncoderInput> inputs;
  for (int64_t i = 0; i < kNumWindows; i += kWindowsPerPass) {
    std::vector<int64_t> ids;
    for (int64_t n = i; n < i + kWindowsPerPass; ++n)
      append_window(corpus, corpus.train_bodies, n * num_texts / kNumWindows, length, ids);
    inputs.emplace_back();
    inputs.back().input_ids = at::tensor(ids, at::kLong).view({kWindowsPerPass, length});
  }
  return inputs;
}

// Rows [heads * width] of a linear layer's weight or bias that belong to the kept heads.
at::Tensor rows_of(const at::Tensor& t, const std::vector<int64_t>& heads, int64_t width) {
  return t.unflatten(0, {-1, width}).index_select(0, at::tensor(heads, at::kLong)).flatten(0, 1);
}

void copy_rows(const nn::Linear& from, const std::vector<int64_t>& heads, int64_t width,
               nn::Linear& to) {
  to.weight.copy_(rows_of(from.weight, heads, width));
  if (from.bias.defined()) to.bias.copy_(rows_of(from.bias, heads, width));
}

}  // namespace

void start_fewer_heads(models::Encoder& teacher, models::Encoder& model,
                       const std::vector<int64_t>& layers, const Corpus& corpus) {
  std::vector<int64_t> fewer;
  for (const int64_t layer : layers) {
    const nn::HeadLayout& theirs = teacher.attention(layer).shape().layout;
    if (!(theirs == model.attention(layer).shape().layout)) fewer.push_back(layer);
  }
  if (fewer.empty()) return;
  const std::vector<nn::HeadGrams> grams =
      analysis::head_grams(teacher, fewer, sample(corpus, teacher.config().max_positions));
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < fewer.size(); ++i) {
    nn::Attention &from = teacher.attention(fewer[i]), &to = model.attention(fewer[i]);
    const nn::HeadLayout& layout = to.shape().layout;
    const nn::HeadChoice kept = to.mixer().start_from(grams[i]);
    copy_rows(from.query(), kept.key_heads, layout.head_dim, to.query());
    copy_rows(from.key(), kept.key_heads, layout.head_dim, to.key());
    copy_rows(from.value(), kept.value_heads, layout.value_dim, to.value());
    to.output().weight.copy_(
        rows_of(from.output().weight.t(), kept.value_heads, layout.value_dim).t());
    if (from.output().bias.defined()) to.output().bias.copy_(from.output().bias);
  }
}

}  // namespace hedgerow::convert
