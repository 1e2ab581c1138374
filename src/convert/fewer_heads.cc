#include "convert/fewer_heads.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "analysis/head_grams.h"
#include "hedgerow/error.h"

namespace hedgerow::convert {
namespace {

// Training text that heads are chosen on: windows of so many tokens, so many of them at most.
constexpr int64_t kWindow = 128, kNumWindows = 32, kWindowsPerPass = 8;

// Windows of running text from places spread over the corpus.
std::vector<models::EncoderInput> sample(const Corpus& corpus, int64_t max_positions) {
  const int64_t fixed = static_cast<int64_t>(corpus.prefix.size() + corpus.suffix.size());
  const int64_t room = std::min(kWindow, max_positions) - fixed;
  HEDGEROW_CHECK(room > 0, "convert: the model has ", max_positions,
                 " positions, of which special tokens take ", fixed);
  const auto& bodies = corpus.train_bodies;
  const int64_t num_texts = static_cast<int64_t>(bodies.size());
  std::vector<data::Sequence> windows;
  for (int64_t i = 0; i < kNumWindows; ++i) {
    data::Sequence window{corpus.prefix, {}};
    const int64_t first = i * num_texts / kNumWindows;
    for (int64_t n = 0, left = room; left > 0 && n < num_texts; ++n) {
      const auto& body = bodies[(first + n) % num_texts];
      const int64_t count = std::min<int64_t>(left, body.size());
      window.ids.insert(window.ids.end(), body.begin(), body.begin() + count);
      left -= count;
    }
    window.ids.insert(window.ids.end(), corpus.suffix.begin(), corpus.suffix.end());
    windows.push_back(window);
  }
  std::map<size_t, std::vector<int64_t>> by_length;  // little text: shorter windows
  for (size_t i = 0; i < windows.size(); ++i)
    by_length[windows[i].ids.size()].push_back(static_cast<int64_t>(i));
  std::vector<models::EncoderInput> inputs;
  for (const auto& [length, rows] : by_length) {
    for (size_t i = 0; i < rows.size(); i += kWindowsPerPass) {
      const size_t end = std::min(rows.size(), i + kWindowsPerPass);
      models::EncoderInput input;
      input.input_ids = data::make_batch(windows, std::span(rows).subspan(i, end - i), 0).input_ids;
      inputs.push_back(input);
    }
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
