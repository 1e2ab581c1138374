// hedgerow bench ops: speed and memory of every attention against scaled_dot_product_attention.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "bench/attention_speed.h"
#include "bench/measure.h"
#include "cli/command.h"
#include "hedgerow/error.h"
#include "hedgerow/version.h"

namespace hedgerow::cli {
namespace {

using nlohmann::ordered_json;

struct BenchOptions {
  std::string what;
  std::string out;
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
  j["gflops"] = row.gflops;
  j["percent_of_peak"] = row.percent_of_peak;
  j["error"] = row.error;
  if (row.peak_bytes >= 0) j["peak_bytes"] = row.peak_bytes;
  if (row.sdpa_peak_bytes >= 0) j["sdpa_peak_bytes"] = row.sdpa_peak_bytes;
  return j;
}

void print_header() {
  std::printf("%-9s %-7s %-17s %7s %4s %10s %10s %7s %8s %7s %9s %9s\n", "method", "mask", "step",
              "T", "D", "ms", "sdpa ms", "ratio", "GFLOP/s", "% peak", "error", "peak MB");
}

void print_row(const bench::AttentionBenchRow& row) {
  char sdpa[32] = "-", ratio[32] = "-", memory[32] = "-";
  if (row.sdpa_seconds) {
    std::snprintf(sdpa, sizeof sdpa, "%.3f", *row.sdpa_seconds * 1e3);
    std::snprintf(ratio, sizeof ratio, "%.3f", *row.ratio());
  }
  if (row.peak_bytes >= 0)
    std::snprintf(memory, sizeof memory, "%.1f", static_cast<double>(row.peak_bytes) / 1e6);
  std::printf("%-9s %-7s %-17s %7lld %4lld %10.3f %10s %7s %8.1f %7.1f %9.1e %9s\n",
              row.method.c_str(), row.mask.c_str(), row.step.c_str(),
              static_cast<long long>(row.length), static_cast<long long>(row.head_dim),
              row.seconds * 1e3, sdpa, ratio, row.gflops, row.percent_of_peak, row.error, memory);
  std::fflush(stdout);
}

int run(const CommonOptions& common, const BenchOptions& options) {
  bench::AttentionBenchConfig config = options.config;
  config.memory = !options.no_memory;
  const bool table = !common.json && !common.quiet;
  const bench::Machine machine = bench::machine();
  if (table) {
    std::printf("%s; SIMD %s; torch %s; %lld thread%s; peak %.0f GFLOP/s a core; B=%lld H=%lld\n",
                machine.processor.c_str(), machine.simd_target.c_str(),
                machine.torch_version.c_str(), static_cast<long long>(machine.threads),
                machine.threads == 1 ? "" : "s", bench::fma_peak_flops() / 1e9,
                static_cast<long long>(config.batch), static_cast<long long>(config.heads));
    print_header();
  }
  ordered_json rows = ordered_json::array();
  bench::bench_attention(config, [&](const bench::AttentionBenchRow& row) {
    if (table) print_row(row);
    rows.push_back(as_json(row));
  });
  ordered_json document = {{"machine",
                            {{"processor", machine.processor},
                             {"simd_target", machine.simd_target},
                             {"threads", machine.threads},
                             {"torch", machine.torch_version},
                             {"hedgerow", version()}}},
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
  if (common.json) std::printf("%s\n", document.dump(1).c_str());
  if (!options.out.empty()) write_file_atomically(options.out, document.dump(1) + "\n");
  return 0;
}

}  // namespace

RunCommand add_bench(CLI::App& command) {
  auto options = std::make_shared<BenchOptions>();
  bench::AttentionBenchConfig& c = options->config;
  command.add_option("what", options->what, "what to time: ops")
      ->required()
      ->check(CLI::IsMember({"ops"}));
  command.add_option("--method", c.methods, "softmax, hedgehog")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("--mask", c.masks, "dense, causal")->delimiter(',')->capture_default_str();
  command.add_option("--step", c.steps, "forward, forward+backward")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("--length", c.lengths, "sequence lengths T = S")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("--batch", c.batch)->capture_default_str();
  command.add_option("--heads", c.heads)->capture_default_str();
  command.add_option("--head-dim", c.head_dim)->capture_default_str();
  command.add_option("--map", c.map, "feature map of hedgehog")
      ->check(CLI::IsMember({"exp"}))
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
