#include "report/run_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <numeric>

#include "base/atomic_file.h"
#include "report/heads_rules.h"
#include "report/json_rules.h"
#include "report/log_rules.h"
#include "report/quality_rules.h"
#include "report/spectra_rules.h"

namespace hedgerow::report {
namespace {

// Files that few runs have.
constexpr std::array<std::string_view, 4> kExtras = {"head_values", "heads", "spectra", "quality"};

void check_summary(const JsonRules& rules, const Json& summary) {
  rules.object(summary, "summary");
  rules.require(member(summary, "format") == 1, "format", "must be 1", member(summary, "format"));
  for (const char* key : {"kind", "map"}) rules.optional_text(summary, key, key);
  rules.model(member(summary, "model"), "model");
  for (const char* stage : {"before", "after_distil", "after"}) {
    const Json& measures = member(summary, stage);
    if (measures.is_null()) continue;
    for (const auto& [name, value] : rules.object(measures, stage).items()) {
      const std::string place = concat(stage, ".", name);
      if (!value.is_object()) {
        rules.number_or_null(value, place);
        continue;
      }
      for (const auto& [length, number] : value.items())
        rules.number_or_null(number, concat(place, ".", length));
    }
  }
  const Json& seconds = member(summary, "seconds");
  if (seconds.is_object()) {
    for (const auto& [stage, value] : seconds.items())
      rules.number_or_null(value, concat("seconds.", stage));
  } else {
    rules.number_or_null(seconds, "seconds");
  }
  rules.optional_object(summary, "versions", "versions");
}

void check_same_shape_matrices(const JsonRules& rules, const Json& group,
                               const std::string& place) {
  std::vector<int64_t> shape;
  bool first = true;
  for (const auto& [name, value] : rules.object(group, place).items()) {
    if (!value.is_array()) {
      rules.number_or_null(value, concat(place, ".", name));
      continue;
    }
    const std::vector<int64_t> heads = rules.matrix(value, concat(place, ".", name));
    rules.require(first || heads == shape, concat(place, ".", name),
                  "must have the layers and heads of its neighbours", value);
    shape = heads;
    first = false;
  }
}

// {"any name": [[[..out] ..in] or null ..layers]}, and of the same names {figure: [..layers]}.
void check_head_matrices(const JsonRules& rules, const Json& matrices, const Json& mixing) {
  for (const auto& [name, layers] : rules.object(matrices, "head_matrices").items()) {
    const std::string place = concat("head_matrices.", name);
    rules.array(layers, place);
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      if (layers[layer].is_null()) continue;
      const std::string matrix = concat(place, "[", layer, "]");
      const std::vector<int64_t> widths = rules.matrix(layers[layer], matrix);
      rules.require(!widths.empty() && widths.front() > 0 &&
                        std::adjacent_find(widths.begin(), widths.end(), std::not_equal_to<>()) ==
                            widths.end(),
                    matrix, "must have rows of one length", layers[layer]);
    }
  }
  if (mixing.is_null()) return;
  for (const auto& [name, figures] : rules.object(mixing, "head_mixing").items()) {
    const std::string place = concat("head_mixing.", name);
    const Json& layers = member(matrices, name);
    for (const auto& [figure, values] : rules.object(figures, place).items()) {
      const std::string list = concat(place, ".", figure);
      rules.require(rules.array(values, list).size() == layers.size(), list,
                    concat("must have ", layers.size(), " entries, one for each layer"), values);
      for (const Json& value : values) rules.number_or_null(value, list + "[]");
    }
  }
}

void check_histogram(const JsonRules& rules, const Json& histogram) {
  const std::string place = "embedding.cosine_histogram";
  const Json& edges =
      rules.array(member(rules.object(histogram, place), "edges"), place + ".edges");
  rules.require(edges.size() >= 2, place + ".edges", "must have at least 2 numbers", edges);
  for (size_t i = 0; i < edges.size(); ++i) {
    const std::string edge = concat(place, ".edges[", i, "]");
    rules.require(edges[i].is_number(), edge, "must be a number", edges[i]);
    rules.require(i == 0 || edges[i].get<double>() > edges[i - 1].get<double>(), edge,
                  "must be larger than the edge before", edges[i]);
  }
  for (const auto& [name, counts] : histogram.items()) {
    if (name == "edges" || counts.is_null()) continue;
    const std::string series = concat(place, ".", name);
    rules.require(rules.array(counts, series).size() + 1 == edges.size(), series,
                  concat("must have ", edges.size() - 1, " counts, one fewer than edges"), counts);
    for (const Json& count : counts)
      rules.require(count.is_number() && count.get<double>() >= 0, series,
                    "must have counts of 0 or more", count);
  }
}

void check_examples(const JsonRules& rules, const Json& examples) {
  const std::string place = "embedding.neighbour_examples";
  rules.array(examples, place);
  for (size_t i = 0; i < examples.size(); ++i) {
    const std::string example = concat(place, "[", i, "]");
    rules.text(member(rules.object(examples[i], example), "query"), example + ".query");
    for (const char* side : {"teacher", "model"}) {
      const std::string list = concat(example, ".", side);
      for (const Json& text : rules.array(member(examples[i], side), list))
        rules.text(text, list + "[]");
    }
  }
}

void check_analysis(const JsonRules& rules, const Json& analysis) {
  rules.object(analysis, "analysis");
  for (const char* group : {"kl", "entropy"}) {
    const Json& value = member(analysis, group);
    if (!value.is_null()) check_same_shape_matrices(rules, value, group);
  }
  const Json& matrices = member(analysis, "head_matrices");
  if (!matrices.is_null()) check_head_matrices(rules, matrices, member(analysis, "head_mixing"));
  const Json& embedding = member(analysis, "embedding");
  if (embedding.is_null()) return;
  rules.object(embedding, "embedding");
  const Json& histogram = member(embedding, "cosine_histogram");
  if (!histogram.is_null()) check_histogram(rules, histogram);
  const Json& examples = member(embedding, "neighbour_examples");
  if (!examples.is_null()) check_examples(rules, examples);
}

void check_bench(const JsonRules& rules, const Json& bench) {
  const Json& rows = rules.array(member(rules.object(bench, "bench"), "rows"), "rows");
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string place = concat("rows[", i, "]");
    rules.text(member(rules.object(rows[i], place), "method"), place + ".method");
    rules.positive_integer(member(rows[i], "T"), place + ".T");
    for (const char* key : {"mask", "step"})
      rules.optional_text(rows[i], key, concat(place, ".", key));
    for (const char* key : {"ms", "ratio", "peak_bytes"})
      rules.optional_number(rows[i], key, concat(place, ".", key));
  }
  rules.optional_object(bench, "machine", "machine");
}

