#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "tokenizers/post_processor.h"
#include "tokenizers/registry.h"

namespace hedgerow::tokenizers {
namespace {

constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();

struct SpecialToken {
  int32_t id = 0;
  std::string token;
};

// A step of a template: a whole sequence, or the tokens that a special name stands for.
struct TemplateStep {
  enum class Kind { kFirst, kSecond, kSpecial };
  Kind kind = Kind::kFirst;
  std::vector<SpecialToken> tokens;
  int32_t type_id = 0;
};

class TemplateProcessing : public PostProcessor {
 public:
  explicit TemplateProcessing(const formats::Config& settings) {
    const auto special = read_special_tokens(settings);
    single_ = read_template(settings, "single", special);
    pair_ = read_template(settings, "pair", special);
    for (const TemplateStep& step : single_)
      HEDGEROW_CHECK(step.kind != TemplateStep::Kind::kSecond, settings.where(),
                     ": the single template may not use sequence B");
  }

  int64_t num_added(bool pair) const override {
    size_t count = 0;
    for (const TemplateStep& step : pair ? pair_ : single_) count += step.tokens.size();
    return static_cast<int64_t>(count);
  }

  Encoding process(Encoding first, Encoding* second, bool add_special_tokens) const override {
    Encoding out;
    for (const TemplateStep& step : second == nullptr ? single_ : pair_) {
      if (step.kind == TemplateStep::Kind::kSpecial) {
        if (!add_special_tokens) continue;
        for (const SpecialToken& token : step.tokens)
          out.push_back(token.id, token.token, Span{}, step.type_id, /*special=*/true);
        continue;
      }
      Encoding part = step.kind == TemplateStep::Kind::kFirst ? first : *second;
      part.type_ids.assign(part.ids.size(), step.type_id);
      out.append(std::move(part));
    }
    return out;
  }

 private:
  using SpecialTable = std::map<std::string, std::vector<SpecialToken>>;

  static SpecialTable read_special_tokens(const formats::Config& settings) {
    SpecialTable table;
    if (!settings.has("special_tokens")) return table;
    const formats::Config all = settings.child("special_tokens");
    for (const auto& [name, value] : all.json().get_ref<const formats::Json::object_t&>()) {
      const formats::Config entry(value, concat(all.where(), " ", formats::quote(name)));
      const formats::Json* ids = entry.find("ids");
      const std::vector<std::string> tokens = entry.get_strings("tokens");
      HEDGEROW_CHECK(ids != nullptr && ids->is_array() && ids->size() == tokens.size(),
                     entry.where(), ": \"ids\" and \"tokens\" must be arrays of one length");
      for (size_t i = 0; i < tokens.size(); ++i) {
        const formats::Json& id = (*ids)[i];
        HEDGEROW_CHECK(
            id.is_number_unsigned() && id.get<uint64_t>() <= static_cast<uint64_t>(kMaxId),
            entry.where(), ": ids must be whole numbers of 31 bits; got ", formats::excerpt(id));
        table[name].push_back({static_cast<int32_t>(id.get<uint64_t>()), tokens[i]});
      }
    }
    return table;
  }

  static std::vector<TemplateStep> read_template(const formats::Config& settings, const char* key,
                                                 const SpecialTable& special) {
    const formats::Json* steps = settings.find(key);
    HEDGEROW_CHECK(steps != nullptr && steps->is_array(), settings.where(), ": key \"", key,
                   "\" must be an array");
    std::vector<TemplateStep> out;
    for (const formats::Json& step : *steps) {
      const formats::Config item(step, concat(settings.where(), ": ", key));
      TemplateStep read;
      const bool is_special = item.has("SpecialToken");
      const formats::Config body = item.child(is_special ? "SpecialToken" : "Sequence");
      const std::string id = body.get_string("id");
      read.type_id =
          static_cast<int32_t>(body.has("type_id") ? body.get_int_in("type_id", 0, kMaxId) : 0);
      if (is_special) {
        const auto found = special.find(id);
        HEDGEROW_CHECK(found != special.end(), body.where(), ": special_tokens must define ",
                       formats::quote(id), "; it does not");
        read.kind = TemplateStep::Kind::kSpecial;
        read.tokens = found->second;
      } else {
        HEDGEROW_CHECK(id == "A" || id == "B", body.where(), ": id must be \"A\" or \"B\"; got ",
                       formats::quote(id));
        read.kind = id == "A" ? TemplateStep::Kind::kFirst : TemplateStep::Kind::kSecond;
      }
      out.push_back(std::move(read));
    }
    return out;
  }

  std::vector<TemplateStep> single_;
  std::vector<TemplateStep> pair_;
};

// [CLS] A [SEP], and B [SEP] with type 1.
class BertProcessing : public PostProcessor {
 public:
  explicit BertProcessing(const formats::Config& settings)
      : sep_(read_token(settings, "sep")), cls_(read_token(settings, "cls")) {}

  int64_t num_added(bool pair) const override { return pair ? 3 : 2; }

  Encoding process(Encoding first, Encoding* second, bool add_special_tokens) const override {
    if (!add_special_tokens) return join_sequences(std::move(first), second);
    Encoding out;
    out.push_back(cls_.id, cls_.token, Span{}, 0, true);
    out.append(std::move(first));
    out.push_back(sep_.id, sep_.token, Span{}, 0, true);
    if (second != nullptr) {
      out.append(std::move(*second));
      out.push_back(sep_.id, sep_.token, Span{}, 1, true);
    }
    return out;
  }

 private:
  static SpecialToken read_token(const formats::Config& settings, const char* key) {
    const formats::Json* value = settings.find(key);
    const bool valid = value != nullptr && value->is_array() && value->size() == 2 &&
                       (*value)[0].is_string() && (*value)[1].is_number_unsigned() &&
                       (*value)[1].get<uint64_t>() <= static_cast<uint64_t>(kMaxId);
    HEDGEROW_CHECK(valid, settings.where(), ": key \"", key, "\" must be [token, id]");
    return {static_cast<int32_t>((*value)[1].get<uint64_t>()), (*value)[0].get<std::string>()};
  }

  SpecialToken sep_;
  SpecialToken cls_;
};

template <typename Part>
std::unique_ptr<PostProcessor> with_settings(const formats::Config& settings) {
  return std::make_unique<Part>(settings);
}

constexpr Kind<PostProcessor> kPostProcessors[] = {
    {"TemplateProcessing", with_settings<TemplateProcessing>},
    {"BertProcessing", with_settings<BertProcessing>},
};

}  // namespace

Encoding join_sequences(Encoding first, Encoding* second) {
  if (second != nullptr) first.append(std::move(*second));
  return first;
}

std::unique_ptr<PostProcessor> make_post_processor(const formats::Json& part,
                                                   const std::string& where) {
  if (part.is_null()) return nullptr;
  return make_part(std::span<const Kind<PostProcessor>>(kPostProcessors), part, where,
                   "post_processor");
}

}  // namespace hedgerow::tokenizers
