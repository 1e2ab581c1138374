// The key "hedgerow" of config.json: {"format": 1, "layers": [{"mixer": "hedgehog", "map": "exp",
// ...}, ...]}, one entry for each layer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/config.h"
#include "models/encoder.h"
#include "nn/mixer.h"

namespace hedgerow::models {

inline constexpr const char* kHedgerowKey = "hedgerow";
inline constexpr int64_t kHedgerowFormat = 1;

// Mixers as the key says, one for each of `num_layers` layers. Throws Error on another format
// number, another number of layers, an unknown mixer or option, and on keys that it does not know.
std::vector<std::shared_ptr<nn::Mixer>> read_mixers(const formats::Config& hedgerow,
                                                    int64_t num_layers,
                                                    const nn::HeadLayout& layout);

// The key's value for a model.
formats::Json describe_mixers(Encoder& encoder);

// The first way in which the model's mixers differ from others, one for each layer; "" for none.
std::string mixer_difference(Encoder& encoder,
                             const std::vector<std::shared_ptr<nn::Mixer>>& others);

// Gives layers whose mechanism has parameters in common those of the lowest one. Throws Error where
// they hold other values.
void share_parameters(Encoder& encoder);

// True when some layer's mixer is not softmax.
bool is_converted(Encoder& encoder);

}  // namespace hedgerow::models
