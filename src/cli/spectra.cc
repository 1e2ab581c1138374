#include "cli/spectra.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "analysis/score_report.h"
#include "base/atomic_file.h"
#include "base/interrupt.h"
#include "base/timer.h"
#include "cli/model_options.h"
#include "cli/typed_command.h"
#include "convert/corpus.h"
#include "convert/out_folder.h"
#include "data/md5.h"
#include "data/text.h"
#include "formats/checkpoint.h"
#include "hedgerow/error.h"
#include "hedgerow/version.h"
#include "report/report.h"
#include "train/checkpoint.h"
#include "train/progress.h"

namespace hedgerow::cli {
namespace {

using formats::Json;

constexpr int64_t kWindowsPerPass = 8, kParts = 4;
constexpr double kSecondsBetweenSaves = 30;
constexpr double kMiB = 1024.0 * 1024;

// Query positions are looked at by themselves with the greatest of --positions up to this.
constexpr int64_t kQueryPositions = 16;

constexpr int64_t kPairs = 64;  // of whole matrices

void check_options(const SpectraOptions& o) {
  HEDGEROW_CHECK(o.length >= 2, "--n: must be at least 2; got ", o.length);
  HEDGEROW_CHECK(o.num_windows >= 1, "--windows: must be at least 1; got ", o.num_windows);
  HEDGEROW_CHECK(!o.positions.empty(), "--positions: must name at least one number; got none");
  for (const int64_t p : o.positions)
    HEDGEROW_CHECK(p >= 1 && p <= o.length, "--positions: must be in [1, ", o.length,
                   "], the length; got ", p);
  HEDGEROW_CHECK(o.matrix_rank >= 0 && o.matrix_rank <= o.length * o.length,
                 "--matrices: must be in [0, ", o.length * o.length, "]; got ", o.matrix_rank);
  HEDGEROW_CHECK(!o.force || !o.out.empty(), "--force: needs --out; got none");
  HEDGEROW_CHECK(!o.resume || !o.out.empty(), "--resume: needs --out; got none");
}

// [B,n] passes of windows of running text, spread over the file.
std::vector<at::Tensor> passes(const std::vector<std::string>& texts, const std::string& model,
                               const SpectraOptions& options) {
  const convert::TextEncoder encoder(model);
  std::vector<std::vector<int64_t>> bodies;
  for (const std::string& text : texts) {
    check_interrupt();
    bodies.push_back(encoder.body(text));
  }
  data::WindowOptions window;
  window.window = options.length;
  window.prefix = encoder.special().prefix;
  window.suffix = encoder.special().suffix;
  const std::vector<data::Sequence> all = data::pack_windows(bodies, window);
  const auto have = static_cast<int64_t>(all.size());
  const int64_t count = std::min(options.num_windows, have);
  std::vector<at::Tensor> out;
  for (int64_t begin = 0; begin < count; begin += kWindowsPerPass) {
    std::vector<at::Tensor> rows;
    for (int64_t i = begin; i < std::min(count, begin + kWindowsPerPass); ++i)
      rows.push_back(at::tensor(all[i * have / count].ids, at::kLong));
    out.push_back(at::stack(rows));
  }
  return out;
}

struct Texts {
  std::vector<std::string> texts;
  std::string digest;  // of the file; "" where no run could be resumed
};

Texts read_texts(const SpectraOptions& options) {
  Texts out{data::read_texts(options.data, data::read_options(options.data, options.column)), ""};
  if (!options.out.empty()) out.digest = data::hex_md5(read_file(options.data));
  return out;
}

// A model and what it reads of the texts.
struct Source {
  models::LoadedModel model;
  std::vector<at::Tensor> passes;
  std::string digest;  // of the text and the weights; "" where no run could be resumed
};

Source read_source(const Texts& texts, const SpectraOptions& options, const CommonOptions& common,
                   bool against) {
  const std::string& folder = against ? options.against : options.model;
  Source source{load_model(folder, common), {}, ""};
  const int64_t most = source.model.encoder->max_tokens();
  HEDGEROW_CHECK(options.length <= most, "--n: must be at most the ", against ? "" : "model's ",
                 most, " positions", against ? " of --against" : "", "; got ", options.length);
  source.passes = passes(texts.texts, folder, options);
  if (options.out.empty()) return source;
  source.digest = concat("data ", texts.digest, " model");
  const formats::Checkpoint weights = formats::Checkpoint::open(folder);
  for (const std::string& file : weights.files())
    source.digest += " " + data::hex_md5(read_file(file));
  return source;
}

// Collects what the options ask for, from where an interrupted run of the same name was.
class Collection {
 public:
  Collection(const SpectraOptions& options, const CommonOptions& common,
             const convert::OutFolder* out, bool quiet)
      : options_(options), common_(common), out_(out), quiet_(quiet) {}