// The heads of each layer: from the file, else from summary.json.
std::vector<int64_t> map_heads(const JsonRules& rules, const Json& maps, const Json& summary) {
  const Json& model = member(summary, "model");
  const Json& own_heads = member(maps, "heads");
  const Json& heads = own_heads.is_null() ? member(model, "heads") : own_heads;
  if (heads.is_array()) {
    std::vector<int64_t> out;
    for (const Json& count : heads) out.push_back(rules.positive_integer(count, "heads[]"));
    rules.require(!out.empty(), "heads", "must name at least one layer", heads);
    return out;
  }
  const Json& own_layers = member(maps, "layers");
  const Json& layers = own_layers.is_null() ? member(model, "layers") : own_layers;
  const int64_t num_layers = rules.positive_integer(layers, "layers");
  rules.require(num_layers <= 100000, "layers", "must be at most 100000", layers);
  return std::vector<int64_t>(static_cast<size_t>(num_layers),
                              rules.positive_integer(heads, "heads"));
}

// Takes the base64 text out of the sentence after checking its alphabet and length.
std::string take_weights(const JsonRules& rules, Json& sentence, const char* key, int64_t num_bytes,
                         const std::string& place) {
  const std::string weights_place = concat(place, ".", key);
  rules.text(member(sentence, key), weights_place);
  std::string text = std::move(sentence[key].get_ref<std::string&>());
  sentence.erase(key);
  const size_t padding = (3 - num_bytes % 3) % 3;
  const size_t expected = (static_cast<size_t>(num_bytes) + 2) / 3 * 4;
  HEDGEROW_CHECK(text.size() == expected, "report: ", rules.path(), ": `", weights_place,
                 "` must be ", num_bytes, " bytes (heads of all layers x size x size) in ",
                 expected, " characters of base64; got ", text.size(), " characters");
  const size_t body = expected - padding;
  const auto in_alphabet = [](unsigned char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/';
  };
  const auto bad =
      std::find_if_not(text.begin(), text.begin() + static_cast<int64_t>(body), in_alphabet);
  HEDGEROW_CHECK(bad == text.begin() + static_cast<int64_t>(body) &&
                     text.find_first_not_of('=', body) == std::string::npos,
                 "report: ", rules.path(), ": `", weights_place,
                 "` must be standard base64 with padding; got another character at ",
                 bad - text.begin());
  return text;
}

