// Training and held-out texts as tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convert/config.h"
#include "data/batches.h"

namespace hedgerow::convert {

struct Corpus {
  // Texts, or windows of running text where the conversion joins them.
  std::vector<data::Sequence> train;                 // with special tokens, cut to the length
  std::vector<std::vector<int64_t>> train_bodies;    // without special tokens, whole
  std::vector<std::string> heldout_texts;            // at most VerifyConfig::texts
  std::vector<data::Sequence> heldout;               // of these, cut to the folder's length
  std::vector<std::vector<int64_t>> heldout_bodies;  // of all held-out texts
  // Held-out texts that verification leaves over, to watch training with; few or none where the
  // file has few.
  std::vector<data::Sequence> watched;  // cut as training texts are
  std::vector<std::vector<int64_t>> watched_bodies;
  std::vector<int64_t> prefix, suffix;  // special tokens around one text
  int64_t num_heldout = 0, num_copies = 0;
};

// Reads and tokenises the data of a conversion. `max_length` is what the model embeds at most.
// Throws Error on bad data files, when no text has a token, and when texts to be joined do not fill
// a window.
Corpus load_corpus(const ConvertConfig& config, int64_t max_length);

// Appends to ids a window of `length` tokens, the special ones included, of running text from the
// given text of `bodies` on, without its first `skip` tokens, around their end if need be.
void append_window(const Corpus& corpus, const std::vector<std::vector<int64_t>>& bodies,
                   int64_t text, int64_t length, std::vector<int64_t>& ids, int64_t skip = 0);

// Running training text from random places; the corpus must outlive it.
class RandomWindows {
 public:
  explicit RandomWindows(const Corpus& corpus);
  // `length` tokens, the special ones included. Where they begin depends on `key` alone, and all
  // tokens of the texts are as likely to be the first.
  data::Sequence window(int64_t length, uint64_t key) const;

 private:
  const Corpus& corpus_;
  std::vector<int64_t> ends_;  // tokens up to and with each text
};

// [B,length] windows of running text from places spread over the training texts: `passes` of
// `windows_per_pass`, or as many as the texts fill (at least 1), in at most as many passes.
std::vector<at::Tensor> spread_windows(const Corpus& corpus, int64_t length, int64_t passes,
                                       int64_t windows_per_pass);

// Without the corpus' special tokens.
std::vector<int64_t> body_of(const Corpus& corpus, const data::Sequence& sequence);

// The special tokens that the folder's tokenizer puts around one text.
struct SpecialTokens {
  std::vector<int64_t> prefix, suffix;
};

// Tokenises texts with the tokenizer of a model folder.
class TextEncoder {
 public:
  explicit TextEncoder(const std::string& folder);
  ~TextEncoder();
  const SpecialTokens& special() const { return special_; }
  // Without special tokens; any length.
  std::vector<int64_t> body(const std::string& text) const;
  // prefix + body + suffix, the body cut so that all have at most `max_length` tokens.
  data::Sequence wrap(const std::vector<int64_t>& body, int64_t max_length) const;
  // What each id is called.
  std::string token(int64_t id) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  SpecialTokens special_;
};

}  // namespace hedgerow::convert
