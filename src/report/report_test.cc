// Escaping, the rules of run folders and the page that comes of one.
#include "report/report.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>

#include "base/atomic_file.h"
#include "hedgerow/error.h"
#include "report/escape.h"

namespace hedgerow::report {
namespace {

namespace fs = std::filesystem;

const char kSummary[] = R"({"format":1,"kind":"hedgehog","model":{"name":"m","layers":2,"heads":3},
  "after":{"embedding_cosine":0.98,"kl":{"128":0.2}},"seconds":{"distil":1.5},"versions":{"x":"1"}})";

// 2 layers of 3 heads, 2 x 2: 24 bytes are 32 characters.
const char kWeights[] = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

std::string maps_json(const std::string& size = "2", const std::string& teacher = kWeights) {
  return R"({"scale":"sqrt","sentences":[{"text":"a b","tokens":["a","b"],"size":)" + size +
         R"(,"bin":1,"teacher":")" + teacher + R"(","model":")" + kWeights + R"("}]})";
}

class RunFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              concat("hedgerow-report-", ::getpid(), "-",
                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void put(const std::string& name, std::string_view text) {
    write_file_atomically((folder_ / name).string(), text);
  }

  // The message of the Error that reading the folder throws; empty when it throws none.
  std::string fault() {
    try {
      read_run_folder(folder_.string());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  void expect_fault(const std::string& name, std::string_view text,
                    const std::vector<std::string>& parts) {
    put(name, text);
    const std::string message = fault();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_NE(message.find(name), std::string::npos) << "the file is not named: " << message;
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }

  fs::path folder_;
};

TEST(Escape, HtmlEntities) {
  EXPECT_EQ(escape_html("<b a=\"1\" c='2'>&amp;</b>"),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;&lt;/b&gt;");
  EXPECT_EQ(escape_html("\xd7\xa9 \xf0\x9f\x8c\xbf"), "\xd7\xa9 \xf0\x9f\x8c\xbf");
  EXPECT_EQ(escape_html(""), "");
}

TEST(Escape, JsonKeepsItsValueAndHasNoMarkup) {
  const std::string text =
      "</script><!-- & \xe2\x80\xa8\xe2\x80\xa9 \xe2\x80\xaa ']]>\"\\ \xf0\x9f\x8c\xbf";
  const Json value = {{"t</script>", text}};
  const std::string escaped = escape_json_for_script(value.dump());
  for (const char* forbidden : {"<", ">", "&", "\xe2\x80\xa8", "\xe2\x80\xa9"})
    EXPECT_EQ(escaped.find(forbidden), std::string::npos) << forbidden;
  EXPECT_EQ(Json::parse(escaped), value);
}

TEST_F(RunFolderTest, EveryFileIsOptionalButOneMustExist) {
  EXPECT_NE(fault().find("none of them"), std::string::npos);
  put("summary.json", kSummary);
  const RunFolder run = read_run_folder(folder_.string());
  EXPECT_EQ(run.missing, (std::vector<std::string>{"metrics.jsonl", "analysis.json", "maps.json",
                                                   "bench.json"}));
  EXPECT_TRUE(run.data["bench"].is_null());
  EXPECT_EQ(run.data["summary"]["kind"], "hedgehog");
}

TEST_F(RunFolderTest, MissingFolderIsNamed) {
  const std::string path = (folder_ / "nowhere").string();
  try {
    write_report(path);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
  }
}

TEST_F(RunFolderTest, SummaryRules) {
  expect_fault("summary.json", "{", {"JSON"});
  expect_fault("summary.json", "", {"JSON"});
  expect_fault("summary.json", "{\"format\":1,\"kind\":\"\xff\"}", {"UTF-8"});
  expect_fault("summary.json", "[1]", {"must be an object", "a list of 1"});
  expect_fault("summary.json", R"({"format":2})", {"`format` must be 1", "got 2"});
  expect_fault("summary.json", R"({"format":1,"kind":3})", {"`kind` must be a string"});
  expect_fault("summary.json", R"({"format":1,"model":{"layers":0}})", {"`model.layers`"});
  expect_fault("summary.json", R"({"format":1,"after":{"kl":{"128":"low"}}})",
               {"`after.kl.128` must be a number"});
  expect_fault("summary.json", R"({"format":1,"seconds":{"distil":[]}})", {"`seconds.distil`"});
}

TEST_F(RunFolderTest, MetricsRules) {
  expect_fault("metrics.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":}\n", {"line 2", "JSON"});
  expect_fault("metrics.jsonl", "{\"loss\":2}\n", {"line 1", "`step` must be a number", "null"});
  expect_fault("metrics.jsonl", "{\"step\":1,\"lr\":\"fast\"}\n", {"line 1", "`lr`"});
  put("metrics.jsonl", "{\"step\":1,\"loss\":2,\"stage\":\"distil\"}\n\n{\"step\":2,\"lo");
  const RunFolder run = read_run_folder(folder_.string());
  ASSERT_EQ(run.data["metrics"].size(), 1u) << "a line that is still being written is left out";
  EXPECT_EQ(run.data["metrics"][0]["stage"], "distil");
  EXPECT_EQ(run.data["metrics"][0]["split"], "train");
}

TEST_F(RunFolderTest, LongCurvesKeepTheirEnds) {
  std::string lines;
  const int64_t num_steps = 3 * kMaxCurvePoints + 1;
  for (int64_t step = 1; step <= num_steps; ++step)
    lines += concat("{\"step\":", step, ",\"loss\":1.0}\n");
  put("metrics.jsonl", lines);
  const Json metrics = read_run_folder(folder_.string()).data["metrics"];
  EXPECT_LE(static_cast<int64_t>(metrics.size()), kMaxCurvePoints + 1);
  EXPECT_GE(static_cast<int64_t>(metrics.size()), kMaxCurvePoints / 2);
  EXPECT_EQ(metrics.front()["step"], 1);
  EXPECT_EQ(metrics.back()["step"], num_steps);
}

TEST_F(RunFolderTest, HeadValuesRules) {
  const auto line = [](int64_t step, const std::string& stage, const std::string& values) {
    return concat("{\"step\":", step, ",\"stage\":\"", stage, "\",\"head_values\":{", values,
                  "}}\n");
  };
  expect_fault("head_values.jsonl", "{\"step\":1}\n",
               {"line 1", "`head_values` must be an object"});
  expect_fault("head_values.jsonl", "{\"head_values\":{}}\n", {"line 1", "`step`"});
  expect_fault("head_values.jsonl", line(0, "a", R"("alpha":[[1,"x"]])"),
               {"line 1", "`head_values.alpha[0][1]`"});
  expect_fault("head_values.jsonl",
               line(0, "a", R"("alpha":[[1,2],[3]])") + line(1, "a", R"("gain":[[1,2],[3,4]])"),
               {"line 2", "`head_values.gain`", "layers and heads"});
  put("head_values.jsonl", line(0, "distil", R"("alpha":[[1],[null]],"gain":[[2],[2]])") +
                               line(4, "recover", R"("alpha":[[1.5],[null]])") + "{\"step\":8,");
  const Json values = read_run_folder(folder_.string()).data["head_values"];
  ASSERT_EQ(values.size(), 2u) << "a line that is still being written is left out";
  EXPECT_EQ(values[0]["head_values"], Json::parse(R"({"alpha":[[1],[null]],"gain":[[2],[2]]})"));
  EXPECT_EQ(values[1]["head_values"], Json::parse(R"({"alpha":[[1.5],[null]],"gain":[[2],[2]]})"))
      << "what has not moved since the line before";

  std::string lines;
  for (int64_t step = 0; step <= 2 * kMaxHeadValuePoints; ++step)
    lines += line(step, "train", concat("\"alpha\":[[", step, "]]"));
  put("head_values.jsonl", lines);
  const Json thin = read_run_folder(folder_.string()).data["head_values"];
  EXPECT_LE(static_cast<int64_t>(thin.size()), kMaxHeadValuePoints + 1);
  EXPECT_EQ(thin.front()["step"], 0);
  EXPECT_EQ(thin.back()["step"], 2 * kMaxHeadValuePoints);
  put("heads.json", R"({"format":1})");
  EXPECT_TRUE(read_run_folder(folder_.string()).is_analysis()) << "analyze copies the log";
}

TEST_F(RunFolderTest, AnalysisRules) {
  expect_fault("analysis.json", R"({"kl":{"before":[[1,2],[3,4]],"after":[[1,2],[3]]}})",
               {"`kl.after`", "layers and heads"});
  expect_fault("analysis.json", R"({"kl":{"before":[[1,"x"]]}})", {"`kl.before[0][1]`"});
  expect_fault("analysis.json",
               R"({"embedding":{"cosine_histogram":{"edges":[0,1,1],"after":[1,2]}}})",
               {"edges[2]", "larger"});
  expect_fault("analysis.json",
               R"({"embedding":{"cosine_histogram":{"edges":[0,1],"after":[1,2]}}})",
               {"after", "1 counts"});
  expect_fault("analysis.json",
               R"({"embedding":{"neighbour_examples":[{"query":"q","teacher":["a"]}]}})",
               {"[0].model"});
  put("analysis.json", R"({"kl":{"length":128,"before":[[1,null],[3]],"after":[[1,2],[0]]}})");
  EXPECT_EQ(fault(), "") << "layers may have different heads, figures may be null";
}

TEST_F(RunFolderTest, MapRules) {
  expect_fault("maps.json", maps_json(), {"`layers`"});
  put("summary.json", kSummary);
  put("maps.json", maps_json());
  const RunFolder run = read_run_folder(folder_.string());
  ASSERT_EQ(run.maps.size(), 1u);
  EXPECT_EQ(run.maps[0].teacher, kWeights);
  EXPECT_EQ(run.data["maps"]["heads"], (std::vector<int>{3, 3}));
  EXPECT_FALSE(run.data["maps"]["sentences"][0].contains("teacher"));

  expect_fault("maps.json", maps_json("3"), {"sentences[0].size", "got 3 for 2 tokens"});
  expect_fault("maps.json", maps_json("0"), {"sentences[0].size"});
  expect_fault("maps.json", maps_json("2", "AAEC"),
               {"sentences[0].teacher", "24 bytes", "32 characters", "got 4"});
  expect_fault("maps.json", maps_json("2", "AAECAwQFBgcICQoLDA0ODxAREhMUFRY<"),
               {"base64", "at 31"});
  expect_fault("maps.json", maps_json("2", "AAECAwQFBgcICQoLDA0ODxAREhMUFRY="), {"base64"});
  expect_fault("maps.json", R"({"scale":"cube","sentences":[]})", {"`scale`", "cube"});
  expect_fault(
      "maps.json",
      R"({"layers":1,"heads":1,"sentences":[{"text":"t","tokens":["a"],"size":513,"bin":1}]})",
      {"at most 512"});
}

TEST_F(RunFolderTest, MapsOfOneModel) {
  const std::string sentence = R"({"text":"a b","tokens":["a","b"],"size":2,"model":")";
  const std::string head = R"({"heads":[3,3],"zeros":"exact","sides":["model"],"sentences":[)";
  put("maps.json", head + sentence + kWeights + "\"}]}");
  const RunFolder run = read_run_folder(folder_.string());
  ASSERT_EQ(run.maps.size(), 1u);
  EXPECT_EQ(run.maps[0].model, kWeights);
  EXPECT_TRUE(run.maps[0].teacher.empty());
  EXPECT_FALSE(run.is_analysis()) << "maps alone are no analysis";
  expect_fault("maps.json", R"({"heads":[1],"sides":["teacher"],"sentences":[]})", {"`sides`"});
  expect_fault("maps.json", R"({"heads":[1],"zeros":true,"sentences":[]})", {"`zeros`", "true"});
}

TEST_F(RunFolderTest, HeadsRules) {
  put("heads.json",
      R"({"format":1,"model":{"name":"m<"},"density":[[1,0.5],[null]],"diversity":[0,null],
      "offsets":[-1,1],"at_offset":[[[0,1],[1]],[[0,0],[null]]],"head_values":{"alpha":[[1,2],[1.5]]},
      "positional_heads":[{"layer":1,"head":0,"offset":-1,"weight":1}],
      "density_histogram":{"edges":[0,0.5,1],"counts":[[1,2],[3,4]]}})");
  const RunFolder run = read_run_folder(folder_.string());
  EXPECT_TRUE(run.is_analysis());
  EXPECT_EQ(run.missing, (std::vector<std::string>{"maps.json"}));
  const std::string page = render_report(run);
  EXPECT_NE(page.find("Hedgerow analysis"), std::string::npos);
  EXPECT_NE(page.find("m&lt; "), std::string::npos) << "the title is the model's name";
  EXPECT_EQ(page.find("{{"), std::string::npos);
  put("summary.json", kSummary);
  EXPECT_FALSE(read_run_folder(folder_.string()).is_analysis());

  const auto with = [](const std::string& rest) {
    return R"({"format":1,"density":[[1,0.5],[0]],)" + rest + "}";
  };
  expect_fault("heads.json", "{}", {"`format` must be 1"});
  expect_fault("heads.json", with(R"("entropy":[[1],[1]])"), {"`entropy`", "neighbours"});
  expect_fault("heads.json", with(R"("entropy":[[1,"x"],[1]])"), {"`entropy[0][1]`"});
  expect_fault("heads.json", with(R"("head_values":{"alpha":[[1]]})"), {"`head_values.alpha`"});
  expect_fault("heads.json", with(R"("diversity":[1])"), {"`diversity`", "2 entries"});
  expect_fault("heads.json", with(R"("offsets":[1],"at_offset":[])"), {"`at_offset`"});
  expect_fault("heads.json", with(R"("offsets":[1.5],"at_offset":[[[1,1],[1]]])"), {"`offsets[]`"});
  expect_fault("heads.json", with(R"("positional_heads":[{"layer":1,"head":1}])"),
               {"`positional_heads[0]`", "must name a layer and a head"});
  expect_fault("heads.json", with(R"("density_histogram":{"edges":[0,1],"counts":[[1],[1,2]]})"),
               {"`density_histogram.counts[1]`", "1 counts"});
  expect_fault("heads.json", with(R"("density_histogram":{"edges":[1,0],"counts":[[1],[1]]})"),
               {"`density_histogram.edges[1]`"});
  expect_fault("heads.json", with(R"("model":{"mixers":[{"mixer":1}]})"), {"model.mixers"});
}

TEST_F(RunFolderTest, PagesHaveThePartsOfTheirFiles) {
  const auto sections = [&] {
    const std::string page = render_report(read_run_folder(folder_.string()));
    std::string found;
    for (const char* id : {"results", "glance", "dimension", "quality", "run"})
      if (page.find(concat("<section id=\"", id, "\"")) != std::string::npos)
        found += concat(id, " ");
    return found;
  };
  put("quality.json", R"({"format":1,"rows":[]})");
  EXPECT_FALSE(read_run_folder(folder_.string()).is_analysis());
  EXPECT_EQ(sections(), "quality run ");
  put("spectra.json", R"({"format":1,"model":{"name":"m&","layers":1},"n":4,"forms":{}})");
  EXPECT_TRUE(read_run_folder(folder_.string()).is_analysis());
  EXPECT_TRUE(read_run_folder(folder_.string()).missing.empty());
  EXPECT_EQ(sections(), "dimension quality run ");
  EXPECT_NE(render_report(read_run_folder(folder_.string())).find("<title>m&amp; "),
            std::string::npos);
  put("heads.json", R"({"format":1})");
  EXPECT_EQ(sections(), "glance dimension quality run ");
  put("summary.json", kSummary);
  EXPECT_FALSE(read_run_folder(folder_.string()).is_analysis());
  EXPECT_EQ(sections(), "results dimension quality run ");
  expect_fault("spectra.json", "{}", {"`format` must be 1"});
  fs::remove(folder_ / "spectra.json");
  expect_fault("quality.json", R"({"format":1,"rows":[{}]})", {"`rows[0].kind`"});
}

TEST_F(RunFolderTest, BenchRules) {
  expect_fault("bench.json", R"({"rows":[{"method":"sdpa","T":64,"ms":"1"}]})", {"`rows[0].ms`"});
  expect_fault("bench.json", R"({"rows":[{"method":"sdpa","ms":1}]})", {"`rows[0].T`"});
  expect_fault("bench.json", R"({})", {"`rows` must be a list"});
}

TEST_F(RunFolderTest, PageHoldsAllAndFetchesNothing) {
  put("summary.json",
      R"({"format":1,"model":{"name":"</title><script>alert(1)</script>","layers":2,"heads":3}})");
  put("maps.json", maps_json());
  const std::string path = write_report(folder_.string());
  EXPECT_EQ(path, (folder_ / "report.html").string());
  const std::string page = read_file(path);
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_NE(page.find("&lt;/title&gt;&lt;script&gt;alert(1)"), std::string::npos);
  EXPECT_NE(page.find(kWeights), std::string::npos);
  EXPECT_NE(page.find("Apache ECharts"), std::string::npos) << "the notice of the charts";
  EXPECT_NE(page.find("Apache License"), std::string::npos);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  for (const char* fetching :
       {"<link rel=\"stylesheet\"", "<script src", "@import", "url(http", "{{"})
    EXPECT_EQ(page.find(fetching), std::string::npos) << fetching;
}

TEST_F(RunFolderTest, PartialFolderAndOtherOutput) {
  const fs::path partial = folder_ / "out.partial";
  fs::create_directories(partial);
  write_file_atomically((partial / "summary.json").string(), kSummary);
  EXPECT_EQ(read_run_folder(partial.string() + "/").name, "out");
  const std::string page = (folder_ / "elsewhere.html").string();
  EXPECT_EQ(write_report(partial.string(), page), page);
  EXPECT_TRUE(fs::exists(page));
  EXPECT_FALSE(fs::exists(partial / "report.html"));
}

}  // namespace
}  // namespace hedgerow::report
