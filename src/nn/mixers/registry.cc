// The explicit list of mechanisms: one line each.
#include "hedgerow/error.h"
#include "nn/mixer.h"
#include "nn/mixers/entmax.h"
#include "nn/mixers/fewer_keys.h"
#include "nn/mixers/hedgehog.h"
#include "nn/mixers/partial.h"
#include "nn/mixers/softmax.h"
#include "nn/mixers/talking_heads.h"

namespace hedgerow::nn {

const std::vector<MixerType>& mixer_types() {
  static const std::vector<MixerType> types = {
      softmax_mixer_type(),       hedgehog_mixer_type(), entmax_mixer_type(),
      talking_heads_mixer_type(), partial_mixer_type(),  selected_keys_mixer_type(),
      linformer_mixer_type(),     window_mixer_type(),
  };
  return types;
}

const MixerType& mixer_type(const std::string& kind) {
  std::string known;
  for (const MixerType& type : mixer_types()) {
    if (type.kind == kind) return type;
    known += (known.empty() ? "" : ", ") + type.kind;
  }
  throw Error(concat("mixer: unknown kind \"", kind, "\"; known: ", known));
}

std::shared_ptr<Mixer> make_mixer(const std::string& kind, const HeadLayout& layout,
                                  const std::map<std::string, OptionValue>& options) {
  const MixerType& type = mixer_type(kind);
  return type.create(layout, Options(kind, type.options, options));
}

}  // namespace hedgerow::nn
