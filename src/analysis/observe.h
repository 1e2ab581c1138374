// Looking at every layer's heads during a forward pass.
#pragma once

#include <cstdint>
#include <functional>

#include "models/encoder.h"

namespace hedgerow::analysis {

// Observers on all attention layers of a model while the object lives.
class ObserveLayers {
 public:
  using Observer = std::function<void(int64_t layer, const nn::AttentionTrace&)>;
  ObserveLayers(models::Encoder& model, const Observer& observer) : model_(model) {
    for (int64_t layer = 0; layer < model.num_layers(); ++layer)
      model.attention(layer).set_observer(
          [observer, layer](const nn::AttentionTrace& trace) { observer(layer, trace); });
  }
  ~ObserveLayers() {
    for (int64_t layer = 0; layer < model_.num_layers(); ++layer)
      model_.attention(layer).set_observer({});
  }
  ObserveLayers(const ObserveLayers&) = delete;
  ObserveLayers& operator=(const ObserveLayers&) = delete;

 private:
  models::Encoder& model_;
};

}  // namespace hedgerow::analysis
