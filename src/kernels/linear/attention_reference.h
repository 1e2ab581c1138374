// The attention of one head over features (or, for kExp, over their exponents) in double: what the
// linear and the Hedgehog references share.
#pragma once

#include <cstdint>
#include <vector>

namespace hedgerow::kernels::reference {

// One query head with its key/value head. With `exponents`, q and k hold the signed y of which the
// features are exp(q), exp(k), and the state is relative to exp(m0).
struct HeadProblem {
  bool exponents = false;
  bool is_causal = false;
  int64_t queries = 0, keys = 0, features = 0, value_dim = 0;
  const double* q = nullptr;   // [T,F]
  const double* k = nullptr;   // [S,F]; rows of removed keys are not read
  const double* v = nullptr;   // [S,Dv]; likewise
  const char* keep = nullptr;  // [S]
  const double* s0 = nullptr;  // [F,Dv]
  const double* z0 = nullptr;  // [F]
  const double* m0 = nullptr;  // [F]

  // Query t sees the kept keys s < visible(t).
  int64_t visible(int64_t t) const;
  // The state's feature f has seen a key.
  bool has_state(int64_t f) const;
};

struct HeadRows {
  std::vector<double> out;           // [T,Dv]
  std::vector<double> den, maximum;  // [T]; the normaliser is den * exp(maximum)
};
HeadRows head_forward(const HeadProblem& p);

// State after all keys; s, z, m in and out [F,Dv], [F], [F].
void head_state(const HeadProblem& p, double* s, double* z, double* m);

// Adds to the gradients: of the features, or with `exponents` of the exponents.
struct HeadGradients {
  double* q = nullptr;   // [T,F]
  double* k = nullptr;   // [S,F]
  double* v = nullptr;   // [S,Dv]
  double* s0 = nullptr;  // [F,Dv]
  double* z0 = nullptr;  // [F]
};
void head_backward(const HeadProblem& p, const double* grad_out, const HeadGradients& g);

// The same for the gradients of the final state, gs [F,Dv] and gz [F], relative to exp(m).
void head_state_backward(const HeadProblem& p, const double* m, const double* gs, const double* gz,
                         const HeadGradients& g);

}  // namespace hedgerow::kernels::reference
