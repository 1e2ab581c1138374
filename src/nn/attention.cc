#include "nn/attention.h"

#include "hedgerow/error.h"

namespace hedgerow::nn {
namespace {

constexpr const char* kMixerName = "hedgerow";  // names its tensors in checkpoints

// [B,N,heads*width] -> [B,heads,N,width], a view.
at::Tensor split_heads(const at::Tensor& x, int64_t heads, int64_t width) {
  return x.view({x.size(0), x.size(1), heads, width}).transpose(1, 2);
}

// Projects when a mixer asks, and all positions at most once.
class HeadProjector : public Projector {
 public:
  HeadProjector(Attention& attention, const at::Tensor& x, const at::Tensor& m)
      : attention_(attention), x_(x), m_(m) {}

  at::Tensor queries() const override {
    const HeadLayout& heads = attention_.shape().layout;
    if (!q_.defined()) {
      q_ = split_heads(attention_.query().forward(x_), heads.key_heads, heads.head_dim);
    }
    return q_;
  }

  at::Tensor keys(const std::optional<at::Tensor>& positions) const override {
    const HeadLayout& heads = attention_.shape().layout;
    return project(attention_.key(), heads.kv_heads, heads.head_dim, positions, k_);
  }

  at::Tensor values(const std::optional<at::Tensor>& positions) const override {
    const HeadLayout& heads = attention_.shape().layout;
    return project(attention_.value(), heads.value_kv_heads(), heads.value_dim, positions, v_);
  }

 private:
  at::Tensor project(Linear& linear, int64_t heads, int64_t width,
                     const std::optional<at::Tensor>& positions, at::Tensor& all) const {
    if (positions) {
      if (all.defined()) return all.index_select(2, *positions);
      return split_heads(linear.forward(m_.index_select(1, *positions)), heads, width);
    }
    if (!all.defined()) all = split_heads(linear.forward(m_), heads, width);
    return all;
  }

  Attention& attention_;
  const at::Tensor& x_;
  const at::Tensor& m_;
  mutable at::Tensor q_, k_, v_;
};

}  // namespace

Attention::Attention(const AttentionShape& shape, std::shared_ptr<Mixer> mixer) : shape_(shape) {
  make_projections();
  set_mixer(std::move(mixer));
}

// Those that are not there in the right size.
void Attention::make_projections() {
  const HeadLayout& heads = shape_.layout;
  const auto make = [&](std::shared_ptr<Linear>& linear, const char* name, int64_t in,
                        int64_t out) {
    if (linear && linear->weight.size(0) == out && linear->weight.size(1) == in) return;
    if (linear) unregister_module(name);
    linear = register_module(name, std::make_shared<Linear>(in, out, shape_.bias));
  };
  make(query_, "query", shape_.model_dim, heads.key_heads * heads.head_dim);
  make(key_, "key", shape_.memory_dim, heads.kv_heads * heads.head_dim);
  make(value_, "value", shape_.memory_dim, heads.value_kv_heads() * heads.value_dim);
  make(output_, "output", heads.value_heads * heads.value_dim, shape_.model_dim);
}

void Attention::set_mixer_and_projections(std::shared_ptr<Mixer> mixer) {
  const int64_t model_dim = shape_.layout.model_dim;
  shape_.layout = mixer->layout();
  shape_.layout.model_dim = model_dim;
  make_projections();
  set_mixer(std::move(mixer));
}

void Attention::set_mixer(std::shared_ptr<Mixer> mixer) {
  const HeadLayout& ours = shape_.layout;
  const HeadLayout& its = mixer->layout();
  HEDGEROW_CHECK(its == ours, "attention: the mixer's heads must be the projections'; got ",
                 its.key_heads, "/", its.kv_heads, "/", its.heads, "/", its.value_heads, " of ",
                 its.head_dim, " and ", its.value_dim, " for ", ours.key_heads, "/", ours.kv_heads,
                 "/", ours.heads, "/", ours.value_heads, " of ", ours.head_dim, " and ",
                 ours.value_dim);
  if (mixer_) unregister_module(kMixerName);
  mixer->train(is_training());
  mixer_ = register_module(kMixerName, std::move(mixer));
}

at::Tensor Attention::forward(const at::Tensor& x, const at::Tensor& m, const AttentionMask& mask) {
  const HeadProjector project(*this, x, m);
  if (observer_) observer_({project.queries(), project.keys({}), project.values({}), mask, x, m});
  const at::Tensor mixed = mixer_->mix({x, m, project, mask});  // [B,Hv,T,Dv]
  return output_->forward(mixed.transpose(1, 2).flatten(2));
}

}  // namespace hedgerow::nn
