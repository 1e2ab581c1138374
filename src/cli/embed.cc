// hedgerow embed: sentence embeddings of a text file, in its order.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>

#include "base/atomic_file.h"
#include "base/interrupt.h"
#include "base/timer.h"
#include "cli/model_options.h"
#include "data/batches.h"
#include "data/text.h"
#include "formats/json.h"
#include "hedgerow/error.h"
#include "io/npy.h"
#include "tokenizers/tokenizer.h"
#include "train/progress.h"

namespace hedgerow::cli {
namespace {

struct EmbedOptions {
  std::string model, input, output;
  bool jsonl = false;
  int64_t column = 0;
  int64_t batch = 32;
  int64_t max_length = 0;
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Tokens that a text is cut to: what is asked for, what the folder says, what the model has.
int64_t length_limit(const EmbedOptions& options, const models::LoadedModel& model) {
  const int64_t positions = model.encoder->config().max_positions;
  HEDGEROW_CHECK(options.max_length <= positions, "--max-length: must be at most the model's ",
                 positions, " positions; got ", options.max_length);
  if (options.max_length > 0) return options.max_length;
  return model.max_tokens();
}

struct Tokens {
  std::vector<data::Sequence> sequences;
  int64_t num_cut = 0;
};

Tokens tokenize(const tokenizers::Tokenizer& tokenizer, const std::vector<std::string>& texts,
                int64_t limit) {
  const int64_t num_special = tokenizer.num_special_tokens(/*pair=*/false);
  HEDGEROW_CHECK(limit > num_special, "embed: the length must leave room beside ", num_special,
                 " special tokens; got ", limit);
  tokenizers::EncodeOptions options;
  options.truncation = tokenizer.truncation().value_or(tokenizers::Truncation{});
  options.truncation->max_length = limit;
  Tokens tokens;
  for (const std::string& text : texts) {
    check_interrupt();
    const tokenizers::Encoding encoding = tokenizer.encode(text, options);
    data::Sequence sequence;
    sequence.ids.assign(encoding.ids.begin(), encoding.ids.end());
    sequence.type_ids.assign(encoding.type_ids.begin(), encoding.type_ids.end());
    HEDGEROW_CHECK(!sequence.ids.empty(),
                   "embed: the tokenizer must give each text a token; it gives none for ",
                   formats::quote(text));
    if (encoding.size() == limit) ++tokens.num_cut;
    tokens.sequences.push_back(std::move(sequence));
  }
  return tokens;
}

// [N,hidden]
at::Tensor embed(const models::LoadedModel& model, const std::vector<data::Sequence>& sequences,
                 int64_t batch_size, bool quiet) {
  const models::EncoderConfig& config = model.encoder->config();
  const at::NoGradGuard no_grad;
  at::Tensor embeddings;
  train::Progress progress("embed", static_cast<int64_t>(sequences.size()), quiet);
  int64_t done = 0;
  for (const auto& indices : data::batches_by_length(data::lengths(sequences), batch_size)) {
    check_interrupt();
    const data::Batch batch = data::make_batch(sequences, indices, config.pad_token_id);
    const models::EncoderOutput out =
        model.encoder->forward({batch.input_ids, batch.attention_mask, batch.token_type_ids, {}});
    const at::Tensor rows =
        models::pool(model.pooling, out.last_hidden_state, batch.attention_mask);
    if (!embeddings.defined()) {
      embeddings =
          at::empty({static_cast<int64_t>(sequences.size()), rows.size(1)}, rows.options());
    }
    embeddings.index_copy_(0, at::tensor(batch.indices, at::kLong), rows);
    done += static_cast<int64_t>(indices.size());
    progress.update(done);
  }
  return embeddings;
}

// One JSON array a line; enough digits to give the numbers back exactly.
void write_jsonl(AtomicFile& file, const at::Tensor& embeddings) {
  const int digits = embeddings.scalar_type() == at::kDouble ? 17 : 9;
  const at::Tensor rows = embeddings.to(at::kDouble).contiguous();
  const double* value = rows.const_data_ptr<double>();
  for (int64_t i = 0; i < rows.size(0); ++i) {
    std::string line = "[";
    for (int64_t j = 0; j < rows.size(1); ++j, ++value) {
      char number[40];
      std::snprintf(number, sizeof number, "%s%.*g", j == 0 ? "" : ",", digits, *value);
      line += number;
    }
    file.write(line + "]\n");
  }
}

void report(const at::Tensor& embeddings, int64_t num_cut, int64_t limit, double seconds,
            const EmbedOptions& options, const CommonOptions& common) {
  const double rate = static_cast<double>(embeddings.size(0)) / std::max(seconds, 1e-9);
  if (common.json) {
    const formats::Json document = {
        {"texts", embeddings.size(0)}, {"dimensions", embeddings.size(1)},
        {"max_length", limit},         {"cut_to_max_length", num_cut},
        {"seconds", seconds},          {"texts_per_s", rate}};
    std::printf("%s\n", formats::dump_json(document).c_str());
  } else if (!common.quiet) {
    std::printf(
        "%lld texts, %lld dimensions, %.1f s (%.0f texts/s); %lld with %lld tokens or more were "
        "cut; written to %s\n",
        static_cast<long long>(embeddings.size(0)), static_cast<long long>(embeddings.size(1)),
        seconds, rate, static_cast<long long>(num_cut), static_cast<long long>(limit),
        options.output.c_str());
  }
}

int run(const CommonOptions& common, const EmbedOptions& options) {
  const bool npy = ends_with(options.output, ".npy");
  HEDGEROW_CHECK(npy || ends_with(options.output, ".jsonl"),
                 "--output: the name must end in .npy or .jsonl; got ", options.output);
  HEDGEROW_CHECK(options.batch > 0, "--batch: must be at least 1; got ", options.batch);
  HEDGEROW_CHECK(options.max_length >= 0, "--max-length: must be at least 1; got ",
                 options.max_length);
  data::ReadOptions reading = data::read_options(options.input, options.column, options.jsonl);
  reading.skip_blank = false;  // one embedding a line
  const std::vector<std::string> texts = data::read_texts(options.input, reading);
  const models::LoadedModel model = load_model(options.model, common);
  HEDGEROW_CHECK(model.pooling.refused.empty(), model.pooling.refused);
  const auto tokenizer = tokenizers::load_tokenizer(options.model);
  AtomicFile file(options.output);

  const Timer timer;
  const int64_t limit = length_limit(options, model);
  const Tokens tokens = tokenize(*tokenizer, texts, limit);
  const at::Tensor embeddings =
      embed(model, tokens.sequences, options.batch, common.quiet || common.json);
  const double seconds = timer.seconds();
  if (npy) {
    io::write_npy(file, embeddings);
  } else {
    write_jsonl(file, embeddings);
  }
  check_interrupt();
  file.commit();
  report(embeddings, tokens.num_cut, limit, seconds, options, common);
  return 0;
}

}  // namespace

RunCommand add_embed(CLI::App& command) {
  auto options = std::make_shared<EmbedOptions>();
  command.add_option("model", options->model, "model folder")->required()->type_name("MODEL");
  command.add_option("--input", options->input, "texts, UTF-8, one a line")
      ->required()
      ->type_name("FILE");
  command.add_option("--output", options->output, "OUT.npy, or OUT.jsonl: one array a line")
      ->required()
      ->type_name("FILE");
  command.add_flag("--jsonl", options->jsonl, "the input's lines are JSON strings");
  command.add_option("--column", options->column, "column of a .tsv file, from 1")->type_name("N");
  command.add_option("--batch", options->batch, "texts at once")
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("--max-length", options->max_length,
                  "tokens a text is cut to (default: as the folder says)")
      ->type_name("N");
  return [options](const CommonOptions& common) { return run(common, *options); };
}

}  // namespace hedgerow::cli
