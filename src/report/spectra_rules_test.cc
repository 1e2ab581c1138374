// The rules of spectra.json and quality.json: each fault is named by its place.
#include "report/spectra_rules.h"

#include <gtest/gtest.h>

#include "hedgerow/error.h"
#include "report/quality_rules.h"

namespace hedgerow::report {
namespace {

// Two layers, three keys; every part that a file may have.
Json spectra() {
  return Json::parse(R"({"format":1,
    "model":{"name":"m","architecture":"bert","layers":2,"heads":2,"hidden":8},
    "data":{"file":"t.txt","windows":2,"tokens":6},"n":3,
    "forms":{"scores":{"eigenvalues":[[3,1,0],[2,null,0.5]],"shared_eigenvalues":[2,1,1],
      "k":{"0.9":[1,2],"0.99":[null,3]},"shared_k":{"0.9":2},"k_by_head":{"0.9":[[1,2],[3,null]]},
      "overlap":{"2":[[1,0.5],[0.5,1]]},"chance":{"2":0.67},"explained":{"2":[[1,0.4],[0.6,1]]}}},
    "against":{"model":{"name":"o","layers":3},
      "forms":{"scores":{"overlap":{"2":[[1,0,0],[0,1,null]]}}}},
    "selection":{"layers":[{"positions":{"greedy":[2,0]},"residual":{"greedy":[1,0.5,0.1],"floor":[1,0.4,0.1,0]}},
                           {"positions":{"greedy":[]},"residual":{}}],
                 "shared":{"positions":{"even":[0,2]}}},
    "reconstruction":[{"positions":2,"sharing":"layer","ridge":[[0.1],[0.2,null]],"heldout_residual":[[0.2],[null]]},
                      {"positions":2,"sharing":"model","ridge":null,"heldout_residual":[[0.3]]}],
    "queries":{"positions":2,"common":[0.3,0.2],"own":[0.2,null]},
    "matrix":{"samples":4,"rank":2,"eigenvalues":[[2,1],[1,1]],"total":[4,3],
      "pairs":[[[0,2],[1,1]],[]],"residual":[[1,0.5,0.2],[1]]},
    "cost":{"2":{"scores":0.8,"core":1.1,"layer":null}},
    "seconds":1.5,"command":"hedgerow analyze m","versions":{"hedgerow":"0"}})");
}

template <typename Check>
std::string fault(const Check& check, const Json& value, const char* file) {
  try {
    check(JsonRules(file), value);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The message for the file with one value put in a place, which is a JSON pointer.
std::string fault_with(const std::string& pointer, const std::string& value) {
  Json changed = spectra();
  changed[Json::json_pointer(pointer)] = Json::parse(value);
  return fault(check_spectra, changed, "spectra.json");
}

struct Fault {
  std::string pointer, value;
  std::vector<std::string> parts;  // of the message
};

TEST(SpectraRules, WholeAndLeastFilesAreRight) {
  EXPECT_EQ(fault(check_spectra, spectra(), "spectra.json"), "");
  const Json least = Json::parse(R"({"format":1,"model":{"layers":1},"n":1,"forms":{}})");
  EXPECT_EQ(fault(check_spectra, least, "spectra.json"), "");
}

TEST(SpectraRules, FaultsAreNamed) {
  const std::vector<Fault> faults = {
      {"/format", "2", {"`format` must be 1", "got 2"}},
      {"/format", "null", {"`format` must be 1"}},
      {"/model", "null", {"`model` must be an object"}},
      {"/model/layers", "null", {"`model.layers`"}},
      {"/model/layers", "3", {"`forms.scores.eigenvalues` must have 3 entries"}},
      {"/model/name", "5", {"`model.name` must be a string"}},
      {"/n", "0", {"`n`"}},
      {"/n", "4", {"`forms.scores.eigenvalues[0]` must have n entries, 4"}},
      {"/forms", "[]", {"`forms` must be an object"}},
      {"/forms/scores/eigenvalues", "[[3,1,0]]", {"must have 2 entries, one for each layer"}},
      {"/forms/scores/eigenvalues/1",
       "[2,3,0]",
       {"`forms.scores.eigenvalues[1][1]` must not be larger than the one before", "got 3"}},
      {"/forms/scores/eigenvalues/1/0", "\"x\"", {"`forms.scores.eigenvalues[1][0]`", "number"}},
      {"/forms/scores/shared_eigenvalues", "[1]", {"`forms.scores.shared_eigenvalues`"}},
      {"/forms/scores/k", "{\"90\":[1,2]}", {"`forms.scores.k.90`", "share between 0 and 1"}},
      {"/forms/scores/k/0.9", "[1]", {"`forms.scores.k.0.9` must have 2 entries"}},
      {"/forms/scores/shared_k/0.9", "[1]", {"`forms.scores.shared_k.0.9`"}},
      {"/forms/scores/k_by_head/0.9", "[[1,2]]", {"`forms.scores.k_by_head.0.9`", "2 entries"}},
      {"/forms/scores/overlap", "{\"two\":[]}", {"`forms.scores.overlap.two`", "integer"}},
      {"/forms/scores/overlap", "{\"4\":[]}", {"from 1 to n, 3"}},
      {"/forms/scores/overlap/2/1", "[1]", {"`forms.scores.overlap.2[1]` must have 2 entries"}},
      {"/forms/scores/explained/2", "[[1,1]]", {"`forms.scores.explained.2`"}},
      {"/forms/scores/chance/2", "\"low\"", {"`forms.scores.chance.2`"}},
      {"/against/model/layers", "2", {"`against.forms.scores.overlap.2[0]` must have 2 entries"}},
      {"/selection/layers", "[]", {"`selection.layers` must have 2 entries"}},
      {"/selection/shared/positions/even/1",
       "3",
       {"`selection.shared.positions.even[1]` must be a position from 0 to 2", "got 3"}},
      {"/selection/layers/0/positions/greedy/1",
       "2",
       {"`selection.layers[0].positions.greedy[1]` must not be chosen twice"}},
      {"/selection/layers/0/residual/greedy",
       "[1,1,1,1]",
       {"`selection.layers[0].residual.greedy` must have at most 3 entries"}},
      {"/selection/layers/0/residual/floor", "[1,1,1,1,1]", {"at most 4 entries"}},
      {"/reconstruction/0/heldout_residual",
       "[[1],[1],[1]]",
       {"`reconstruction[0].heldout_residual` must have 1 row or 2"}},
      {"/reconstruction/0/sharing", "null", {"`reconstruction[0].sharing`"}},
      {"/reconstruction/1/positions", "9", {"`reconstruction[1].positions` must be at most n, 3"}},
      {"/reconstruction/0/ridge/0", "\"small\"", {"`reconstruction[0].ridge[0]`"}},
      {"/reconstruction/0/ridge/1/0", "{}", {"`reconstruction[0].ridge[1][0]`"}},
      {"/queries/own", "[1]", {"`queries.own` must have 2 entries"}},
      {"/matrix/pairs/0/1", "[1,3]", {"`matrix.pairs[0][1]` must be a query and a key"}},
      {"/matrix/pairs/0/1", "[1]", {"`matrix.pairs[0][1]`"}},
      {"/matrix/residual/1", "[1,1]", {"`matrix.residual[1]` must have at most 1 entries"}},
      {"/matrix/rank", "1.5", {"`matrix.rank`"}},
      {"/matrix/total", "[1]", {"`matrix.total` must have 2 entries"}},
      {"/cost/2/layer", "\"all\"", {"`cost.2.layer`"}},
      {"/cost", "{\"0\":{}}", {"`cost.0`"}},
      {"/seconds", "\"long\"", {"`seconds`"}},
      {"/command", "[1]", {"`command[]` must be a string"}},
      {"/versions", "[]", {"`versions` must be an object"}},
  };
  for (const Fault& expected : faults) {
    const std::string message = fault_with(expected.pointer, expected.value);
    EXPECT_EQ(message.find("report: spectra.json: "), 0u) << expected.pointer << message;
    for (const std::string& part : expected.parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
}

TEST(QualityRules, FaultsAreNamed) {
  const auto fault_of = [](const std::string& text) {
    return fault(check_quality, Json::parse(text), "quality.json");
  };
  const auto row = [&](const std::string& rest) {
    return fault_of(R"({"format":1,"rows":[{"kind":"partial","positions":16)" + rest + "}]}");
  };
  EXPECT_EQ(row(""), "");
  EXPECT_EQ(row(R"(,"sharing":null,"r":"fixed","trained":"nothing","embedding_cosine":0.9,
                    "retrieval":null,"cost":{"scores":0.6,"layer":null},"seconds":{"exact":1})"),
            "");
  EXPECT_NE(fault_of(R"({"rows":[]})").find("`format` must be 1"), std::string::npos);
  EXPECT_NE(fault_of(R"({"format":1})").find("`rows` must be a list"), std::string::npos);
  EXPECT_NE(fault_of(R"({"format":1,"rows":[{"positions":1}]})").find("`rows[0].kind`"),
            std::string::npos);
  EXPECT_NE(fault_of(R"({"format":1,"rows":[{"kind":"partial"}]})").find("`rows[0].positions`"),
            std::string::npos);
  EXPECT_NE(row(R"(,"sharing":3)").find("`rows[0].sharing`"), std::string::npos);
  EXPECT_NE(row(R"(,"nn_agreement":"high")").find("`rows[0].nn_agreement`"), std::string::npos);
  EXPECT_NE(row(R"(,"cost":0.5)").find("`rows[0].cost` must be an object"), std::string::npos);
  EXPECT_NE(row(R"(,"seconds":{"this":"fast"})").find("`rows[0].seconds.this`"), std::string::npos);
}

}  // namespace
}  // namespace hedgerow::report
