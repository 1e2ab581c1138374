#include "hedgerow/kernels/linear.h"

namespace hedgerow::kernels {
namespace {

constexpr std::string_view kNames[] = {"exp",  "softmax", "softmax_joint", "elu",
                                       "relu", "taylor",  "exp_half",      "performer"};

}  // namespace

std::string_view feature_map_name(FeatureMap map) { return kNames[static_cast<int>(map)]; }

std::optional<FeatureMap> find_feature_map(std::string_view name) {
  for (int i = 0; i < static_cast<int>(std::size(kNames)); i++) {
    if (kNames[i] == name) return static_cast<FeatureMap>(i);
  }
  return std::nullopt;
}

std::string feature_map_names() {
  std::string all;
  for (std::string_view name : kNames) {
    if (!all.empty()) all += ", ";
    all += name;
  }
  return all;
}

int64_t feature_width(FeatureMap map, int64_t width) {
  switch (map) {
    case FeatureMap::kExp:
    case FeatureMap::kSoftmax:
    case FeatureMap::kSoftmaxJoint:
      return 2 * width;
    case FeatureMap::kTaylor:
      return 1 + width + width * width;
    default:
      return width;
  }
}

}  // namespace hedgerow::kernels
