#include "kernels/linear/linear_internal.h"

#include <stdexcept>

namespace hedgerow::kernels::linear {
namespace {

// A thread keeps at most this many floats (16 MB) between calls.
constexpr int64_t kKeptFloats = int64_t{4} << 20;

thread_local AlignedBuffer<float> pool;

// The fields that have the same name and meaning in both.
template <typename To, typename From>
void copy_common(To& to, const From& p) {
  to.given = true;
  to.map = FeatureMap::kRelu;  // not read
  to.dtype = p.dtype;
  to.is_causal = p.is_causal;
  to.batch = p.batch;
  to.heads = p.heads;
  to.kv_heads = p.kv_heads;
  to.queries = p.queries;
  to.keys = p.keys;
  to.dim = to.width = p.features;
  to.value_dim = p.value_dim;
  to.q = p.phi_q;
  to.k = p.phi_k;
  to.v = p.v;
  to.key_mask = p.key_mask;
  to.s_in = p.s_in;
  to.z_in = p.z_in;
  to.inv_den = p.inv_den;
  to.out = p.out;
}

}  // namespace

ForwardCall as_call(const HedgehogForward& p) { return ForwardCall{p, false}; }
BackwardCall as_call(const HedgehogBackward& p) { return BackwardCall{p, false}; }

ForwardCall as_call(const LinearForward& p) {
  ForwardCall call;
  copy_common(call, p);
  call.s_out = p.s_out;
  call.z_out = p.z_out;
  return call;
}

BackwardCall as_call(const LinearBackward& p) {
  BackwardCall call;
  copy_common(call, p);
  call.grad_out = p.grad_out;
  call.grad_s_out = p.grad_s_out;
  call.grad_z_out = p.grad_z_out;
  call.grad_q = p.grad_phi_q;
  call.grad_k = p.grad_phi_k;
  call.grad_v = p.grad_v;
  call.grad_s_in = p.grad_s_in;
  call.grad_z_in = p.grad_z_in;
  return call;
}

Arena::Arena(int64_t floats) {
  if (pool.size() < floats) pool.resize(floats);
#ifdef HEDGEROW_POISON
  std::memset(pool.data(), 0xff, pool.size() * sizeof(float));
#endif
  next_ = pool.data();
  end_ = next_ + pool.size();
}

Arena::~Arena() {
  if (pool.size() > kKeptFloats) pool.resize(0);
}

float* Arena::take(int64_t floats) {
  float* p = next_;
  next_ += rounded(floats);
  if (next_ > end_) throw std::logic_error("linear attention: scratch is smaller than its parts");
  return p;
}

}  // namespace hedgerow::kernels::linear
