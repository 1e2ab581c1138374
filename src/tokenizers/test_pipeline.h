// For tests of this folder: a small tokenizer.json and its parts by hand.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "formats/json.h"
#include "hedgerow/error.h"
#include "tokenizers/tokenizer.h"

namespace hedgerow::tokenizers {

// A BERT pipeline over a few words. Tests replace members before they build it.
inline formats::Json small_pipeline() {
  return formats::parse_json(R"({
    "added_tokens": [
      {"id": 0, "content": "[PAD]", "special": true, "normalized": false},
      {"id": 1, "content": "[UNK]", "special": true, "normalized": false},
      {"id": 2, "content": "[CLS]", "special": true, "normalized": false},
      {"id": 3, "content": "[SEP]", "special": true, "normalized": false}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                   "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
      "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
               {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
      "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                         "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 10,
              "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "un": 4, "##aff": 5, "##able": 6, "cafe": 7,
                        "a": 8, "b": 9, "c": 10, ".": 11, "ab": 12, "##b": 13, "\u4e2d": 14, "x": 15, "do": 16,
                        "not": 17}}})",
                             "small");
}

inline std::unique_ptr<Tokenizer> build(const formats::Json& pipeline) {
  return parse_tokenizer(formats::dump_json(pipeline), "tokenizer.json");
}

inline std::vector<std::pair<uint32_t, uint32_t>> pairs(const std::vector<Span>& spans) {
  std::vector<std::pair<uint32_t, uint32_t>> out;
  for (const Span& span : spans) out.emplace_back(span.begin, span.end);
  return out;
}

// The message of the Error that building throws; fails the test when it throws none.
inline std::string build_fault(const formats::Json& pipeline) {
  try {
    build(pipeline);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "an Error was expected";
  return "";
}

using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string>;
using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;

}  // namespace hedgerow::tokenizers
