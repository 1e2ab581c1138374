// Sentence embeddings as a Sentence-Transformers folder describes them.
#include <ATen/ATen.h>

#include <filesystem>
#include <limits>
#include <utility>

#include "formats/config.h"
#include "formats/json.h"
#include "hedgerow/error.h"
#include "models/model_folder.h"

namespace hedgerow::models {
namespace {

namespace fs = std::filesystem;

// Modes by the new key "pooling_mode" and the older flags.
constexpr std::pair<const char*, const char*> kModes[] = {
    {"cls", "pooling_mode_cls_token"},
    {"max", "pooling_mode_max_tokens"},
    {"mean", "pooling_mode_mean_tokens"},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
    {"weightedmean", "pooling_mode_weightedmean_tokens"},
    {"lasttoken", "pooling_mode_lasttoken"},
};

std::vector<std::string> pooling_modes(const formats::Config& config) {
  if (const formats::Json* mode = config.find("pooling_mode")) {
    return mode->is_array() ? config.get_strings("pooling_mode")
                            : std::vector<std::string>{config.get_string("pooling_mode")};
  }
  std::vector<std::string> modes;
  for (const auto& [mode, flag] : kModes) {
    if (config.get_bool_or(flag, false)) modes.push_back(mode);
  }
  return modes;
}

void read_pooling_module(const fs::path& folder, Pooling& pooling) {
  const formats::Config config = formats::Config::load_folder(folder.string());
  const std::vector<std::string> modes = pooling_modes(config);
  const std::string mode = modes.size() == 1 ? modes[0] : "";
  if (mode == "mean") {
    pooling.kind = Pooling::Kind::mean;
  } else if (mode == "cls") {
    pooling.kind = Pooling::Kind::cls;
  } else if (mode == "max") {
    pooling.kind = Pooling::Kind::max;
  } else {
    std::string got;
    for (const std::string& m : modes) got += (got.empty() ? "" : " + ") + m;
    pooling.refused = concat(config.where(), ": pooling must be one of mean, cls, max; got ",
                             got.empty() ? "none" : got);
  }
}

void read_modules(const fs::path& root, Pooling& pooling) {
  const std::string path = (root / "modules.json").string();
  const formats::Json modules = formats::read_json_file(path);
  HEDGEROW_CHECK(modules.is_array(), path, ": must be an array; got ", formats::kind_name(modules));
  for (const formats::Json& item : modules) {
    const formats::Config module(item, path);
    const std::string type = module.get_string("type");
    const std::string name = type.substr(type.rfind('.') + 1);  // of the class
    if (name == "Pooling") {
      read_pooling_module(root / module.get_string_or("path", ""), pooling);
    } else if (name == "Normalize") {
      pooling.normalize = true;
    } else if (name != "Transformer") {
      pooling.refused =
          concat(path, ": modules must be Transformer, Pooling, Normalize; got ", type);
    }
  }
}

}  // namespace

Pooling read_pooling(const std::string& folder) {
  const fs::path root(folder);
  Pooling pooling;
  if (fs::exists(root / "modules.json")) read_modules(root, pooling);
  const fs::path settings = root / "sentence_bert_config.json";
  if (fs::exists(settings)) {
    const formats::Config config = formats::Config::load(settings.string());
    if (config.has("max_seq_length")) {
      pooling.max_length =
          config.get_int_in("max_seq_length", 1, std::numeric_limits<int32_t>::max());
    }
  }
  return pooling;
}

at::Tensor pool(const Pooling& pooling, const at::Tensor& last_hidden_state,
                const at::Tensor& attention_mask) {
  HEDGEROW_CHECK(pooling.refused.empty(), pooling.refused);
  const at::Tensor keep = attention_mask.ne(0).unsqueeze(-1);  // [B,T,1]
  at::Tensor pooled;
  switch (pooling.kind) {
    case Pooling::Kind::mean: {
      const at::Tensor sums = at::where(keep, last_hidden_state, 0).sum(1);
      pooled = sums / keep.sum(1).clamp_min(1);
      break;
    }
    case Pooling::Kind::cls: {
      // The first token that is not padding, also when padding is on the left.
      const at::Tensor first = keep.squeeze(-1).to(at::kLong).argmax(1);  // [B]
      pooled = last_hidden_state.index({at::arange(first.size(0)), first});
      break;
    }
    case Pooling::Kind::max:
      pooled = last_hidden_state
                   .masked_fill(keep.logical_not(), -std::numeric_limits<double>::infinity())
                   .amax(1);
      break;
  }
  if (!pooling.normalize) return pooled;
  return pooled / pooled.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12);
}

}  // namespace hedgerow::models
