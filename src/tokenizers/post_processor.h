// Post-processors: put sequences together and add the special tokens around them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "formats/json.h"
#include "tokenizers/encoding.h"

namespace hedgerow::tokenizers {

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;

  // How many tokens it adds to one sequence or to a pair.
  virtual int64_t num_added(bool pair) const = 0;

  // `second` may be nullptr. Type ids come in as 0 for the first and 1 for the second sequence.
  virtual Encoding process(Encoding first, Encoding* second, bool add_special_tokens) const = 0;
};

// The sequences one after the other, nothing added.
Encoding join_sequences(Encoding first, Encoding* second);

// From the "post_processor" value of a tokenizer.json; null gives nullptr. Throws Error that names
// an unknown kind and lists the known ones.
std::unique_ptr<PostProcessor> make_post_processor(const formats::Json& part,
                                                   const std::string& where);

}  // namespace hedgerow::tokenizers
