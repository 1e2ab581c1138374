#include "report/spectra_rules.h"

#include <cstdlib>
#include <functional>
#include <set>

namespace hedgerow::report {
namespace {

using Check = std::function<void(const Json&, const std::string&)>;

// The rules of a file whose lists have an entry for each layer and for each of n keys.
class Spectra {
 public:
  Spectra(const JsonRules& rules, int64_t layers, int64_t n)
      : rules_(rules), layers_(static_cast<size_t>(layers)), n_(n) {}

  void form(const Json& form, const std::string& place) const {
    rules_.object(form, place);
    per_layer(member(form, "eigenvalues"), place + ".eigenvalues", spectrum());
    const Json& shared = member(form, "shared_eigenvalues");
    if (!shared.is_null()) spectrum()(shared, place + ".shared_eigenvalues");
    by_share(member(form, "k"), place + ".k", layer_numbers());
    by_share(member(form, "shared_k"), place + ".shared_k", number());
    by_share(member(form, "k_by_head"), place + ".k_by_head", [this](const auto& v, const auto& p) {
      require_layers(v, p);
      rules_.matrix(v, p);
    });
    for (const char* key : {"overlap", "explained"})
      by_dimension(member(form, key), concat(place, ".", key), between_layers(layers_));
    by_dimension(member(form, "chance"), place + ".chance", number());
  }

  void against(const Json& other) const {
    rules_.object(other, "against");
    const Json& model = member(other, "model");
    rules_.model(rules_.object(model, "against.model"), "against.model");
    const int64_t layers = rules_.positive_integer(member(model, "layers"), "against.model.layers");
    members(rules_.object(member(other, "forms"), "against.forms"), "against.forms",
            [&](const Json& form, const std::string& place) {
              rules_.object(form, place);
              for (const char* key : {"overlap", "explained"})
                by_dimension(member(form, key), concat(place, ".", key),
                             between_layers(static_cast<size_t>(layers)));
            });
  }

  // {"positions": {method: [..]}, "residual": {method: [1, ..]}}
  void selection(const Json& selection, const std::string& place) const {
    rules_.object(selection, place);
    const Json& chosen = rules_.object(member(selection, "positions"), place + ".positions");
    members(chosen, place + ".positions", [this](const Json& list, const std::string& at) {
      std::set<int64_t> seen;
      for (size_t i = 0; i < rules_.array(list, at).size(); ++i) {
        const std::string item = concat(at, "[", i, "]");
        rules_.require(is_position(list[i]), item, concat("must be a position from 0 to ", n_ - 1),
                       list[i]);
        rules_.require(seen.insert(list[i].get<int64_t>()).second, item, "must not be chosen twice",
                       list[i]);
      }
    });
    const Json& residual = member(selection, "residual");
    if (residual.is_null()) return;
    rules_.object(residual, place + ".residual");
    for (const auto& [name, list] : residual.items()) {
      const std::string at = concat(place, ".residual.", name);
      const Json& positions = member(chosen, name);
      const size_t most = (positions.is_null() ? static_cast<size_t>(n_) : positions.size()) + 1;
      numbers(list, at);
      rules_.require(
          list.size() <= most, at,
          concat("must have at most ", most, " entries: before the first position and after each"),
          list);
    }
  }

  void reconstruction(const Json& list) const {
    rules_.array(list, "reconstruction");
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string place = concat("reconstruction[", i, "]");
      positions_of(rules_.object(list[i], place), place);
      rules_.text(member(list[i], "sharing"), place + ".sharing");
      ridges(member(list[i], "ridge"), place + ".ridge");
      const std::string at = place + ".heldout_residual";
      const size_t rows = rules_.matrix(member(list[i], "heldout_residual"), at).size();
      rules_.require(rows == layers_ || rows == 1, at,
                     concat("must have 1 row or ", layers_, ", one for each layer"),
                     list[i]["heldout_residual"]);
    }
  }

