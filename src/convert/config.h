// What a conversion is asked to do: plain data, fully resolved before anything runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nn/mixer.h"

namespace hedgerow::convert {

// Stage 1: the mixers alone learn the teacher's attention weights.
struct DistilConfig {
  int64_t steps = 0;
  double lr = 3e-2;
  int64_t warmup_steps = 10;
  int64_t tokens = 1024;                                   // of a batch of windows
  std::vector<int64_t> lengths = {32, 64, 128, 256, 512};  // a batch's windows have one of these
  bool bfloat16 = false;                                   // see nn/precision.h
};

// Stage 2: the whole model learns the teacher's embeddings and hidden states.
struct RecoverConfig {
  int64_t steps = 0;
  double lr = 1e-4;
  double mixer_lr = 1e-3;
  int64_t warmup_steps = 20;
  int64_t batch = 32;      // texts
  bool fit_batch = true;   // texts that are joined: about as many tokens; false: as it stands
  int64_t length = 128;    // tokens of a text, the rest is cut
  bool fit_length = true;  // a length beyond the model's positions becomes these; false: is refused
  int64_t lora_rank = 0;   // 0: all weights train
  bool mixers_only = false;    // nothing but the mixers' parameters trains
  double hidden_weight = 1.0;  // of the hidden states' loss beside the embeddings'
  // Share of the texts that, from the second pass over them on, give way to as many tokens of
  // running training text from a random place; keeps long training from learning them by heart.
  double recut = 0;
  double max_grad_norm = 1.0;
  bool bfloat16 = false;  // see nn/precision.h
};

// What is measured on held-out text.
struct VerifyConfig {
  int64_t texts = 2000;  // the first ones of the held-out file
  std::vector<int64_t> kl_lengths = {128, 256, 512};
  int64_t kl_tokens = 4096;  // of held-out text at each length
};

struct ConvertConfig {
  std::string model;  // folder of the teacher
  std::string kind;   // of the mixer
  std::map<std::string, nn::OptionValue> options;
  std::vector<int64_t> layers;  // empty: all
  std::string data, heldout;    // files; heldout empty: the hold-out rule of data/text.h
  int64_t column = 0;
  std::string out;
  std::string preset = "demo";
  DistilConfig distil;
  RecoverConfig recover;
  VerifyConfig verify;
  bool join = false;  // texts are windows of running text, of recover.length tokens
  int64_t seed = 0;
  int64_t threads = 0;
  bool resume = false, force = false, quiet = false;
  std::string command;  // as typed, for the summary
};

struct Preset {
  const char* name;
  const char* summary;
  DistilConfig distil;
  RecoverConfig recover;
  VerifyConfig verify;
  bool thorough_options = false;  // the mechanism's options of that name (nn/mixer.h)
};

const std::vector<Preset>& presets();

// Throws Error that lists the known ones.
const Preset& preset(const std::string& name);

// run.toml: every setting that influences the result, one a line. The same text means the same run.
std::string to_toml(const ConvertConfig& config, const std::string& data_md5);

}  // namespace hedgerow::convert
