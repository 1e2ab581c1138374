#include <string_view>
#include <utility>

#include "tokenizers/decoder.h"
#include "tokenizers/registry.h"

namespace hedgerow::tokenizers {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Glues continuations to the word before and puts a space before everything else; `cleanup` takes
// back the spaces that English punctuation and contractions do not have.
class WordPieceDecoder : public Decoder {
 public:
  explicit WordPieceDecoder(const formats::Config& settings)
      : prefix_(settings.get_string_or("prefix", "##")),
        cleanup_(settings.get_bool_or("cleanup", true)) {}

  std::string decode(const std::vector<std::string>& tokens) const override {
    std::string out;
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string token = tokens[i];
      if (i > 0) {
        if (token.compare(0, prefix_.size(), prefix_) == 0) {
          token.erase(0, prefix_.size());
        } else {
          token.insert(0, " ");
        }
      }
      if (cleanup_) clean_up(token);
      out += token;
    }
    return out;
  }

 private:
  static void clean_up(std::string& token) {
    constexpr std::pair<std::string_view, std::string_view> kRules[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (const auto& [from, to] : kRules) replace_all(token, from, to);
  }

  std::string prefix_;
  bool cleanup_;
};

std::unique_ptr<Decoder> make_wordpiece_decoder(const formats::Config& settings) {
  return std::make_unique<WordPieceDecoder>(settings);
}

constexpr Kind<Decoder> kDecoders[] = {
    {"WordPiece", make_wordpiece_decoder},
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const formats::Json& part, const std::string& where) {
  if (part.is_null()) return nullptr;
  return make_part(std::span<const Kind<Decoder>>(kDecoders), part, where, "decoder");
}

}  // namespace hedgerow::tokenizers