  analysis::ScoreCollector run(const std::string& name, const Source& source, bool by_query) {
    models::Encoder& model = *source.model.encoder;
    analysis::ScoreOptions wanted;
    wanted.length = options_.length;
    wanted.by_query = wanted.pool_heads = by_query;
    wanted.weights = !by_query;
    wanted.num_parts = kParts;
    wanted.matrix_rank = by_query ? 0 : options_.matrix_rank;
    for (int64_t layer = 0; layer < model.num_layers(); ++layer) wanted.layers.push_back(layer);
    analysis::ScoreCollector scores(model, wanted);
    if (!quiet_)
      std::fprintf(stderr, "%s: %.1f MiB of sums for %lld layers\n", name.c_str(),
                   static_cast<double>(analysis::ScoreCollector::bytes(model, wanted)) / kMiB,
                   static_cast<long long>(model.num_layers()));
    const std::string folder = out_ == nullptr ? "" : out_->file("training/") + name;
    // What sums of an interrupted run must be of.
    const std::string stage =
        concat(name, " n ", options_.length, " windows ", options_.num_windows, " matrices ",
               wanted.matrix_rank, " dtype ", common_.dtype, " ", source.digest);
    if (out_ != nullptr && train::has_checkpoint(folder)) {
      auto state = scores.state();
      for (auto& [key, value] : state) value = value.clone();
      train::load_checkpoint(folder, stage, state);
      scores.restore(state);
    }
    const auto total = static_cast<int64_t>(source.passes.size());
    train::Progress progress(name, total, quiet_, scores.num_passes());
    Timer since_save;
    const auto save = [&] {
      train::RunState state;
      state.stage = stage;
      state.step = scores.num_passes();
      train::save_checkpoint(folder, state, scores.state());
      since_save = Timer();
    };
    while (scores.num_passes() < total) {
      try {
        scores.add(source.passes[static_cast<size_t>(scores.num_passes())]);
      } catch (const Interrupted&) {
        if (out_ != nullptr) save();
        throw;
      }
      progress.update(scores.num_passes(), "passes of windows");
      if (out_ != nullptr && since_save.seconds() > kSecondsBetweenSaves) save();
    }
    if (out_ != nullptr && out_->state() == convert::OutFolder::State::resumed) save();
    return scores;
  }

