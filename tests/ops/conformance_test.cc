// Every registered hedgerow:: operator has all its parts and they agree with each other. A new
// operator that lacks a part, or a row in testing/operator_samples.h, fails here by itself.
#include <gtest/gtest.h>

#include "testing/operator_conformance.h"

namespace hedgerow::testing_support {
namespace {

const OperatorSamples* samples_of(const c10::OperatorName& name) {
  for (const OperatorSamples& row : operator_samples())
    if ("hedgerow::" + row.op == name.name) return &row;
  return nullptr;
}

c10::OperatorHandle handle(const c10::OperatorName& name) {
  return c10::Dispatcher::singleton().findOp(name).value();
}

void expect_none(const std::string& what, const Complaints& complaints) {
  for (const std::string& text : complaints) ADD_FAILURE() << what << ": " << text;
}

class Conformance : public ::testing::TestWithParam<c10::OperatorName> {};

TEST_P(Conformance, HasAllParts) {
  expect_none(GetParam().name, check_registration(handle(GetParam())));
  const OperatorSamples* row = samples_of(GetParam());
  ASSERT_NE(row, nullptr) << GetParam().name << " has no row in testing/operator_samples.h";
  EXPECT_FALSE(row->samples.empty());
}

TEST_P(Conformance, ImplementationsAgree) {
  const OperatorSamples* row = samples_of(GetParam());
  ASSERT_NE(row, nullptr);
  for (const Sample& sample : row->samples)
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16})
      for (const Sizes& sizes :
           {Sizes{}, Sizes{1, 2, 2, 1, 1, 4, 4, 4}, Sizes{1, 3, 1, 70, 67, 5, 3, 2}})
        expect_none(row->op + " " + sample.label + " " + c10::toString(dtype),
                    check_values(handle(GetParam()), *row, sample, sizes, dtype));
}

TEST_P(Conformance, SizesOfZero) {
  const OperatorSamples* row = samples_of(GetParam());
  ASSERT_NE(row, nullptr);
  Sizes no_batch, no_queries, no_keys, no_both;
  no_batch.B = 0;
  no_queries.T = 0;
  no_keys.S = 0;
  no_both.T = no_both.S = 0;
  for (const Sample& sample : row->samples)
    for (const Sizes& sizes : {no_batch, no_queries, no_keys, no_both})
      expect_none(row->op + " " + sample.label + " with a size of 0",
                  check_values(handle(GetParam()), *row, sample, sizes, at::kFloat));
}

TEST_P(Conformance, GradientsAgreeOrAreRefused) {
  const OperatorSamples* row = samples_of(GetParam());
  ASSERT_NE(row, nullptr);
  for (const Sample& sample : row->samples)
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat})
      expect_none(row->op + " " + sample.label + " " + c10::toString(dtype),
                  check_gradients(handle(GetParam()), *row, sample, dtype));
}

INSTANTIATE_TEST_SUITE_P(AllOperators, Conformance, ::testing::ValuesIn(registered_operators()),
                         [](const auto& info) {
                           return info.param.name.substr(std::string("hedgerow::").size());
                         });

TEST(OperatorSamples, EveryRowIsAnOperator) {
  for (const OperatorSamples& row : operator_samples())
    EXPECT_TRUE(c10::Dispatcher::singleton().findOp({"hedgerow::" + row.op, ""}).has_value())
        << row.op;
}

}  // namespace
}  // namespace hedgerow::testing_support
