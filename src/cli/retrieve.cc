// hedgerow retrieve: how often a text finds its other version among many, for one model or several.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "analysis/embeddings.h"
#include "base/timer.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "convert/corpus.h"
#include "data/text.h"
#include "hedgerow/error.h"
#include "train/progress.h"

namespace hedgerow::cli {
namespace {

struct RetrieveOptions {
  std::vector<std::string> models;
  std::string pairs;
  std::vector<int64_t> columns = {1, 2};
  int64_t num_texts = 2000;
};

// As many texts of a column as asked for, spread over the file.
std::vector<std::string> read_column(const RetrieveOptions& options, int64_t column) {
  data::ReadOptions read = data::read_options(options.pairs, column);
  read.skip_blank = false;  // a row stays a row
  const std::vector<std::string> all = data::read_texts(options.pairs, read);
  const auto have = static_cast<int64_t>(all.size());
  const int64_t count = std::min(options.num_texts, have);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < count; ++i) texts.push_back(all[i * have / count]);
  return texts;
}

std::vector<data::Sequence> encode(const models::LoadedModel& model,
                                   const std::vector<std::string>& texts) {
  const convert::TextEncoder encoder(model.folder);
  std::vector<data::Sequence> out;
  for (const std::string& text : texts)
    out.push_back(encoder.wrap(encoder.body(text), model.max_tokens()));
  return out;
}

// Embeddings with the time that they took.
at::Tensor embed(const models::LoadedModel& model, const std::vector<data::Sequence>& texts,
                 bool quiet, double& seconds) {
  train::Progress progress(model.folder, static_cast<int64_t>(texts.size()), quiet);
  const Timer timer;
  const at::Tensor rows = analysis::embed_texts(
      model, texts, [&](int64_t done) { progress.update(done, "texts embedded"); });
  seconds += timer.seconds();
  return rows;
}

formats::Json measure(const std::string& folder, const RetrieveOptions& options,
                      const std::vector<std::string>& queries,
                      const std::vector<std::string>& candidates, const CommonOptions& common) {
  const models::LoadedModel model = load_model(folder, common);
  HEDGEROW_CHECK(model.pooling.refused.empty(), folder, ": ", model.pooling.refused);
  double seconds = 0;
  const bool quiet = common.quiet || common.json;
  const at::Tensor a = embed(model, encode(model, queries), quiet, seconds);
  const at::Tensor b = embed(model, encode(model, candidates), quiet, seconds);
  const std::vector<int64_t> ranks = analysis::pair_ranks(a, b);
  double found = 0, reciprocal = 0;
  for (const int64_t rank : ranks) {
    found += rank == 0;
    reciprocal += 1.0 / static_cast<double>(rank + 1);
  }
  const double count = static_cast<double>(ranks.size());
  return {{"model", folder},
          {"accuracy", found / count},
          {"mean_reciprocal_rank", reciprocal / count},
          {"seconds", seconds}};
}

int run(const CommonOptions& common, const RetrieveOptions& options) {
  HEDGEROW_CHECK(options.columns.size() == 2, "--columns: must name two columns; got ",
                 options.columns.size());
  HEDGEROW_CHECK(options.num_texts >= 2, "--texts: must be at least 2; got ", options.num_texts);
  const std::vector<std::string> queries = read_column(options, options.columns[0]);
  const std::vector<std::string> candidates = read_column(options, options.columns[1]);
  HEDGEROW_CHECK(queries.size() >= 2, options.pairs, ": must have at least 2 rows; got ",
                 queries.size());
  formats::Json rows = formats::Json::array();
  if (!common.json)
    std::printf("a text finds its pair among %zu\naccuracy    kept  seconds  model\n",
                queries.size());
  for (const std::string& folder : options.models) {
    formats::Json row = measure(folder, options, queries, candidates, common);
    const double accuracy = row.at("accuracy").get<double>();
    const double first = rows.empty() ? accuracy : rows.front().at("accuracy").get<double>();
    row["kept"] = first > 0 ? formats::Json(accuracy / first) : formats::Json();
    if (!common.json) {
      std::printf("%8.4f %7.3f %8.1f  %s\n", accuracy, first > 0 ? accuracy / first : std::nan(""),
                  row.at("seconds").get<double>(), folder.c_str());
      std::fflush(stdout);
    }
    rows.push_back(row);
  }
  if (common.json) {
    const formats::Json result = {{"texts", queries.size()}, {"models", rows}};
    std::printf("%s\n", formats::dump_json(result).c_str());
  }
  return 0;
}

}  // namespace

RunCommand add_retrieve(CLI::App& command) {
  auto options = std::make_shared<RetrieveOptions>();
  command
      .add_option("models", options->models, "model folders; the others are measured by the first")
      ->required()
      ->type_name("MODEL");
  command.add_option("--pairs", options->pairs, "two versions of each text, .tsv")
      ->required()
      ->type_name("FILE");
  command
      .add_option("--columns", options->columns,
                  "the column that asks and the column that is found, from 1")
      ->delimiter(',')
      ->expected(2)
      ->capture_default_str();
  command.add_option("--texts", options->num_texts, "rows, spread over the file")
      ->capture_default_str();
  return [options](const CommonOptions& common) { return run(common, *options); };
}

}  // namespace hedgerow::cli
