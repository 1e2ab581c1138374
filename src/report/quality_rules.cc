#include "report/quality_rules.h"

namespace hedgerow::report {
namespace {

void check_row(const JsonRules& rules, const Json& row, const std::string& place) {
  rules.object(row, place);
  rules.text(member(row, "kind"), place + ".kind");
  rules.positive_integer(member(row, "positions"), place + ".positions");
  for (const char* key : {"sharing", "r", "trained"})
    rules.optional_text(row, key, concat(place, ".", key));
  for (const char* key : {"embedding_cosine", "nn_agreement", "top10_overlap"})
    rules.optional_number(row, key, concat(place, ".", key));
  for (const char* group : {"retrieval", "cost", "seconds"}) {
    const std::string at = concat(place, ".", group);
    rules.optional_object(row, group, at);
    const Json& figures = member(row, group);
    if (figures.is_null()) continue;
    for (const auto& [name, value] : figures.items())
      rules.number_or_null(value, concat(at, ".", name));
  }
}

}  // namespace

void check_quality(const JsonRules& rules, const Json& quality) {
  rules.object(quality, "quality");
  rules.require(member(quality, "format") == 1, "format", "must be 1", member(quality, "format"));
  const Json& n = member(quality, "n");
  if (!n.is_null()) rules.positive_integer(n, "n");
  rules.optional_text(quality, "teacher", "teacher");
  const Json& rows = rules.array(member(quality, "rows"), "rows");
  for (size_t i = 0; i < rows.size(); ++i) check_row(rules, rows[i], concat("rows[", i, "]"));
  rules.command(member(quality, "command"), "command");
  rules.optional_object(quality, "versions", "versions");
}

}  // namespace hedgerow::report
