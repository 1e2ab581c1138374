#include "cli/commands.h"

namespace hedgerow::cli {

// One declaration and one line in the list for each file of this folder that is a command.
RunCommand add_analyze(CLI::App& command);
RunCommand add_bench(CLI::App& command);
RunCommand add_compare(CLI::App& command);
RunCommand add_convert(CLI::App& command);
RunCommand add_embed(CLI::App& command);
RunCommand add_forward(CLI::App& command);
RunCommand add_info(CLI::App& command);
RunCommand add_report(CLI::App& command);
RunCommand add_retrieve(CLI::App& command);
RunCommand add_tokenize(CLI::App& command);

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"info", "what a model folder or a safetensors file holds; checks all it reads", add_info},
      {"convert", "another attention for a model: swap, distil, recover, verify, report",
       add_convert},
      {"compare", "how close one model's attention and outputs are to another's", add_compare},
      {"analyze", "what the heads of a model do: density, entropy, diversity, positions, subwords",
       add_analyze},
      {"embed", "sentence embeddings of a text file", add_embed},
      {"forward", "raw outputs of a model for given token ids", add_forward},
      {"bench", "speed and memory of the attentions against softmax, in one run", add_bench},
      {"retrieve", "how often a text finds its other version among many", add_retrieve},
      {"report", "HTML page from a run folder", add_report},
      {"tokenize", "lines of text to token ids, and back", add_tokenize},
  };
  return all;
}

}  // namespace hedgerow::cli
