#include "report/heads_rules.h"

#include <algorithm>

namespace hedgerow::report {
namespace {

// Matrices of one file have the same layers and heads.
class Shape {
 public:
  explicit Shape(const JsonRules& rules) : rules_(rules) {}

  void matrix(const Json& value, const std::string& place) {
    if (value.is_null()) return;
    const std::vector<int64_t> heads = rules_.matrix(value, place);
    rules_.require(!known_ || heads == heads_, place,
                   "must have the layers and heads of its neighbours", value);
    heads_ = heads;
    known_ = true;
  }

  // One entry for each layer.
  void layers(const Json& value, const std::string& place) const {
    rules_.require(!known_ || rules_.array(value, place).size() == heads_.size(), place,
                   concat("must have ", heads_.size(), " entries, one for each layer"), value);
  }

  bool has(int64_t layer, int64_t head) const {
    return layer >= 0 && layer < static_cast<int64_t>(heads_.size()) && head >= 0 &&
           head < heads_[static_cast<size_t>(layer)];
  }

 private:
  const JsonRules& rules_;
  std::vector<int64_t> heads_;
  bool known_ = false;
};

void check_histogram(const JsonRules& rules, const Json& histogram, const Shape& shape) {
  if (histogram.is_null()) return;
  const std::string place = "density_histogram";
  rules.object(histogram, place);
  const Json& edges = rules.array(member(histogram, "edges"), place + ".edges");
  rules.require(edges.size() >= 2, place + ".edges", "must have at least 2 numbers", edges);
  for (size_t i = 0; i < edges.size(); ++i)
    rules.require(
        edges[i].is_number() && (i == 0 || edges[i].get<double>() > edges[i - 1].get<double>()),
        concat(place, ".edges[", i, "]"), "must be a number above the one before", edges[i]);
  const Json& counts = rules.array(member(histogram, "counts"), place + ".counts");
  shape.layers(counts, place + ".counts");
  for (size_t layer = 0; layer < counts.size(); ++layer) {
    const std::string row = concat(place, ".counts[", layer, "]");
    rules.require(rules.array(counts[layer], row).size() + 1 == edges.size(), row,
                  concat("must have ", edges.size() - 1, " counts, one fewer than edges"),
                  counts[layer]);
    for (const Json& count : counts[layer])
      rules.require(count.is_number() && count.get<double>() >= 0, row,
                    "must have counts of 0 or more", count);
  }
}

void check_offsets(const JsonRules& rules, const Json& heads, Shape& shape) {
  const Json &offsets = member(heads, "offsets"), &tables = member(heads, "at_offset");
  if (offsets.is_null() && tables.is_null()) return;
  for (const Json& offset : rules.array(offsets, "offsets"))
    rules.require(offset.is_number_integer(), "offsets[]", "must be an integer", offset);
  rules.require(rules.array(tables, "at_offset").size() == offsets.size(), "at_offset",
                "must have a matrix for each offset", tables);
  for (size_t i = 0; i < tables.size(); ++i) shape.matrix(tables[i], concat("at_offset[", i, "]"));
}

void check_ranking(const JsonRules& rules, const Json& list, const std::string& place,
                   const Shape& shape) {
  if (list.is_null()) return;
  rules.array(list, place);
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string item = concat(place, "[", i, "]");
    rules.object(list[i], item);
    const Json &layer = member(list[i], "layer"), &head = member(list[i], "head"),
               &offset = member(list[i], "offset");
    rules.require(layer.is_number_integer() && head.is_number_integer() &&
                      shape.has(layer.get<int64_t>(), head.get<int64_t>()),
                  item, "must name a layer and a head of the matrices", list[i]);
    rules.require(offset.is_null() || offset.is_number_integer(), item + ".offset",
                  "must be an integer", offset);
    rules.number_or_null(member(list[i], "weight"), item + ".weight");
  }
}

void check_model(const JsonRules& rules, const Json& model) {
  rules.model(model, "model");
  const Json& mixers = member(model, "mixers");
  if (mixers.is_null()) return;
  for (const Json& mixer : rules.array(mixers, "model.mixers"))
    rules.text(member(rules.object(mixer, "model.mixers[]"), "mixer"), "model.mixers[].mixer");
}

}  // namespace

void check_heads(const JsonRules& rules, const Json& heads) {
  rules.object(heads, "heads");
  rules.require(member(heads, "format") == 1, "format", "must be 1", member(heads, "format"));
  check_model(rules, member(heads, "model"));
  const Json& data = member(heads, "data");
  rules.optional_object(heads, "data", "data");
  rules.optional_text(data, "file", "data.file");
  for (const char* key : {"texts", "tokens", "length", "subword_groups"})
    rules.optional_number(data, key, concat("data.", key));
  Shape shape(rules);
  for (const char* key : {"density", "entropy", "subword_merging"})
    shape.matrix(member(heads, key), key);
  const Json& values = member(heads, "head_values");
  if (!values.is_null())
    for (const auto& [name, table] : rules.object(values, "head_values").items())
      shape.matrix(table, concat("head_values.", name));
  const Json& diversity = member(heads, "diversity");
  if (!diversity.is_null()) {
    for (const Json& value : rules.array(diversity, "diversity"))
      rules.number_or_null(value, "diversity[]");
    shape.layers(diversity, "diversity");
  }
  check_offsets(rules, heads, shape);
  check_histogram(rules, member(heads, "density_histogram"), shape);
  check_ranking(rules, member(heads, "positional_heads"), "positional_heads", shape);
  check_ranking(rules, member(heads, "subword_merging_heads"), "subword_merging_heads", shape);
  for (const char* key : {"uniform_weight", "seconds"}) rules.optional_number(heads, key, key);
  rules.optional_object(heads, "versions", "versions");
}

}  // namespace hedgerow::report
