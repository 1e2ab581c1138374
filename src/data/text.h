// Text data: files of one text a line, TSV columns, JSON lines; and which of it is held out.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace hedgerow::data {

struct ReadOptions {
  enum class Format { lines, tsv, jsonl };
  Format format = Format::lines;
  int64_t column = 1;          // tsv: which column, counted from 1
  std::string field = "text";  // jsonl: the member that holds the text where a line is an object
  bool skip_blank = true;      // texts of nothing but white space; false keeps one entry per line
};

// The options that command lines share: `column` 0 means not given. A name ending in .tsv needs a
// column and one ending in .jsonl is read as JSON lines; `jsonl` says so for any name.
ReadOptions read_options(const std::string& path, int64_t column, bool jsonl = false);

// Texts of a UTF-8 file, in order. Line ends are LF or CRLF, a byte order mark at the start is
// dropped, the last line may lack its end, lines have any length.
// Throws Error, naming the file, the line and the byte where it applies: no such file; no text in
// it; a byte sequence that is not UTF-8; fewer columns than asked for; a line that is not a JSON
// string or an object with the field.
std::vector<std::string> read_texts(const std::string& path, const ReadOptions& options = {});

// The same from a stream (standard input); `name` stands for the file in messages.
std::vector<std::string> read_texts(std::istream& in, const std::string& name,
                                    const ReadOptions& options = {});

// Byte offset of the first byte that cannot begin or continue a UTF-8 character (overlong forms,
// surrogates and values above U+10FFFF are none), or -1 when all of `bytes` is UTF-8.
int64_t find_invalid_utf8(std::string_view bytes);

// Training texts and the texts kept from training.
struct Split {
  std::vector<std::string> train;
  std::vector<std::string> heldout;
  int64_t num_copies = 0;  // held-out texts taken out because training has the same text
};

// Reads `data_path` and, where `heldout_path` is not empty, that file as the held-out texts (same
// options). Without it a text is held out when its MD5 modulo 10 is 0. In both cases exact copies
// of training texts leave the held-out set. Throws Error when either side ends up empty.
Split read_split(const std::string& data_path, const std::string& heldout_path,
                 const ReadOptions& options = {});

}  // namespace hedgerow::data