 private:
  const SpectraOptions& options_;
  const CommonOptions& common_;
  const convert::OutFolder* out_;
  bool quiet_;
};

double at(const Json& list, size_t i) {
  return list.at(i).is_null() ? std::nan("") : list.at(i).get<double>();
}

void print(const Json& spectra, const SpectraOptions& options) {
  const Json& form = spectra.at("forms").at("scores");
  const int64_t count = options.positions.front();
  const Json& selection = spectra.at("selection").at("layers");
  std::printf("layer   90 %%   95 %%   99 %%   left with %lld: greedy   random    floor\n",
              static_cast<long long>(count));
  for (size_t layer = 0; layer < selection.size(); ++layer) {
    const Json& left = selection[layer].at("residual");
    const auto with = [&](const char* name) {
      const Json& curve = left.at(name);
      return at(curve, std::min<size_t>(static_cast<size_t>(count), curve.size() - 1));
    };
    std::printf("%5zu %6d %6d %6d %21.3f %8.3f %8.3f\n", layer + 1,
                form.at("k").at("0.9")[layer].get<int>(), form.at("k").at("0.95")[layer].get<int>(),
                form.at("k").at("0.99")[layer].get<int>(), with("greedy"), with("random"),
                with("floor"));
  }
  std::printf(
      "components that hold a share of the variance of rows of %lld scores; share left of "
      "it\n",
      static_cast<long long>(options.length));
}

// Reads everything before it claims the folder.
Json measure(const SpectraOptions& options, const CommonOptions& common, convert::OutFolder* out) {
  const bool quiet = common.quiet || common.json;
  const Texts texts = read_texts(options);
  const Source source = read_source(texts, options, common, /*against=*/false);
  Source other;
  if (!options.against.empty()) other = read_source(texts, options, common, /*against=*/true);
  models::Encoder& encoder = *source.model.encoder;
  int64_t of_queries = *std::min_element(options.positions.begin(), options.positions.end());
  for (const int64_t p : options.positions)
    if (p <= kQueryPositions) of_queries = std::max(of_queries, p);
  if (options.by_query) {
    int64_t windows = 0;
    for (const at::Tensor& pass : source.passes) windows += pass.size(0);
    const int64_t heads = encoder.attention(0).mixer().layout().key_heads;
    HEDGEROW_CHECK(windows * heads > of_queries, "--by-query: ", of_queries,
                   " positions of one query need more rows than positions; got ", windows,
                   " windows of ", heads, " heads from ", options.data);
  }
  if (out) {
    out->prepare();
    std::filesystem::create_directories(out->file("training"));
  }
  Collection collection(options, common, out, quiet);
  const analysis::ScoreCollector scores = collection.run("scores", source, false);
  const analysis::ScoreReportOptions report{options.positions, common.seed};
  Json spectra = {{"format", 1},
                  {"model", describe_model(options.model, encoder)},
                  {"data",
                   {{"file", std::filesystem::path(options.data).filename().string()},
                    {"windows", scores.num_windows()},
                    {"tokens", scores.num_windows() * options.length}}},
                  {"n", options.length}};
  spectra["forms"] = analysis::describe_spectra(scores, report);
  spectra["selection"] = analysis::describe_selection(scores, report);
  spectra["reconstruction"] = analysis::describe_reconstruction(scores, report);
  if (options.matrix_rank > 0) spectra["matrix"] = analysis::describe_matrices(scores, kPairs);
  if (options.by_query) {
    const analysis::ScoreCollector own = collection.run("queries", source, true);
    spectra["queries"] = analysis::describe_queries(scores, own, of_queries);
  }
  if (!options.against.empty()) {
    const analysis::ScoreCollector others = collection.run("against", other, false);
    spectra["against"] = {{"model", describe_model(options.against, *other.model.encoder)},
                          {"forms", analysis::describe_against(scores, others, report)}};
  }
  const nn::HeadLayout& heads = encoder.attention(0).mixer().layout();
  spectra["cost"] =
      analysis::describe_cost({options.length, options.length, heads.key_heads, heads.head_dim,
                               heads.value_dim, encoder.config().hidden_size},
                              options.positions);
  return spectra;
}

}  // namespace

int run_spectra(const CommonOptions& common, const SpectraOptions& options) {
  check_options(options);
  std::unique_ptr<convert::OutFolder> out;
  if (!options.out.empty()) {
    std::vector<std::string> inputs = {options.model, options.data};
    if (!options.against.empty()) inputs.push_back(options.against);
    out = std::make_unique<convert::OutFolder>(options.out, options.resume, options.force, inputs);
    HEDGEROW_CHECK(out->state() != convert::OutFolder::State::complete, "--resume: ", options.out,
                   " is the folder of a conversion");
  }
  const Timer timer;
  Json spectra = measure(options, common, out.get());
  if (out) {
    spectra["seconds"] = timer.seconds();
    spectra["command"] = typed_command();
    spectra["versions"] = {{"hedgerow", version()}, {"torch", TORCH_VERSION}};
    write_file_atomically(out->file("spectra.json"), formats::dump_json(spectra) + "\n");
    report::write_report(out->path());
    check_interrupt();
    out->finish();
  }
  if (common.json) {
    std::printf("%s\n", formats::dump_json(spectra).c_str());
  } else {
    if (!out || !common.quiet) print(spectra, options);
    if (out && !common.quiet) std::printf("written to %s\n", options.out.c_str());
  }
  return 0;
}

}  // namespace hedgerow::cli
