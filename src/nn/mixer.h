// A mixer is an attention mechanism: what happens between the q, k, v projections and the output
// projection. It describes itself (options, parameters, head layout), so that conversion, config
// files, `info` and reports need not know any mechanism by name.
//
// Legend: B batch, T queries, S keys, H heads, D query/key width, Dv value width.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "nn/head_choice.h"
#include "nn/score_fit.h"
#include "nn/score_moments.h"

namespace hedgerow::nn {

// Heads of the projections around a mixer. Mechanisms that mix heads may use counts that differ;
// for the others key_heads = heads = value_heads. kv_heads < key_heads is grouped-query attention.
struct HeadLayout {
  int64_t key_heads = 0;    // Hk: heads of q (and, without grouping, of k)
  int64_t kv_heads = 0;     // Hkv: heads of k and v in memory
  int64_t heads = 0;        // H: heads that are normalised
  int64_t value_heads = 0;  // Hv: heads of the output
  int64_t head_dim = 0;     // D
  int64_t value_dim = 0;    // Dv
  int64_t model_dim = 0;    // of tokens, for mechanisms that project them; 0: not known

  // Multi-head attention, grouped where kv_heads < heads; Dv = D.
  static HeadLayout multi_head(int64_t heads, int64_t head_dim, int64_t kv_heads = 0);
  // Heads of v in memory: value heads are grouped as key heads are.
  int64_t value_kv_heads() const { return value_heads * kv_heads / key_heads; }
  bool operator==(const HeadLayout& other) const;  // of heads and widths, not of tokens
};

// Throws Error that names the mechanism unless q, weights and output have one head count.
void check_one_head_count(const std::string& kind, const HeadLayout& layout);

// One typed option of a mechanism, as given on the command line, in recipes and in config.json.
using OptionValue = std::variant<bool, int64_t, double, std::string>;
// The same text in messages, config files and command lines.
std::string to_string(const OptionValue& value);

struct OptionSpec {
  std::string name;
  OptionValue default_value;  // also fixes the type
  std::string help;
  std::vector<std::string> choices;  // of a string option; empty = any
};

// Values for all options of one mechanism, checked against its specs.
class Options {
 public:
  Options() = default;
  // Starts from the defaults. Throws Error naming the option and the rule on unknown names, wrong
  // types or a value that is not among the choices.
  Options(const std::string& kind, const std::vector<OptionSpec>& specs,
          const std::map<std::string, OptionValue>& given);
  bool get_bool(const std::string& name) const;
  int64_t get_int(const std::string& name) const;
  double get_double(const std::string& name) const;
  const std::string& get_string(const std::string& name) const;
  const std::map<std::string, OptionValue>& values() const { return values_; }

 private:
  std::map<std::string, OptionValue> values_;
};

// Gives a mixer the projected heads, for all positions or for chosen ones (int64 [P]).
class Projector {
 public:
  virtual ~Projector() = default;
  virtual at::Tensor queries() const = 0;  // [B,Hk,T,D]
  virtual at::Tensor keys(
      const std::optional<at::Tensor>& positions = {}) const = 0;  // [B,Hkv,S|P,D]
  virtual at::Tensor values(
      const std::optional<at::Tensor>& positions = {}) const = 0;  // [B,Hkv,S|P,Dv]
};

// A projector over tensors that exist already: captured heads of a teacher, tests.
class FixedProjector : public Projector {
 public:
  FixedProjector(at::Tensor q, at::Tensor k, at::Tensor v) : q_(q), k_(k), v_(v) {}
  at::Tensor queries() const override { return q_; }
  at::Tensor keys(const std::optional<at::Tensor>& positions = {}) const override;
  at::Tensor values(const std::optional<at::Tensor>& positions = {}) const override;

 private:
  at::Tensor q_, k_, v_;
};

struct AttentionMask {
  std::optional<at::Tensor> key_mask;   // boolean [B,S], true = keep: padding
  std::optional<at::Tensor> attn_mask;  // boolean or floating, broadcastable to [B,H,T,S]
  bool is_causal = false;               // bottom-right

  // One mask for operators that take attn_mask: both together.
  std::optional<at::Tensor> combined() const;

