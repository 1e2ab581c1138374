#include "models/head_values.h"

#include <ATen/ATen.h>

#include <limits>

namespace hedgerow::models {

std::map<std::string, std::vector<std::vector<double>>> head_values(Encoder& model) {
  std::map<std::string, std::vector<std::vector<double>>> out;
  for (int64_t layer = 0; layer < model.num_layers(); ++layer) {
    const nn::Mixer& mixer = model.attention(layer).mixer();
    for (const auto& [name, values] : mixer.head_values()) {
      std::vector<std::vector<double>>& table = out[name];
      for (int64_t l = static_cast<int64_t>(table.size()); l < model.num_layers(); ++l)
        table.emplace_back(model.attention(l).mixer().layout().heads,
                           std::numeric_limits<double>::quiet_NaN());
      const at::Tensor heads = values.detach()
                                   .reshape({-1})
                                   .expand({mixer.layout().heads})
                                   .to(at::kDouble)
                                   .contiguous();  // [H]
      table[layer].assign(heads.const_data_ptr<double>(),
                          heads.const_data_ptr<double>() + heads.numel());
    }
  }
  return out;
}

}  // namespace hedgerow::models
