// hedgerow tokenize: lines of text to token ids, and back.
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "cli/command.h"
#include "formats/json.h"
#include "hedgerow/error.h"
#include "tokenizers/tokenizer.h"

namespace hedgerow::cli {
namespace {

using formats::Json;
using tokenizers::Encoding;
using tokenizers::Tokenizer;

struct TokenizeOptions {
  std::string model;
  bool jsonl = false;
  bool no_special = false;
  bool decode = false;
  bool pad = false;
  int64_t max_length = -1;
};

tokenizers::EncodeOptions encode_options(const Tokenizer& tokenizer,
                                         const TokenizeOptions& options) {
  tokenizers::EncodeOptions chosen;
  chosen.add_special_tokens = !options.no_special;
  if (options.max_length >= 0) {
    chosen.truncation = tokenizer.truncation().value_or(tokenizers::Truncation{});
    chosen.truncation->max_length = options.max_length;
  }
  if (options.pad) {
    chosen.padding = tokenizer.padding();
    if (!chosen.padding) {
      tokenizers::Padding padding;
      const auto id = tokenizer.token_to_id(padding.pad_token);
      HEDGEROW_CHECK(id, "--pad: the tokenizer must have a padding token; ", options.model,
                     " has none");
      padding.pad_id = *id;
      chosen.padding = padding;
    }
    chosen.padding->fixed_length.reset();
    if (options.max_length >= 0) chosen.padding->fixed_length = options.max_length;
  }
  return chosen;
}

Json as_json(const Encoding& encoding, bool with_mask) {
  Json offsets = Json::array();
  for (const tokenizers::Span& span : encoding.offsets) offsets.push_back({span.begin, span.end});
  Json object = Json::object();
  object["ids"] = encoding.ids;
  object["tokens"] = encoding.tokens;
  object["offsets"] = std::move(offsets);
  if (with_mask) object["attention_mask"] = encoding.attention_mask;
  return object;
}

void print_ids(const Encoding& encoding) {
  std::string line;
  for (const int32_t id : encoding.ids) line += (line.empty() ? "" : " ") + std::to_string(id);
  std::puts(line.c_str());
}

// The ids of a line: a JSON array, or numbers between spaces.
std::vector<int32_t> read_ids(const std::string& line, bool jsonl) {
  std::vector<int32_t> ids;
  const auto add = [&](int64_t id) {
    HEDGEROW_CHECK(id >= 0 && id <= INT32_MAX, "ids must be in [0, ", INT32_MAX, "]; got ", id);
    ids.push_back(static_cast<int32_t>(id));
  };
  if (jsonl) {
    const Json values = formats::parse_json(line, "ids");
    HEDGEROW_CHECK(values.is_array(), "must be a JSON array of ids; got ",
                   formats::excerpt(values));
    for (const Json& value : values) {
      HEDGEROW_CHECK(value.is_number_unsigned() && value.get<uint64_t>() <= INT32_MAX,
                     "ids must be whole numbers of 31 bits; got ", formats::excerpt(value));
      add(value.get<int64_t>());
    }
    return ids;
  }
  std::istringstream words(line);
  int64_t id = 0;
  while (words >> id) add(id);
  HEDGEROW_CHECK(words.eof(), "must be ids between spaces; got ", formats::quote(line));
  return ids;
}

std::string read_text(const std::string& line, bool jsonl) {
  if (!jsonl) return line;
  const Json value = formats::parse_json(line, "text");
  HEDGEROW_CHECK(value.is_string(), "must be a JSON string; got ", formats::excerpt(value));
  return value.get<std::string>();
}

// Calls handle(line) for every line of standard input; its errors say which line.
template <typename Handle>
void for_each_line(Handle handle) {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    check_interrupt();
    try {
      handle(line);
    } catch (const Error& error) {
      throw Error(concat("standard input, line ", number, ": ", error.what()));
    }
  }
  check_interrupt();
  if (std::cin.bad()) throw Failure("cannot read standard input");
}

int decode_lines(const Tokenizer& tokenizer, const TokenizeOptions& options, bool json) {
  Json texts = Json::array();
  for_each_line([&](const std::string& line) {
    std::string text = tokenizer.decode(read_ids(line, options.jsonl), options.no_special);
    if (json) {
      texts.push_back(std::move(text));
    } else {
      std::puts(options.jsonl ? formats::dump_json(text).c_str() : text.c_str());
    }
  });
  if (json) std::puts(formats::dump_json(texts).c_str());
  return 0;
}

int run(const CommonOptions& common, const TokenizeOptions& options) {
  HEDGEROW_CHECK(options.max_length >= -1, "--max-length: must be at least 0; got ",
                 options.max_length);
  const auto tokenizer = tokenizers::load_tokenizer(options.model);
  if (options.decode) return decode_lines(*tokenizer, options, common.json);

  tokenizers::EncodeOptions encode = encode_options(*tokenizer, options);
  const auto print = [&](const Encoding& encoding) {
    if (options.jsonl) {
      std::puts(formats::dump_json(as_json(encoding, options.pad)).c_str());
    } else {
      print_ids(encoding);
    }
  };
  // Padding to the longest line and a single document need all lines first; otherwise each line is
  // answered at once.
  const bool collect = common.json || (options.pad && options.max_length < 0);
  const auto padding = encode.padding;
  if (collect) encode.padding.reset();
  std::vector<Encoding> all;
  for_each_line([&](const std::string& line) {
    Encoding encoding = tokenizer->encode(read_text(line, options.jsonl), encode);
    if (collect) {
      all.push_back(std::move(encoding));
    } else {
      print(encoding);
    }
  });
  if (!collect) return 0;
  if (padding) tokenizers::pad_batch(all, *padding);
  Json document = Json::array();
  for (const Encoding& encoding : all) {
    if (common.json) {
      document.push_back(as_json(encoding, options.pad));
    } else {
      print(encoding);
    }
  }
  if (common.json) std::puts(formats::dump_json(document).c_str());
  return 0;
}

}  // namespace

RunCommand add_tokenize(CLI::App& command) {
  auto options = std::make_shared<TokenizeOptions>();
  command.add_option("model", options->model, "model folder, or a tokenizer.json")
      ->required()
      ->type_name("MODEL");
  command.add_flag(
      "--jsonl", options->jsonl,
      "JSON strings, one a line, in; {\"ids\", \"tokens\", \"offsets\"}, one a line, out (without: "
      "lines of text in, lines of ids out)");
  command.add_flag("--no-special", options->no_special,
                   "add no special tokens; with --decode: leave them out");
  command
      .add_option("--max-length", options->max_length,
                  "cut to this many tokens (default: no limit)")
      ->type_name("N");
  command.add_flag("--pad", options->pad, "fill to --max-length, or to the longest line");
  command.add_flag("--decode", options->decode, "the other way: lines of ids in, text out");
  return [options](const CommonOptions& common) { return run(common, *options); };
}

}  // namespace hedgerow::cli
