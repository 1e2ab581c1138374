#include "analysis/attention_maps.h"

#include <ATen/ATen.h>

#include "analysis/attention_stats.h"
#include "hedgerow/error.h"

namespace hedgerow::analysis {

AttentionMaps attention_maps(models::Encoder& model, const models::EncoderInput& input,
                             int64_t max_size, bool keep_zeros) {
  HEDGEROW_CHECK(
      input.input_ids.dim() == 2 && input.input_ids.size(0) == 1 && !input.attention_mask,
      "attention_maps: input must be one text without padding; got ", input.input_ids.sizes());
  const int64_t length = input.input_ids.size(1);
  HEDGEROW_CHECK(length > 0 && max_size > 0,
                 "attention_maps: the text and max_size must not be empty; got ", length,
                 " tokens and ", max_size);
  AttentionMaps maps;
  maps.bin = (length + max_size - 1) / max_size;
  maps.size = (length + maps.bin - 1) / maps.bin;
  visit_weights(model, input, [&](int64_t, const at::Tensor& weights) {
    at::Tensor picture = weights[0];  // [H,T,T]
    if (maps.bin > 1) {
      picture = at::max_pool2d(picture, {maps.bin, maps.bin}, {maps.bin, maps.bin}, {0, 0}, {1, 1},
                               /*ceil_mode=*/true);
    }
    at::Tensor steps = picture.clamp(0, 1).sqrt().mul(255).round();  // [H,size,size]
    if (keep_zeros) steps = at::where(picture > 0, steps.clamp_min(1), steps);
    const at::Tensor bytes = steps.to(at::kByte).contiguous();
    const uint8_t* data = bytes.const_data_ptr<uint8_t>();
    maps.bytes.insert(maps.bytes.end(), data, data + bytes.numel());
  });
  return maps;
}

std::string base64(const std::vector<uint8_t>& bytes) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t have = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = uint32_t{bytes[i]} << 16;
    if (have > 1) group |= uint32_t{bytes[i + 1]} << 8;
    if (have > 2) group |= bytes[i + 2];
    for (size_t j = 0; j < 4; ++j) out += j <= have ? kAlphabet[(group >> (18 - 6 * j)) & 63] : '=';
  }
  return out;
}

}  // namespace hedgerow::analysis
