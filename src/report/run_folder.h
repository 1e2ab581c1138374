// The files of a run folder that a report shows (docs/RUN_FOLDER.md), read and checked. Torch-free.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"

namespace hedgerow::report {

using formats::Json;  // keeps the order in which the run wrote its keys

// Quantised attention weights of one sentence, still in base64, apart from the other data because
// they are large.
struct SentenceMaps {
  std::string teacher;  // empty where the maps have no such side
  std::string model;
};

struct RunFolder {
  std::string name;  // last part of the path, without ".partial"
  // summary, metrics, head_values, analysis, bench, maps, heads, spectra, quality; null = none
  Json data;
  std::vector<SentenceMaps> maps;    // one per data["maps"]["sentences"]
  std::vector<std::string> missing;  // files that are not there

  bool has(std::string_view key) const;
  // What `hedgerow convert` or `train` wrote, whatever lies beside it.
  bool is_conversion() const;
  // What `hedgerow analyze` wrote alone: heads.json, with maps.json and head_values.jsonl or
  // without, or spectra.json.
  bool is_analysis() const;
};

// Every file is optional, one of them must exist. A file that exists must be right: throws Error
// "report: PATH: rule; got value". The last line of metrics.jsonl may be cut off, as it is in a run
// that still writes.
RunFolder read_run_folder(const std::string& path);

// Curves longer than this are thinned to every k-th step, keeping the first and the last.
inline constexpr int64_t kMaxCurvePoints = 4000;
// The same for the values of heads, of which there is a curve for every head.
inline constexpr int64_t kMaxHeadValuePoints = 400;

// A map has at most this many rows: longer texts are binned by whoever writes maps.json.
inline constexpr int64_t kMaxMapSize = 512;

}  // namespace hedgerow::report