  // Boolean, true = the query sees the key, broadcastable to [B,H,T,S]: padding, attn_mask (-inf
  // of a floating one) and causality together. Nothing is excluded: none.
  std::optional<at::Tensor> visible(int64_t num_queries, int64_t num_keys) const;
};

struct MixInput {
  at::Tensor x;  // [B,T,d_model] tokens that ask (may be undefined with a FixedProjector)
  at::Tensor m;  // [B,S,d_model] tokens that are asked
  const Projector& project;
  AttentionMask mask;
  // Where the first query stands among the keys, for mechanisms that use positions: not 0 where a
  // call holds a part of the queries. is_causal aligns the ends beside it.
  int64_t first_position = 0;
};

// Numbers of keys: more than `above`, at most `most` where that is given.
struct KeyRange {
  int64_t above = 0;
  std::optional<int64_t> most;
};

class Mixer : public torch::nn::Module {
 public:
  virtual std::string kind() const = 0;
  virtual const Options& options() const = 0;
  virtual const HeadLayout& layout() const = 0;

  // [B,Hv,T,Dv], differentiable in everything the projector gives and in the mixer's parameters.
  virtual at::Tensor mix(const MixInput& input) = 0;

  // The full normalised weights [B,H,T,S] of mix(), before a mechanism mixes heads again;
  // differentiable; for small T, analysis and distillation.
  virtual at::Tensor weights(const MixInput& input) = 0;

  // log(weights), finite at every key that the query sees; what distillation minimises a
  // cross-entropy of. Excluded entries are -inf. A mechanism whose weights may be exactly zero adds
  // a floor before it normalises (and says which), so that the loss is finite and the rows still
  // sum to 1.
  virtual at::Tensor log_weights(const MixInput& input) = 0;

  // Of a mechanism with fewer heads than the layer it takes the place of: sets its parameters so
  // that the layer changes as little as it can, and says which heads the projections keep.
  virtual HeadChoice start_from(const HeadGrams& grams);

  // Of a mechanism that is fitted to the scores of the layer whose place it takes: what it wants to
  // know of them. None: it is not fitted.
  virtual std::optional<ScoreRequest> score_request() const { return std::nullopt; }
  // Fits it to them. Says how well its reconstruction fits, where it has one.
  virtual std::optional<ScoreReconstruction> start_from(const ScoreSample& scores);

  // The most keys that a call may have; none: any number.
  virtual std::optional<int64_t> max_keys() const { return std::nullopt; }

  // Throws Error where what a checkpoint held cannot be: shapes fit, values may not.
  virtual void check_loaded() const {}

  // The keys of sequences that it is made for, which conversions train and verify it with. Others
  // it may refuse (max_keys()), or attend to exactly.
  virtual KeyRange made_for() const { return {}; }

  // Where the mechanism has parameters that are common to layers: takes those of `first`, the same
  // mechanism with the same options in the lowest such layer, in the place of its own.
  virtual bool shares_parameters() const { return false; }
  virtual void share_parameters(Mixer& first);

  // Buffers of integers, such as positions, stay what they are.
  using torch::nn::Module::to;
  void to(torch::Dtype dtype, bool non_blocking = false) override;

  // How the mechanism mixes heads, by name ("logits_proj" -> [Hk,H]): reports draw them.
  virtual std::vector<std::pair<std::string, at::Tensor>> head_matrices() const { return {}; }

  // What the mechanism has learned or fixed for each head, by name ("alpha" -> [H]): analysis and
  // reports show them under these names.
  virtual std::vector<std::pair<std::string, at::Tensor>> head_values() const { return {}; }
};

// What the registry knows of a mechanism before one exists.
struct MixerType {
  std::string kind;     // "softmax", "hedgehog", ...
  std::string summary;  // one line for help and info
  std::vector<OptionSpec> options;
  bool linear_time = false;
  // Parameters start so that a swap into a pretrained model is as close as the mechanism allows.
  std::shared_ptr<Mixer> (*create)(const HeadLayout& layout, const Options& options);
  // What a conversion trains first, with everything else frozen: true, the parameters learn
  // softmax's weights (which they start far from); false, the model's outputs (where learning
  // softmax's weights would only undo the mechanism).
  bool imitates_softmax = true;
  // Made for sequences of one length: conversions join texts to it.
  bool one_length = false;
  double start_lr = 3e-2;  // learning rate while the parameters train alone
  // In the place of the defaults where quality is worth more training: a thorough conversion's.
  std::map<std::string, OptionValue> thorough_options = {};
};

// The explicit list of mechanisms (mixers/registry.cc).
const std::vector<MixerType>& mixer_types();

// Throws Error listing the known kinds.
const MixerType& mixer_type(const std::string& kind);

std::shared_ptr<Mixer> make_mixer(const std::string& kind, const HeadLayout& layout,
                                  const std::map<std::string, OptionValue>& options = {});

}  // namespace hedgerow::nn
