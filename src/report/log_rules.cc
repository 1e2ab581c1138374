#include "report/log_rules.h"

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "report/json_rules.h"

namespace hedgerow::report {
namespace {

// The lines, with "train" for what `named` lists and a line leaves out.
std::vector<Json> read_lines(const std::string& path, std::string_view text,
                             const std::vector<const char*>& named,
                             const std::function<void(const JsonRules&, const Json&)>& check) {
  std::vector<Json> lines;
  int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const bool last = end == std::string_view::npos;
    text = last ? std::string_view() : text.substr(end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (last && !Json::accept(line.begin(), line.end())) break;
    Json parsed = formats::parse_json(line, concat("report: ", path, " line ", number));
    const JsonRules rules(concat(path, " line ", number));
    rules.object(parsed, "the line");
    const Json& step = member(parsed, "step");
    rules.require(step.is_number(), "step", "must be a number", step);
    for (const char* key : named) {
      rules.optional_text(parsed, key, key);
      if (member(parsed, key).is_null()) parsed[key] = "train";
    }
    check(rules, parsed);
    lines.push_back(std::move(parsed));
  }
  return lines;
}

// Keeps every k-th line of each curve and its last, so that none has more than `most` points.
Json thinned(const std::vector<Json>& lines, int64_t most,
             const std::function<std::string(const Json&)>& curve) {
  std::map<std::string, int64_t> totals, seen;
  for (const Json& line : lines) ++totals[curve(line)];
  Json out = Json::array();
  for (const Json& line : lines) {
    const std::string key = curve(line);
    const int64_t total = totals[key], i = seen[key]++;
    const int64_t stride = (total + most - 1) / most;
    if (i % stride == 0 || i == total - 1) out.push_back(line);
  }
  return out;
}

std::string stage_of(const Json& line) { return line.at("stage").get<std::string>(); }

}  // namespace

Json read_metrics(const std::string& path, std::string_view text) {
  const auto check = [](const JsonRules& rules, const Json& line) {
    for (const char* key : {"loss", "lr", "grad_norm", "tokens_per_s", "peak_bytes", "time_s"})
      rules.optional_number(line, key, key);
  };
  return thinned(
      read_lines(path, text, {"stage", "split"}, check), kMaxCurvePoints,
      [](const Json& line) { return stage_of(line) + '\n' + line.at("split").get<std::string>(); });
}

Json read_head_values(const std::string& path, std::string_view text) {
  std::optional<std::vector<int64_t>> heads;
  const auto check = [&](const JsonRules& rules, const Json& line) {
    const Json& values = rules.object(member(line, "head_values"), "head_values");
    for (const auto& [name, table] : values.items()) {
      const std::string place = concat("head_values.", name);
      const std::vector<int64_t> shape = rules.matrix(table, place);
      rules.require(!heads || shape == *heads, place,
                    "must have the layers and heads of the others", table);
      heads = shape;
    }
  };
  std::vector<Json> lines = read_lines(path, text, {"stage"}, check);
  Json known = Json::object();
  for (Json& line : lines) {
    known.update(line["head_values"]);
    line["head_values"] = known;
  }
  return thinned(lines, kMaxHeadValuePoints, stage_of);
}

}  // namespace hedgerow::report
