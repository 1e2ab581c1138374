#include "data/text.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <unordered_set>

#include "base/atomic_file.h"
#include "data/md5.h"
#include "hedgerow/error.h"
#include "nlohmann/json.hpp"

namespace hedgerow::data {
namespace {

// Length of the character that starts at bytes[at], 0 when none does (Unicode 15, table 3-7).
int64_t utf8_length(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : uint8_t{0};
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;
  if (first < 0xe0) return continues(1) ? 2 : 0;
  if (first < 0xf0) {
    if (!continues(1) || !continues(2)) return 0;
    if (first == 0xe0 && byte(1) < 0xa0) return 0;   // overlong
    if (first == 0xed && byte(1) >= 0xa0) return 0;  // surrogate
    return 3;
  }
  if (first > 0xf4 || !continues(1) || !continues(2) || !continues(3)) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) >= 0x90) return 0;
  return 4;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

std::string tsv_column(std::string_view line, int64_t column, const std::string& where) {
  size_t begin = 0;
  for (int64_t i = 1; i < column; ++i) {
    const size_t tab = line.find('\t', begin);
    HEDGEROW_CHECK(tab != std::string_view::npos, where, ": column ", column,
                   " asked for; got a line of ", i, i == 1 ? " column" : " columns");
    begin = tab + 1;
  }
  return std::string(line.substr(begin, line.find('\t', begin) - begin));
}

std::string json_text(std::string_view line, const std::string& field, const std::string& where) {
  const nlohmann::json value = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  HEDGEROW_CHECK(!value.is_discarded(), where, ": a line must be JSON; got ", line.size(),
                 " bytes that do not parse");
  if (value.is_string()) return value.get<std::string>();
  HEDGEROW_CHECK(value.is_object() && value.contains(field) && value[field].is_string(), where,
                 ": a line must be a JSON string or an object with the string \"", field,
                 "\"; got ", value.type_name());
  return value[field].get<std::string>();
}

// `line` is one line without its end, `where` names it.
std::string text_of_line(std::string_view line, const ReadOptions& options,
                         const std::string& where) {
  switch (options.format) {
    case ReadOptions::Format::tsv:
      return tsv_column(line, options.column, where);
    case ReadOptions::Format::jsonl:
      return json_text(line, options.field, where);
    case ReadOptions::Format::lines:
      break;
  }
  return std::string(line);
}

std::vector<std::string> texts_of(std::string_view bytes, const std::string& name,
                                  const ReadOptions& options) {
  HEDGEROW_CHECK(options.column >= 1, name, ": columns are counted from 1; got ", options.column);
  HEDGEROW_CHECK(!bytes.empty(), name,
                 ": must contain at least one line of text; got an empty file");
  const size_t bom = bytes.starts_with("\xef\xbb\xbf") ? 3 : 0;

  std::vector<std::string> texts;
  int64_t number = 0;
  for (size_t begin = bom; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    std::string_view line = bytes.substr(begin, end - begin);
    ++number;
    if (const int64_t bad = find_invalid_utf8(line); bad >= 0) {
      char hex[8];
      std::snprintf(hex, sizeof(hex), "0x%02x", static_cast<uint8_t>(line[bad]));
      throw Error(concat(name, ": text must be UTF-8; got byte ", hex, " in line ", number,
                         " at byte ", bad + 1, " of the line (byte ",
                         static_cast<int64_t>(begin) + bad + 1, " of the file)"));
    }
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = end + 1;
    if (is_blank(line)) {
      if (!options.skip_blank) texts.emplace_back(line);
      continue;
    }
    std::string text = text_of_line(line, options, concat(name, ", line ", number));
    if (!options.skip_blank || !is_blank(text)) texts.push_back(std::move(text));
  }
  HEDGEROW_CHECK(!texts.empty(), name, ": must contain at least one line of text; got ", number,
                 " blank lines");
  return texts;
}

int64_t drop_copies(const std::vector<std::string>& train, std::vector<std::string>& heldout) {
  const std::unordered_set<std::string_view> seen(train.begin(), train.end());
  return static_cast<int64_t>(
      std::erase_if(heldout, [&](const std::string& text) { return seen.contains(text); }));
}

}  // namespace

int64_t find_invalid_utf8(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const int64_t length = utf8_length(bytes, at);
    if (length == 0) return static_cast<int64_t>(at);
    at += static_cast<size_t>(length);
  }
  return -1;
}

ReadOptions read_options(const std::string& path, int64_t column, bool jsonl) {
  ReadOptions options;
  HEDGEROW_CHECK(column >= 0, "--column: columns are counted from 1; got ", column);
  HEDGEROW_CHECK(column == 0 || !jsonl, "--column: for tab-separated text; got it with JSON lines");
  if (column > 0) {
    options.format = ReadOptions::Format::tsv;
    options.column = column;
  } else if (jsonl || path.ends_with(".jsonl")) {
    options.format = ReadOptions::Format::jsonl;
  } else {
    HEDGEROW_CHECK(!path.ends_with(".tsv"), path,
                   ": tab-separated text needs --column N; got none");
  }
  return options;
}

std::vector<std::string> read_texts(const std::string& path, const ReadOptions& options) {
  return texts_of(read_file(path), path, options);
}

std::vector<std::string> read_texts(std::istream& in, const std::string& name,
                                    const ReadOptions& options) {
  const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  return texts_of(bytes, name, options);
}

Split read_split(const std::string& data_path, const std::string& heldout_path,
                 const ReadOptions& options) {
  Split split;
  if (!heldout_path.empty()) {
    split.train = read_texts(data_path, options);
    split.heldout = read_texts(heldout_path, options);
  } else {
    for (std::string& text : read_texts(data_path, options)) {
      (md5_modulo(text, 10) == 0 ? split.heldout : split.train).push_back(std::move(text));
    }
  }
  split.num_copies = drop_copies(split.train, split.heldout);
  HEDGEROW_CHECK(!split.train.empty(), data_path, ": must leave texts to train on; got ",
                 split.heldout.size(), " texts, all held out");
  HEDGEROW_CHECK(!split.heldout.empty(), heldout_path.empty() ? data_path : heldout_path,
                 ": must leave texts to verify on; got none that training does not have, of ",
                 split.train.size() + static_cast<size_t>(split.num_copies),
                 " (give --heldout FILE)");
  return split;
}

}  // namespace hedgerow::data
