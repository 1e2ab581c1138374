// hedgerow forward: raw outputs for given token ids, to compare with any other implementation.
// Needs no tokenizer.
#include <ATen/ATen.h>

#include <cstdio>
#include <memory>

#include "cli/model_options.h"
#include "formats/json.h"
#include "hedgerow/error.h"
#include "io/tensors.h"

namespace hedgerow::cli {
namespace {

using formats::Json;

struct ForwardOptions {
  std::string model, input, output;
  bool hidden_states = false;
};

// A rectangular array of arrays of whole numbers -> int64 [B,T].
at::Tensor read_ids(const Json& rows, const std::string& where) {
  HEDGEROW_CHECK(rows.is_array() && !rows.empty(), where,
                 ": must be an array of at least one array; got ",
                 rows.is_array() ? "none" : formats::kind_name(rows));
  std::vector<int64_t> values;
  const size_t width = rows[0].is_array() ? rows[0].size() : 0;
  for (size_t b = 0; b < rows.size(); ++b) {
    HEDGEROW_CHECK(rows[b].is_array(), where, "[", b, "]: must be an array; got ",
                   formats::kind_name(rows[b]));
    HEDGEROW_CHECK(rows[b].size() == width, where,
                   ": rows must have one length (pad them and give attention_mask); got ", width,
                   " and, in row ", b, ", ", rows[b].size());
    for (const Json& value : rows[b]) {
      HEDGEROW_CHECK(value.is_number_integer(), where, "[", b, "]: must hold whole numbers; got ",
                     formats::excerpt(value));
      values.push_back(value.get<int64_t>());
    }
  }
  HEDGEROW_CHECK(width > 0, where, ": rows must hold at least one id; got none");
  const auto batch = static_cast<int64_t>(rows.size());
  return at::tensor(values, at::kLong).view({batch, static_cast<int64_t>(width)});
}

models::EncoderInput read_input(const std::string& path) {
  const Json document = formats::read_json_file(path);
  HEDGEROW_CHECK(document.is_object(), path, ": must be an object; got ",
                 formats::kind_name(document));
  models::EncoderInput input;
  for (const auto& [key, value] : document.items()) {
    const std::string where = concat(path, ": ", key);
    if (key == "input_ids") {
      input.input_ids = read_ids(value, where);
    } else if (key == "attention_mask") {
      input.attention_mask = read_ids(value, where);
      const at::Tensor& mask = *input.attention_mask;
      const at::Tensor others = mask.masked_select(mask.ne(0).logical_and(mask.ne(1)));
      HEDGEROW_CHECK(others.numel() == 0, where, ": must be 0 or 1; got ",
                     others[0].item<int64_t>());
    } else if (key == "token_type_ids") {
      input.token_type_ids = read_ids(value, where);
    } else if (key == "position_ids") {
      input.position_ids = read_ids(value, where);
    } else {
      throw Error(concat(path, ": unknown key ", formats::quote(key),
                         "; known: input_ids, attention_mask, token_type_ids, position_ids"));
    }
  }
  HEDGEROW_CHECK(input.input_ids.defined(), path, ": key \"input_ids\" is needed; got none");
  return input;
}

void report(const std::vector<io::NamedTensor>& tensors, const ForwardOptions& options,
            const CommonOptions& common) {
  if (common.json) {
    Json document = Json::object();
    for (const auto& t : tensors) document[t.name] = t.tensor.sizes().vec();
    std::printf("%s\n", formats::dump_json(document).c_str());
  } else if (!common.quiet) {
    for (const auto& t : tensors) {
      std::printf("%s %s\n", t.name.c_str(), formats::shape_text(t.tensor.sizes().vec()).c_str());
    }
    std::printf("written to %s\n", options.output.c_str());
  }
}

int run(const CommonOptions& common, const ForwardOptions& options) {
  const models::EncoderInput input = read_input(options.input);
  const models::LoadedModel model = load_model(options.model, common);
  const at::NoGradGuard no_grad;
  const models::EncoderOutput out = model.encoder->forward(input, options.hidden_states);
  std::vector<io::NamedTensor> tensors = {{"last_hidden_state", out.last_hidden_state}};
  if (out.logits) tensors.push_back({"logits", *out.logits});
  for (size_t i = 0; i < out.hidden_states.size(); ++i) {
    tensors.push_back({concat("hidden_states.", i), out.hidden_states[i]});
  }
  io::save_tensors(options.output, tensors, {{"format", "pt"}});
  report(tensors, options, common);
  return 0;
}

}  // namespace

RunCommand add_forward(CLI::App& command) {
  auto options = std::make_shared<ForwardOptions>();
  command.add_option("model", options->model, "model folder")->required()->type_name("MODEL");
  command
      .add_option(
          "--input", options->input,
          "JSON: {\"input_ids\": [[..]], \"attention_mask\": [[..]], \"token_type_ids\": [[..]]}")
      ->required()
      ->type_name("FILE");
  command.add_option("--output", options->output, "safetensors file to write")
      ->required()
      ->type_name("FILE");
  command.add_flag("--hidden-states", options->hidden_states,
                   "also the embeddings and every layer's output");
  return [options](const CommonOptions& common) { return run(common, *options); };
}

}  // namespace hedgerow::cli
