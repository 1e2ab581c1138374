// A double that counts its multiplications: instantiates the loops of a reference to check a cost
// model.
#pragma once

#include <cmath>
#include <cstdint>

namespace hedgerow::testing_support {

struct OperationCounts {
  int64_t products = 0, scalings = 0, divisions = 0;
};

// Two Counted make a product; a Counted and a plain number (a constant of the call, such as
// 1 / sqrt(D) or the factor of dropout) make a scaling. Not safe between threads.
class Counted {
 public:
  // Since the last call.
  static OperationCounts take() {
    const OperationCounts taken = counts_;
    counts_ = {};
    return taken;
  }

  explicit Counted(double value) : value_(value) {}
  explicit operator double() const { return value_; }

  Counted& operator+=(Counted x) {
    value_ += x.value_;
    return *this;
  }
  Counted& operator/=(Counted x) {
    counts_.divisions++;
    value_ /= x.value_;
    return *this;
  }
  friend Counted operator+(Counted x, double y) { return Counted(x.value_ + y); }
  friend Counted operator-(Counted x, Counted y) { return Counted(x.value_ - y.value_); }
  friend Counted operator*(Counted x, Counted y) {
    counts_.products++;
    return Counted(x.value_ * y.value_);
  }
  friend Counted operator*(double x, Counted y) {
    counts_.scalings++;
    return Counted(x * y.value_);
  }
  friend Counted operator*(Counted x, double y) { return y * x; }
  friend bool operator<(Counted x, Counted y) { return x.value_ < y.value_; }
  friend Counted exp(Counted x) { return Counted(std::exp(x.value_)); }

 private:
  double value_;
  static inline OperationCounts counts_;
};

}  // namespace hedgerow::testing_support
