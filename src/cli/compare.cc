// hedgerow compare: how close one model's attention and outputs are to another's.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "analysis/attention_stats.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "convert/corpus.h"
#include "convert/verify.h"
#include "data/text.h"
#include "hedgerow/error.h"

namespace hedgerow::cli {
namespace {

struct CompareOptions {
  std::string teacher, model, data;
  int64_t column = 0, num_texts = 2000, kl_tokens = 4096;
  std::vector<int64_t> lengths;  // none: 128, 256 and 512, as far as positions and text reach
};

// Texts are cut to what both models take.
convert::Verifier::Data read_data(const CompareOptions& options, const models::LoadedModel& teacher,
                                  const models::LoadedModel& model) {
  std::vector<std::string> texts =
      data::read_texts(options.data, data::read_options(options.data, options.column));
  if (static_cast<int64_t>(texts.size()) > options.num_texts) texts.resize(options.num_texts);
  const convert::TextEncoder encoder(options.teacher);
  const int64_t positions = std::min(teacher.encoder->max_tokens(), model.encoder->max_tokens());
  const int64_t special =
      static_cast<int64_t>(encoder.special().prefix.size() + encoder.special().suffix.size());
  for (const int64_t length : options.lengths) {
    HEDGEROW_CHECK(length > special && length <= positions, "--lengths: must be above the ",
                   special, " special tokens and at most ", positions,
                   ", which both models take; got ", length);
  }
  const int64_t longest = std::min(teacher.max_tokens(), model.max_tokens());
  convert::Verifier::Data out;
  for (const std::string& text : texts) {
    out.bodies.push_back(encoder.body(text));
    out.texts.push_back(encoder.wrap(out.bodies.back(), longest));
  }
  out.prefix = encoder.special().prefix;
  out.suffix = encoder.special().suffix;
  out.kl_lengths = options.lengths;
  if (options.lengths.empty()) {
    out.kl_lengths = {128, 256, 512};
    std::erase_if(out.kl_lengths, [&](int64_t length) { return length > positions; });
    if (out.kl_lengths.empty()) out.kl_lengths = {positions};
  }
  out.kl_tokens = options.kl_tokens;
  return out;
}

// The two models must read the same ids.
void check_comparable(const models::LoadedModel& teacher, const models::LoadedModel& model) {
  const auto &a = teacher.encoder->config(), &b = model.encoder->config();
  HEDGEROW_CHECK(a.vocab_size == b.vocab_size && a.hidden_size == b.hidden_size,
                 "compare: both models must have one vocabulary and width; got ", a.vocab_size,
                 " and ", b.vocab_size, " tokens, ", a.hidden_size, " and ", b.hidden_size,
                 " wide");
}

void print(const formats::Json& result) {
  const auto number = [](const formats::Json& value) {
    return value.is_null() ? std::nan("") : value.get<double>();
  };
  std::printf("texts                                %8lld\n", result.at("texts").get<long long>());
  std::printf("mean cosine of embeddings            %8.4f\n",
              number(result.at("embedding_cosine")));
  std::printf("same nearest neighbour               %8.3f\n", number(result.at("nn_agreement")));
  std::printf("overlap of the ten nearest           %8.3f\n", number(result.at("top10_overlap")));
  for (const auto& [length, value] : result.at("kl").items())
    std::printf("KL of attention rows at %4s tokens   %8.4f\n", length.c_str(), number(value));
}

int run(const CommonOptions& common, const CompareOptions& options) {
  HEDGEROW_CHECK(options.num_texts >= 1, "--texts: must be at least 1; got ", options.num_texts);
  HEDGEROW_CHECK(options.kl_tokens >= 1, "--kl-tokens: must be at least 1; got ",
                 options.kl_tokens);
  const models::LoadedModel teacher = load_model(options.teacher, common);
  models::LoadedModel model = load_model(options.model, common);
  check_comparable(teacher, model);
  convert::Verifier verifier(teacher, read_data(options, teacher, model), common.quiet);
  const at::Tensor theirs = verifier.teacher_embeddings();
  convert::Measures measures;
  measures.embedding = analysis::embedding_fidelity(theirs, verifier.embed(model, "model"));
  measures.own_kl = std::nan("");
  formats::Json by_head = formats::Json::object();
  for (const auto& [length, inputs] : verifier.windows()) {
    const analysis::HeadTable table =
        analysis::kl_of_models(*teacher.encoder, *model.encoder, inputs);
    measures.kl[length] = analysis::mean_over_layers(table);
    by_head[std::to_string(length)] = convert::as_json(table);
  }
  formats::Json result = convert::as_json(measures);
  result.erase("kl_own_heads");
  result["kl_by_head"] = by_head;
  result["texts"] = theirs.size(0);
  result["teacher"] = options.teacher;
  result["model"] = options.model;
  if (common.json)
    std::printf("%s\n", formats::dump_json(result).c_str());
  else
    print(result);
  return 0;
}

}  // namespace

RunCommand add_compare(CLI::App& command) {
  auto options = std::make_shared<CompareOptions>();
  command.add_option("teacher", options->teacher, "folder of the model to compare to")
      ->required()
      ->type_name("TEACHER");
  command.add_option("model", options->model, "folder of the model to judge")
      ->required()
      ->type_name("MODEL");
  command.add_option("--data", options->data, "text, UTF-8, one a line")
      ->required()
      ->type_name("FILE");
  command.add_option("--column", options->column, "column of a .tsv file, from 1")->type_name("N");
  command.add_option("--texts", options->num_texts, "texts to read, the first ones")
      ->capture_default_str();
  command
      .add_option(
          "--lengths", options->lengths,
          "tokens of the windows for attention (default: 128, 256, 512 where the model has them)")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("--kl-tokens", options->kl_tokens, "tokens of text at each length")
      ->capture_default_str();
  return [options](const CommonOptions& common) { return run(common, *options); };
}

}  // namespace hedgerow::cli
