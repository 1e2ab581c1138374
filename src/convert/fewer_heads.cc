#include "convert/fewer_heads.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "analysis/head_grams.h"
#include "hedgerow/error.h"

namespace hedgerow::convert {
namespace {

// Training text that heads are chosen on: windows of so many tokens, so many of them at most.
constexpr int64_t kWindow = 128, kPasses = 4, kWindowsPerPass = 8;

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
  std::vector<models::EncoderInput> inputs;
  const int64_t length = std::min(kWindow, teacher.max_tokens());
  for (const at::Tensor& ids : spread_windows(corpus, length, kPasses, kWindowsPerPass))
    inputs.push_back({ids, {}, {}, {}});
  const std::vector<nn::HeadGrams> grams = analysis::head_grams(teacher, fewer, inputs);
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
