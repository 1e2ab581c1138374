#include "bench/layer_speed.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "bench/measure.h"
#include "hedgerow/error.h"
#include "nn/mixer.h"

namespace hedgerow::bench {

std::vector<LayerBenchRow> bench_layer(models::Encoder& model, const LayerBenchConfig& config,
                                       const std::function<void(const LayerBenchRow&)>& report) {
  HEDGEROW_CHECK(config.rounds >= 1, "bench: rounds must be at least 1; got ", config.rounds);
  for (int64_t T : config.lengths)
    HEDGEROW_CHECK(T >= 1, "bench: lengths must be at least 1; got ", T);
  const at::NoGradGuard no_grad;
  nn::Attention& attention = model.attention(config.layer);
  const std::shared_ptr<nn::Mixer> own = attention.mixer_ptr();
  std::vector<std::shared_ptr<nn::Mixer>> mixers = {own};
  if (own->kind() != "softmax")
    mixers.push_back(nn::make_mixer("softmax", attention.shape().layout, {}));
  std::vector<LayerBenchRow> rows;
  for (const int64_t length : config.lengths) {
    const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(20261);
    const at::Tensor x = at::randn({1, length, model.config().hidden_size}, generator, at::kFloat);
    for (const auto& mixer : mixers) {
      if (mixer != own && length > config.max_softmax_length) continue;
      attention.set_mixer(mixer);
      const Contender layer = {mixer->kind(), [&] { model.forward_layer(config.layer, x); }};
      LayerBenchRow row{mixer->kind(), length, 0, -1};
      row.seconds = median_seconds({layer}, config.rounds, 0.02).front();
      row.peak_bytes = peak_bytes(layer.run);
      rows.push_back(row);
      report(row);
    }
  }
  attention.set_mixer(own);
  return rows;
}

}  // namespace hedgerow::bench