  void queries(const Json& queries) const {
    positions_of(rules_.object(queries, "queries"), "queries");
    for (const char* key : {"common", "own"})
      layer_numbers()(member(queries, key), concat("queries.", key));
  }

  void matrix(const Json& matrix) const {
    rules_.object(matrix, "matrix");
    for (const char* key : {"samples", "rank"})
      rules_.positive_integer(member(matrix, key), concat("matrix.", key));
    per_layer(member(matrix, "eigenvalues"), "matrix.eigenvalues",
              [this](const Json& list, const std::string& place) { falling(list, place); });
    layer_numbers()(member(matrix, "total"), "matrix.total");
    const Json& pairs = member(matrix, "pairs");
    per_layer(pairs, "matrix.pairs", [this](const Json& list, const std::string& place) {
      for (size_t i = 0; i < rules_.array(list, place).size(); ++i)
        rules_.require(list[i].is_array() && list[i].size() == 2 && is_position(list[i][0]) &&
                           is_position(list[i][1]),
                       concat(place, "[", i, "]"),
                       concat("must be a query and a key from 0 to ", n_ - 1), list[i]);
    });
    const Json& residual = member(matrix, "residual");
    per_layer(residual, "matrix.residual",
              [this](const Json& list, const std::string& place) { numbers(list, place); });
    for (size_t layer = 0; layer < layers_; ++layer)
      rules_.require(residual[layer].size() <= pairs[layer].size() + 1,
                     concat("matrix.residual[", layer, "]"),
                     concat("must have at most ", pairs[layer].size() + 1,
                            " entries: before the first pair and after each"),
                     residual[layer]);
  }

  void cost(const Json& cost) const {
    by_dimension(cost, "cost", [this](const Json& parts, const std::string& place) {
      members(rules_.object(parts, place), place, number());
    });
  }

  void per_layer(const Json& value, const std::string& place, const Check& check) const {
    require_layers(value, place);
    for (size_t layer = 0; layer < layers_; ++layer)
      check(value[layer], concat(place, "[", layer, "]"));
  }

 private:
  void require_layers(const Json& value, const std::string& place) const {
    rules_.require(rules_.array(value, place).size() == layers_, place,
                   concat("must have ", layers_, " entries, one for each layer"), value);
  }

  void positions_of(const Json& object, const std::string& place) const {
    const Json& positions = member(object, "positions");
    rules_.require(rules_.positive_integer(positions, place + ".positions") <= n_,
                   place + ".positions", concat("must be at most n, ", n_), positions);
  }

  bool is_position(const Json& value) const {
    return value.is_number_integer() && value.get<double>() >= 0 &&
           value.get<double>() < static_cast<double>(n_);
  }

  void numbers(const Json& list, const std::string& place) const {
    rules_.array(list, place);
    for (size_t i = 0; i < list.size(); ++i)
      rules_.number_or_null(list[i], concat(place, "[", i, "]"));
  }

  // A number for all maps, one for each, or a list for each layer.
  void ridges(const Json& value, const std::string& place) const {
    if (!value.is_array()) return rules_.number_or_null(value, place);
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string item = concat(place, "[", i, "]");
      if (value[i].is_array())
        numbers(value[i], item);
      else
        rules_.number_or_null(value[i], item);
    }
  }

  void falling(const Json& list, const std::string& place) const {
    numbers(list, place);
    for (size_t i = 1; i < list.size(); ++i)
      rules_.require(list[i].is_null() || list[i - 1].is_null() ||
                         list[i].get<double>() <= list[i - 1].get<double>(),
                     concat(place, "[", i, "]"), "must not be larger than the one before", list[i]);
  }

  static void members(const Json& object, const std::string& place, const Check& check) {
    for (const auto& [name, value] : object.items()) check(value, concat(place, ".", name));
  }

  // An object, or null, whose names are shares of variance between 0 and 1.
  void by_share(const Json& object, const std::string& place, const Check& check) const {
    named_by(object, place, check, "must be named by a share between 0 and 1",
             [](double share) { return share > 0 && share < 1; });
  }

