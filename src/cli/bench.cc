// hedgerow bench: speed and memory of every attention against scaled_dot_product_attention, or of
// one layer of a model against the same layer with softmax.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "bench/attention_speed.h"
#include "bench/layer_speed.h"
#include "bench/measure.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "hedgerow/error.h"
#include "hedgerow/version.h"

namespace hedgerow::cli {
namespace {

using nlohmann::ordered_json;

struct BenchOptions {
  std::string what;
  std::string model;
  std::string out;
  int64_t layer = 0;
  bool decode = false;
  bool no_memory = false;
  bench::AttentionBenchConfig config;
};

ordered_json as_json(const bench::AttentionBenchRow& row) {
  ordered_json j = {{"method", row.method},   {"mask", row.mask},   {"step", row.step},
                    {"T", row.length},        {"heads", row.heads}, {"head_dim", row.head_dim},
                    {"ms", row.seconds * 1e3}};
  if (row.sdpa_seconds) {
    j["sdpa_ms"] = *row.sdpa_seconds * 1e3;
    j["ratio"] = *row.ratio();
  }
  if (!row.alpha.empty()) j["alpha"] = row.alpha;
  if (row.positions > 0) j["positions"] = row.positions;
  if (row.exact_seconds) {
    j["exact_ms"] = *row.exact_seconds * 1e3;
    j["exact_ratio"] = *row.exact_ratio();
  }
  if (row.multiplications) {
    const metrics::AttentionShares& share = *row.multiplications;
    j["multiplications"] = {{"scores", share.scores}, {"core", share.core}, {"layer", share.layer}};
  }
  if (row.eager_seconds) j["eager_ms"] = *row.eager_seconds * 1e3;
  if (row.density) j["density"] = *row.density;
  j["gflops"] = row.gflops;
  j["percent_of_peak"] = row.percent_of_peak;
  j["error"] = row.error;
  if (row.peak_bytes >= 0) j["peak_bytes"] = row.peak_bytes;
  if (row.sdpa_peak_bytes >= 0) j["sdpa_peak_bytes"] = row.sdpa_peak_bytes;
  if (row.eager_peak_bytes >= 0) j["eager_peak_bytes"] = row.eager_peak_bytes;
  return j;
}

std::string fixed_text(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

void print_header() {
  std::printf("%-20s %-7s %-17s %7s %4s %10s %10s %7s %8s %7s %9s %9s\n", "method", "mask", "step",
              "T", "D", "ms", "sdpa ms", "ratio", "GFLOP/s", "% peak", "error", "peak MB");
}

void print_row(const bench::AttentionBenchRow& row) {
  std::string sdpa = "-", ratio = "-", memory = "-", note;
  if (!row.alpha.empty()) note += "  alpha " + row.alpha;
  if (row.positions > 0) note += "  " + std::to_string(row.positions) + " positions";
  if (row.exact_seconds)
    note += "  exact " + fixed_text(*row.exact_seconds * 1e3, 3) + " ms, ratio " +
            fixed_text(*row.exact_ratio(), 3);
  if (row.multiplications)
    note += "  multiplications: scores " + fixed_text(row.multiplications->scores, 2) + ", core " +
            fixed_text(row.multiplications->core, 2) + ", layer " +
            fixed_text(row.multiplications->layer, 2);
  if (row.density) note += "  density " + fixed_text(100 * *row.density, 2) + " %";
  if (row.eager_seconds) note += "  eager " + fixed_text(*row.eager_seconds * 1e3, 1) + " ms";
  if (row.sdpa_seconds) {
    sdpa = fixed_text(*row.sdpa_seconds * 1e3, 3);
    ratio = fixed_text(*row.ratio(), 3);
  }
  if (row.peak_bytes >= 0) memory = fixed_text(static_cast<double>(row.peak_bytes) / 1e6, 1);
  std::printf("%-20s %-7s %-17s %7lld %4lld %10.3f %10s %7s %8.1f %7.1f %9.1e %9s%s\n",
              row.method.c_str(), row.mask.c_str(), row.step.c_str(),
              static_cast<long long>(row.length), static_cast<long long>(row.head_dim),
              row.seconds * 1e3, sdpa.c_str(), ratio.c_str(), row.gflops, row.percent_of_peak,
              row.error, memory.c_str(), note.c_str());
  std::fflush(stdout);
}

void print_machine(const bench::Machine& machine) {
  std::printf("%s; SIMD %s; torch %s; %lld thread%s; peak %.0f GFLOP/s a core; ",
              machine.processor.c_str(), machine.simd_target.c_str(), machine.torch_version.c_str(),
              static_cast<long long>(machine.threads), machine.threads == 1 ? "" : "s",
              bench::fma_peak_flops() / 1e9);
}

ordered_json as_json(const bench::Machine& machine) {
  return {{"processor", machine.processor},
          {"simd_target", machine.simd_target},
          {"threads", machine.threads},
          {"torch", machine.torch_version},
          {"hedgerow", version()}};
}

void deliver(const CommonOptions& common, const BenchOptions& options,
             const ordered_json& document) {
  if (common.json) std::printf("%s\n", document.dump(1).c_str());
  if (!options.out.empty()) write_file_atomically(options.out, document.dump(1) + "\n");
}

int run_model(const CommonOptions& common, const BenchOptions& options) {
  HEDGEROW_CHECK(!options.model.empty(), "bench model: a model folder must follow; got none");
  HEDGEROW_CHECK(common.dtype == "float32", "--dtype: bench works in float32; got ", common.dtype);
  const models::LoadedModel model = load_model(options.model, common);
  bench::LayerBenchConfig config;
  config.layer = options.layer;
  config.rounds = options.config.rounds;
  config.max_softmax_length = options.config.max_sdpa_length;
  if (!options.config.lengths.empty()) config.lengths = options.config.lengths;
  const bool table = !common.json && !common.quiet;
  const bench::Machine machine = bench::machine();
  if (table) {
    print_machine(machine);
    std::printf("layer %lld of %s, one sequence\n%-14s %7s %10s %10s\n",
                static_cast<long long>(config.layer), options.model.c_str(), "mixer", "T", "ms",
                "peak MB");
  }
  ordered_json rows = ordered_json::array();
  bench::bench_layer(*model.encoder, config, [&](const bench::LayerBenchRow& row) {
    const double megabytes = static_cast<double>(row.peak_bytes) / 1e6;
    if (table)
      std::printf("%-14s %7lld %10.3f %10s\n", row.mixer.c_str(),
                  static_cast<long long>(row.length), row.seconds * 1e3,
                  row.peak_bytes < 0 ? "-" : fixed_text(megabytes, 1).c_str());
    std::fflush(stdout);
    rows.push_back({{"mixer", row.mixer},
                    {"T", row.length},
                    {"ms", row.seconds * 1e3},
                    {"peak_bytes", row.peak_bytes}});
  });
  deliver(common, options,
          {{"machine", as_json(machine)},
           {"layer", config.layer},
           {"rounds", config.rounds},
           {"rows", rows}});
  return 0;
}

int run_ops(const CommonOptions& common, const BenchOptions& options) {
  HEDGEROW_CHECK(options.model.empty(), "bench ops: takes no model; got ", options.model);
  bench::AttentionBenchConfig config = options.config;
  if (config.lengths.empty()) config.lengths = {512, 1024, 2048, 4096};
  config.memory = !options.no_memory;
  const bool table = !common.json && !common.quiet;
  const bench::Machine machine = bench::machine();
  if (table) {
    print_machine(machine);
    std::printf("B=%lld H=%lld\n", static_cast<long long>(config.batch),
                static_cast<long long>(config.heads));
    print_header();
  }
  ordered_json rows = ordered_json::array();
  bench::bench_attention(config, [&](const bench::AttentionBenchRow& row) {
    if (table) print_row(row);
    rows.push_back(as_json(row));
  });
  ordered_json document = {{"machine", as_json(machine)},
                           {"rounds", config.rounds},
                           {"best_of", config.best_of},
                           {"input_scale", config.input_scale},
                           {"rows", rows}};
  if (options.decode) {
    const bench::DecodeBenchRow d = bench::bench_decode(config);
    document["decode"] = {{"heads", d.heads},
                          {"head_dim", d.head_dim},
                          {"kernel_us", d.kernel_seconds * 1e6},
                          {"operator_us", d.operator_seconds * 1e6}};
    if (table)
      std::printf(
          "one token, %lld heads of %lld, state in place: kernel %.2f us, operator %.2f us\n",
          static_cast<long long>(d.heads), static_cast<long long>(d.head_dim),
          d.kernel_seconds * 1e6, d.operator_seconds * 1e6);
  }
  deliver(common, options, document);
  return 0;
}

int run(const CommonOptions& common, const BenchOptions& options) {
  return options.what == "model" ? run_model(common, options) : run_ops(common, options);
}

}  // namespace

RunCommand add_bench(CLI::App& command) {
  auto options = std::make_shared<BenchOptions>();
  bench::AttentionBenchConfig& c = options->config;
  command.add_option("what", options->what, "ops: the attention operators; model: a model's layer")
      ->required()
      ->check(CLI::IsMember({"ops", "model"}));
  command.add_option("model", options->model, "folder of the model whose layer is timed")
      ->type_name("MODEL");
  command.add_option("--layer", options->layer, "of the model")->capture_default_str();
  command
      .add_option(
          "--method", c.methods,
          "softmax, hedgehog, entmax, talking_heads, talking_heads_entmax, partial (or one of "
          "partial_all_keys, partial_selected, partial_layer), partial_by_query")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("--mask", c.masks, "dense, causal")->delimiter(',')->capture_default_str();
  command.add_option("--step", c.steps, "forward, forward+backward")
      ->delimiter(',')
      ->capture_default_str();
  c.lengths.clear();
  command
      .add_option("--length", c.lengths,
                  "sequence lengths T = S (ops: 512 to 4096; model: 512 to 16384)")
      ->delimiter(',');
  command.add_option("--batch", c.batch)->capture_default_str();
  command.add_option("--heads", c.heads)->capture_default_str();
  command.add_option("--head-dim", c.head_dim)->capture_default_str();
  command.add_option("--map", c.map, "feature map of hedgehog")
      ->check(CLI::IsMember({"exp"}))
      ->capture_default_str();
  command
      .add_option("--alpha", c.alphas,
                  "of entmax methods: numbers, or mix (1.2 to 1.9 over the heads)")
      ->delimiter(',')
      ->capture_default_str();
  command
      .add_option("--positions", c.positions,
                  "selected keys of partial methods; more than a row has keys are left out there")
      ->delimiter(',')
      ->capture_default_str();
  command
      .add_option("--max-eager-length", c.max_eager_length,
                  "longer rows leave out formulations from ATen operators")
      ->capture_default_str();
  command.add_option("--scale", c.input_scale, "factor on q and k")->capture_default_str();
  command.add_option("--rounds", c.rounds, "rounds per median")->capture_default_str();
  command
      .add_option("--best-of", c.best_of,
                  "measurements, of which the lowest ratio is kept (shared machines)")
      ->capture_default_str();
  command.add_option("--max-sdpa-length", c.max_sdpa_length, "longer rows time ours alone")
      ->capture_default_str();
  command.add_flag("--decode", options->decode, "also time one generated token");
  command.add_flag("--no-memory", options->no_memory, "do not measure peak memory");
  command.add_option("--out", options->out, "also write the figures to this JSON file");
  return [options](const CommonOptions& common) { return run(common, *options); };
}

}  // namespace hedgerow::cli
