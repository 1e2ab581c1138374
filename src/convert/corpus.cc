#include "convert/corpus.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/counter_rng.h"
#include "base/interrupt.h"
#include "data/text.h"
#include "hedgerow/error.h"
#include "tokenizers/tokenizer.h"

namespace hedgerow::convert {

struct TextEncoder::Impl {
  std::unique_ptr<tokenizers::Tokenizer> tokenizer;
};

TextEncoder::TextEncoder(const std::string& folder) : impl_(std::make_unique<Impl>()) {
  impl_->tokenizer = tokenizers::load_tokenizer(folder);
  // Special tokens are marked; those before the first unmarked token are the prefix.
  const tokenizers::Encoding probe = impl_->tokenizer->encode("a");
  size_t first = 0, last = probe.ids.size();
  while (first < last && probe.special_tokens_mask[first] != 0) ++first;
  while (last > first && probe.special_tokens_mask[last - 1] != 0) --last;
  special_.prefix.assign(probe.ids.begin(), probe.ids.begin() + static_cast<int64_t>(first));
  special_.suffix.assign(probe.ids.begin() + static_cast<int64_t>(last), probe.ids.end());
}

TextEncoder::~TextEncoder() = default;

std::vector<int64_t> TextEncoder::body(const std::string& text) const {
  tokenizers::EncodeOptions options;
  options.add_special_tokens = false;
  const tokenizers::Encoding encoding = impl_->tokenizer->encode(text, options);
  return {encoding.ids.begin(), encoding.ids.end()};
}

data::Sequence TextEncoder::wrap(const std::vector<int64_t>& body, int64_t max_length) const {
  const int64_t fixed = static_cast<int64_t>(special_.prefix.size() + special_.suffix.size());
  HEDGEROW_CHECK(max_length > fixed, "a text's length must exceed its ", fixed,
                 " special tokens; got ", max_length);
  data::Sequence sequence;
  sequence.ids = special_.prefix;
  const int64_t count = std::min<int64_t>(max_length - fixed, body.size());
  sequence.ids.insert(sequence.ids.end(), body.begin(), body.begin() + count);
  sequence.ids.insert(sequence.ids.end(), special_.suffix.begin(), special_.suffix.end());
  return sequence;
}

std::string TextEncoder::token(int64_t id) const {
  return impl_->tokenizer->id_to_token(static_cast<int32_t>(id)).value_or(concat("[", id, "]"));
}

namespace {

constexpr int64_t kMostWatched = 128;  // texts

// Bodies of all texts; texts without a token are dropped from both lists.
std::vector<std::vector<int64_t>> bodies(const TextEncoder& encoder,
                                         std::vector<std::string>& texts) {
  std::vector<std::vector<int64_t>> out;
  std::vector<std::string> kept;
  for (std::string& text : texts) {
    check_interrupt();
    std::vector<int64_t> body = encoder.body(text);
    if (body.empty()) continue;
    out.push_back(std::move(body));
    kept.push_back(std::move(text));
  }
  texts = std::move(kept);
  return out;
}

}  // namespace

// Windows of exactly `length` tokens of the bodies end to end, at most `count` of them, and the
// texts that they begin in or reach into.
struct Windows {
  std::vector<data::Sequence> sequences;
  std::vector<std::string> texts;
};

Windows join(const Corpus& corpus, const std::vector<std::vector<int64_t>>& bodies,
             const std::vector<std::string>& texts, int64_t length, int64_t count) {
  data::WindowOptions options;
  options.window = length;
  options.prefix = corpus.prefix;
  options.suffix = corpus.suffix;
  Windows out;
  out.sequences = data::pack_windows(bodies, options);
  if (static_cast<int64_t>(out.sequences.size()) > count) out.sequences.resize(count);
  if (texts.empty()) return out;
  const int64_t room = length - static_cast<int64_t>(corpus.prefix.size() + corpus.suffix.size());
  int64_t begin = 0, end = 0;  // tokens of the current text
  out.texts.resize(out.sequences.size());
  for (size_t i = 0; i < bodies.size(); ++i, begin = end) {
    end = begin + static_cast<int64_t>(bodies[i].size());
    for (int64_t w = begin / room; w * room < end && w < static_cast<int64_t>(out.texts.size());
         ++w)
      out.texts[w] += (out.texts[w].empty() ? "" : " ") + texts[i];
  }
  return out;
}

// The same for texts that are joined: what is verified comes first, what training watches after.
void join_texts(const ConvertConfig& config, const std::vector<std::string>& heldout,
                Corpus& corpus) {
  const int64_t length = config.recover.length;
  corpus.train = join(corpus, corpus.train_bodies, {}, length, INT64_MAX).sequences;
  // a twentieth is for watching, at most kMostWatched windows
  const Windows windows = join(corpus, corpus.heldout_bodies, heldout, length, INT64_MAX);
  const auto total = static_cast<int64_t>(windows.sequences.size());
  const int64_t watched = std::min(kMostWatched, total / 20);
  const int64_t verified = std::min(config.verify.texts, total - watched);
  corpus.heldout.assign(windows.sequences.begin(), windows.sequences.begin() + verified);
  corpus.heldout_texts.assign(windows.texts.begin(), windows.texts.begin() + verified);
  corpus.watched.assign(windows.sequences.end() - watched, windows.sequences.end());
  for (const data::Sequence& window : corpus.watched)
    corpus.watched_bodies.push_back(body_of(corpus, window));
}

Corpus load_corpus(const ConvertConfig& config, int64_t max_length) {
  data::Split split =
      data::read_split(config.data, config.heldout, data::read_options(config.data, config.column));
  const TextEncoder encoder(config.model);
  Corpus corpus;
  corpus.prefix = encoder.special().prefix;
  corpus.suffix = encoder.special().suffix;
  corpus.num_copies = split.num_copies;
  corpus.train_bodies = bodies(encoder, split.train);
  corpus.heldout_bodies = bodies(encoder, split.heldout);
  corpus.num_heldout = static_cast<int64_t>(corpus.heldout_bodies.size());
  HEDGEROW_CHECK(!corpus.train_bodies.empty() && !corpus.heldout_bodies.empty(), config.data,
                 ": training and held-out texts must have tokens; got ", corpus.train_bodies.size(),
                 " and ", corpus.heldout_bodies.size(), " texts with some");
  if (config.join) {
    join_texts(config, split.heldout, corpus);
    return corpus;
  }
  const int64_t train_length = std::min(config.recover.length, max_length);
  for (const auto& body : corpus.train_bodies)
    corpus.train.push_back(encoder.wrap(body, train_length));
  const int64_t num_verified = std::min(config.verify.texts, corpus.num_heldout);
  for (int64_t i = 0; i < num_verified; ++i) {
    corpus.heldout.push_back(encoder.wrap(corpus.heldout_bodies[i], max_length));
    corpus.heldout_texts.push_back(split.heldout[i]);
  }
  const int64_t watched_end = std::min(corpus.num_heldout, num_verified + kMostWatched);
  for (int64_t i = num_verified; i < watched_end; ++i) {
    corpus.watched.push_back(encoder.wrap(corpus.heldout_bodies[i], train_length));
    corpus.watched_bodies.push_back(corpus.heldout_bodies[i]);
  }
  return corpus;
}

std::vector<int64_t> body_of(const Corpus& corpus, const data::Sequence& sequence) {
  return {sequence.ids.begin() + static_cast<int64_t>(corpus.prefix.size()),
          sequence.ids.end() - static_cast<int64_t>(corpus.suffix.size())};
}

std::vector<at::Tensor> spread_windows(const Corpus& corpus, int64_t length, int64_t passes,
                                       int64_t windows_per_pass) {
  const int64_t fixed = static_cast<int64_t>(corpus.prefix.size() + corpus.suffix.size());
  HEDGEROW_CHECK(length > fixed, "windows: must be longer than their ", fixed,
                 " special tokens; got ", length);
  const int64_t num_texts = static_cast<int64_t>(corpus.train_bodies.size());
  int64_t num_tokens = 0;
  for (const auto& body : corpus.train_bodies) num_tokens += static_cast<int64_t>(body.size());
  const int64_t num_windows =
      std::clamp<int64_t>(num_tokens / (length - fixed), 1, passes * windows_per_pass);
  const int64_t of_pass = (num_windows + passes - 1) / passes;
  std::vector<at::Tensor> out;
  for (int64_t begin = 0; begin < num_windows; begin += of_pass) {
    const int64_t end = std::min(begin + of_pass, num_windows);
    std::vector<int64_t> ids;
    for (int64_t n = begin; n < end; ++n)
      append_window(corpus, corpus.train_bodies, n * num_texts / num_windows, length, ids);
    out.push_back(at::tensor(ids, at::kLong).view({end - begin, length}));
  }
  return out;
}

void append_window(const Corpus& corpus, const std::vector<std::vector<int64_t>>& bodies,
                   int64_t text, int64_t length, std::vector<int64_t>& ids, int64_t skip) {
  int64_t room = length - static_cast<int64_t>(corpus.prefix.size() + corpus.suffix.size());
  ids.insert(ids.end(), corpus.prefix.begin(), corpus.prefix.end());
  for (; room > 0; text = (text + 1) % static_cast<int64_t>(bodies.size())) {
    const auto& body = bodies[text];
    const int64_t count = std::min(room, static_cast<int64_t>(body.size()) - skip);
    ids.insert(ids.end(), body.begin() + skip, body.begin() + skip + count);
    room -= count;
    skip = 0;
  }
  ids.insert(ids.end(), corpus.suffix.begin(), corpus.suffix.end());
}

RandomWindows::RandomWindows(const Corpus& corpus) : corpus_(corpus) {
  int64_t end = 0;
  for (const auto& body : corpus.train_bodies)
    ends_.push_back(end += static_cast<int64_t>(body.size()));
}

data::Sequence RandomWindows::window(int64_t length, uint64_t key) const {
  // The bias of the modulo is below tokens / 2^64.
  const auto place = static_cast<int64_t>(mix64(key) % static_cast<uint64_t>(ends_.back()));
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), place);
  const int64_t text = end - ends_.begin();
  const int64_t begin = *end - static_cast<int64_t>(corpus_.train_bodies[text].size());
  data::Sequence sequence;
  append_window(corpus_, corpus_.train_bodies, text, length, sequence.ids, place - begin);
  return sequence;
}

}  // namespace hedgerow::convert