std::vector<SentenceMaps> check_maps(const JsonRules& rules, Json& maps, const Json& summary) {
  rules.object(maps, "maps");
  const Json& scale = member(maps, "scale");
  if (scale.is_null()) maps["scale"] = "sqrt";
  rules.require(maps["scale"] == "sqrt" || maps["scale"] == "linear", "scale",
                "must be \"sqrt\" or \"linear\"", maps["scale"]);
  if (member(maps, "sides").is_null()) maps["sides"] = Json::array({"teacher", "model"});
  rules.require(
      maps["sides"] == Json::array({"teacher", "model"}) || maps["sides"] == Json::array({"model"}),
      "sides", "must be [\"teacher\", \"model\"] or [\"model\"]", maps["sides"]);
  const Json& zeros = member(maps, "zeros");
  rules.require(zeros.is_null() || zeros == "exact", "zeros", "must be \"exact\" or left out",
                zeros);
  const std::vector<int64_t> heads = map_heads(rules, maps, summary);
  const int64_t total = std::accumulate(heads.begin(), heads.end(), int64_t{0});
  maps["heads"] = heads;
  maps["layers"] = heads.size();
  rules.array(member(maps, "sentences"), "sentences");
  std::vector<SentenceMaps> out;
  for (Json& sentence : maps["sentences"]) {
    const std::string place = concat("sentences[", out.size(), "]");
    rules.text(member(rules.object(sentence, place), "text"), place + ".text");
    const Json& tokens = rules.array(member(sentence, "tokens"), place + ".tokens");
    for (const Json& token : tokens) rules.text(token, place + ".tokens[]");
    const int64_t num_tokens = static_cast<int64_t>(tokens.size());
    const int64_t size = rules.positive_integer(member(sentence, "size"), place + ".size");
    rules.require(size <= kMaxMapSize, place + ".size",
                  concat("must be at most ", kMaxMapSize, " (bin longer texts)"), sentence["size"]);
    if (member(sentence, "bin").is_null()) sentence["bin"] = 1;
    const int64_t bin = rules.positive_integer(sentence["bin"], place + ".bin");
    HEDGEROW_CHECK((num_tokens + bin - 1) / bin == size, "report: ", rules.path(), ": `", place,
                   ".size` must be the tokens divided by bin, rounded up; got ", size, " for ",
                   num_tokens, " tokens in bins of ", bin);
    SentenceMaps weights;
    if (maps["sides"].size() == 2)
      weights.teacher = take_weights(rules, sentence, "teacher", total * size * size, place);
    weights.model = take_weights(rules, sentence, "model", total * size * size, place);
    out.push_back(std::move(weights));
  }
  return out;
}

std::string display_name(const std::string& path) {
  std::filesystem::path folder = std::filesystem::absolute(path).lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();
  std::string name = folder.filename().string();
  const std::string partial = ".partial";
  if (name.size() > partial.size() && name.ends_with(partial))
    name.resize(name.size() - partial.size());
  return name;
}

}  // namespace

RunFolder read_run_folder(const std::string& path) {
  std::error_code ignored;
  HEDGEROW_CHECK(std::filesystem::is_directory(path, ignored),
                 "report: RUN must be a folder that exists; got ", path);
  RunFolder run;
  run.name = display_name(path);
  run.data = Json::object();
  const auto read = [&](const char* key, const char* file_name,
                        const std::function<Json(const std::string&, std::string_view)>& parse) {
    const std::string file = (std::filesystem::path(path) / file_name).string();
    if (!std::filesystem::exists(file, ignored)) {
      // What a conversion need not have is not missed.
      const bool expected = std::find(kExtras.begin(), kExtras.end(), key) == kExtras.end();
      if (expected) run.missing.push_back(file_name);
      run.data[key] = nullptr;
      return;
    }
    run.data[key] = parse(file, read_file(file));
  };
  const auto checked = [](void (*check)(const JsonRules&, const Json&)) {
    return [check](const std::string& file, std::string_view text) {
      Json value = formats::parse_json(text, concat("report: ", file));
      check(JsonRules(file), value);
      return value;
    };
  };
  read("summary", "summary.json", checked(check_summary));
  read("metrics", "metrics.jsonl", read_metrics);
  read("head_values", "head_values.jsonl", read_head_values);
  read("analysis", "analysis.json", checked(check_analysis));
  read("maps", "maps.json", [&](const std::string& file, std::string_view text) {
    Json maps = formats::parse_json(text, concat("report: ", file));
    run.maps = check_maps(JsonRules(file), maps, run.data["summary"]);
    return maps;
  });
  read("bench", "bench.json", checked(check_bench));
  read("heads", "heads.json", checked(check_heads));
  read("spectra", "spectra.json", checked(check_spectra));
  read("quality", "quality.json", checked(check_quality));
  const bool some = std::any_of(run.data.begin(), run.data.end(),
                                [](const Json& value) { return !value.is_null(); });
  HEDGEROW_CHECK(some,
                 "report: RUN must hold summary.json, metrics.jsonl, head_values.jsonl, "
                 "analysis.json, maps.json, bench.json, heads.json, spectra.json or quality.json; "
                 "got ",
                 path, " with none of them");
  if (run.is_analysis())
    std::erase_if(run.missing,
                  [&](const std::string& f) { return !run.has("heads") || f != "maps.json"; });
  return run;
}

bool RunFolder::has(std::string_view key) const { return !member(data, key).is_null(); }

bool RunFolder::is_conversion() const {
  if (has("summary") || has("metrics") || has("analysis") || has("bench")) return true;
  if (has("heads")) return false;
  return has("maps") || !(has("spectra") || has("quality"));
}

bool RunFolder::is_analysis() const { return !is_conversion() && (has("heads") || has("spectra")); }

}  // namespace hedgerow::report
