// The explicit list of architectures: how a config.json and a checkpoint of each are read.
#pragma once

#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/config.h"
#include "io/tensors.h"
#include "models/encoder.h"

namespace hedgerow::models {

struct Architecture {
  std::string model_type;  // of config.json; a converted folder says "hedgerow_<model_type>"
  // Throws Error on what it does not understand. The tensors say which optional parts there are.
  EncoderConfig (*read_config)(const formats::Config& config, const formats::Checkpoint& weights);
  // Names in a checkpoint of the module's parameter or buffer.
  io::TensorSource (*source)(const std::string& parameter, const EncoderConfig& config);
  // Stored tensors that a model of this config leaves unread.
  bool (*may_ignore)(const std::string& stored, const EncoderConfig& config);
  // The prefix of the base model's tensors when a folder is written ("bert." beside a head).
  std::string (*saved_name)(const std::string& parameter, const EncoderConfig& config);
};

const std::vector<Architecture>& architectures();

// The entry for a model_type, plain or converted. Throws Error, starting with `where`, that lists
// the known ones.
const Architecture& find_architecture(const std::string& model_type, const std::string& where);

inline constexpr const char* kConvertedPrefix = "hedgerow_";

}  // namespace hedgerow::models