  // The same whose names are numbers of dimensions or positions.
  void by_dimension(const Json& object, const std::string& place, const Check& check) const {
    named_by(object, place, check, concat("must be named by an integer from 1 to n, ", n_),
             [this](double k) {
               return k >= 1 && k <= static_cast<double>(n_) &&
                      k == static_cast<double>(static_cast<int64_t>(k));
             });
  }

  void named_by(const Json& object, const std::string& place, const Check& check,
                const std::string& rule, const std::function<bool(double)>& holds) const {
    if (object.is_null()) return;
    rules_.object(object, place);
    for (const auto& [name, value] : object.items()) {
      char* end = nullptr;
      const double key = std::strtod(name.c_str(), &end);
      const std::string item = concat(place, ".", name);
      rules_.require(!name.empty() && *end == '\0' && holds(key), item, rule, Json(name));
      check(value, item);
    }
  }

  Check number() const {
    return [this](const Json& value, const std::string& place) {
      rules_.number_or_null(value, place);
    };
  }

  Check layer_numbers() const {
    return
        [this](const Json& value, const std::string& place) { per_layer(value, place, number()); };
  }

  // n numbers, none larger than the one before.
  Check spectrum() const {
    return [this](const Json& list, const std::string& place) {
      rules_.require(rules_.array(list, place).size() == static_cast<size_t>(n_), place,
                     concat("must have n entries, ", n_), list);
      falling(list, place);
    };
  }

  // [[..columns] ..layers]
  Check between_layers(size_t columns) const {
    return [this, columns](const Json& value, const std::string& place) {
      per_layer(value, place, [&](const Json& row, const std::string& at) {
        numbers(row, at);
        rules_.require(row.size() == columns, at,
                       concat("must have ", columns, " entries, one for each layer"), row);
      });
    };
  }

  const JsonRules& rules_;
  size_t layers_;
  int64_t n_;
};

}  // namespace

void check_spectra(const JsonRules& rules, const Json& spectra) {
  rules.object(spectra, "spectra");
  rules.require(member(spectra, "format") == 1, "format", "must be 1", member(spectra, "format"));
  const Json& model = rules.object(member(spectra, "model"), "model");
  rules.model(model, "model");
  const int64_t layers = rules.positive_integer(member(model, "layers"), "model.layers");
  const Json& data = member(spectra, "data");
  rules.optional_object(spectra, "data", "data");
  rules.optional_text(data, "file", "data.file");
  for (const char* key : {"windows", "tokens"})
    rules.optional_number(data, key, concat("data.", key));
  const Spectra parts(rules, layers, rules.positive_integer(member(spectra, "n"), "n"));
  const Json& forms = rules.object(member(spectra, "forms"), "forms");
  for (const auto& [name, form] : forms.items()) parts.form(form, concat("forms.", name));
  const auto optional = [&](const char* key, const auto& check) {
    if (const Json& value = member(spectra, key); !value.is_null()) check(value);
  };
  optional("against", [&](const Json& value) { parts.against(value); });
  optional("selection", [&](const Json& value) {
    rules.object(value, "selection");
    const Json& own = member(value, "layers");
    const Json& shared = member(value, "shared");
    if (!own.is_null())
      parts.per_layer(own, "selection.layers", [&](const Json& chosen, const std::string& place) {
        parts.selection(chosen, place);
      });
    if (!shared.is_null()) parts.selection(shared, "selection.shared");
  });
  optional("reconstruction", [&](const Json& value) { parts.reconstruction(value); });
  optional("queries", [&](const Json& value) { parts.queries(value); });
  optional("matrix", [&](const Json& value) { parts.matrix(value); });
  optional("cost", [&](const Json& value) { parts.cost(value); });
  rules.optional_number(spectra, "seconds", "seconds");
  rules.command(member(spectra, "command"), "command");
  rules.optional_object(spectra, "versions", "versions");
}

}  // namespace hedgerow::report
