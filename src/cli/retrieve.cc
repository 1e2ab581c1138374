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

struct Pairs {
  std::vector<std::string> queries, candidates;
};

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

// As many pairs as asked for, spread over the file; rows that are blank are none.
Pairs read_pairs(const RetrieveOptions& options) {
  const auto column = [&](int64_t number) {
    HEDGEROW_CHECK(number >= 1, "--columns: columns count from 1; got ", number);
    data::ReadOptions read = data::read_options(options.pairs, number);
    read.skip_blank = false;  // a row stays a row
    return data::read_texts(options.pairs, read);
  };
  const std::vector<std::string> first = column(options.columns[0]),
                                 second = column(options.columns[1]);
  std::vector<size_t> rows;
  for (size_t i = 0; i < first.size(); ++i) {
    const bool blank = is_blank(first[i]);
    HEDGEROW_CHECK(blank == is_blank(second[i]), options.pairs, ": line ", i + 1,
                   ": both columns must hold a text; got a blank column ",
                   options.columns[blank ? 0 : 1]);
    if (!blank) rows.push_back(i);
  }
  const size_t count = std::min(static_cast<size_t>(options.num_texts), rows.size());
  Pairs pairs;
  for (size_t i = 0; i < count; ++i) {
    pairs.queries.push_back(first[rows[i * rows.size() / count]]);
    pairs.candidates.push_back(second[rows[i * rows.size() / count]]);
  }
  return pairs;
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
  const auto [queries, candidates] = read_pairs(options);
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
