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

// What both kinds of step have.
template <typename Forward, typename Step>
void as_one_token(Forward& f, const Step& p) {
  f.dtype = p.dtype;
  f.is_causal = true;
  f.batch = p.batch;
  f.heads = p.heads;
  f.kv_heads = p.kv_heads;
  f.queries = f.keys = 1;
  f.value_dim = p.value_dim;
  f.v = p.v;
  f.s_in = f.s_out = p.s;
  f.z_in = f.z_out = p.z;
  f.out = p.out;
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

LinearForward as_forward(const LinearStep& p) {
  LinearForward f;
  as_one_token(f, p);
  f.features = p.features;
  f.phi_q = p.phi_q;
  f.phi_k = p.phi_k;
  return f;
}

HedgehogForward as_forward(const HedgehogStep& p) {
  HedgehogForward f;
  as_one_token(f, p);
  f.map = p.map;
  f.dim = p.dim;
  f.width = p.width;
  f.q = p.q;
  f.k = p.k;
  f.wq = p.wq;
  f.wk = p.wk;
  f.bq = p.bq;
  f.bk = p.bk;
  if (p.map == FeatureMap::kExp) f.m_in = f.m_out = p.m;
  return f;
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
