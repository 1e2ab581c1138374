#include "tokenizers/tokenizer.h"

#include <filesystem>
#include <utility>

#include "base/atomic_file.h"
#include "hedgerow/error.h"
#include "tokenizers/added_tokens.h"
#include "tokenizers/decoder.h"
#include "tokenizers/model.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/post_processor.h"
#include "tokenizers/pre_tokenizer.h"
#include "tokenizers/unicode.h"

namespace hedgerow::tokenizers {
namespace {

// Added tokens, normalizer, pre-tokenizer, model, truncation, post-processor, padding: in this
// order.
class PipelineTokenizer : public Tokenizer {
 public:
  PipelineTokenizer(const formats::TokenizerJson& file, const std::string& where)
      : normalizer_(make_normalizer(file.normalizer, where + ": normalizer")),
        pre_tokenizer_(make_pre_tokenizer(file.pre_tokenizer, where + ": pre_tokenizer")),
        model_(make_model(file.model, where + ": model")),
        post_processor_(make_post_processor(file.post_processor, where + ": post_processor")),
        decoder_(make_decoder(file.decoder, where + ": decoder")),
        added_(file.added_tokens, *model_, normalizer_.get()) {
    truncation_ = file.truncation;
    padding_ = file.padding;
  }

  Encoding encode(std::string_view text, const EncodeOptions& options) const override {
    return finish(encode_sequence(text, 0), nullptr, options);
  }

  Encoding encode_pair(std::string_view first, std::string_view second,
                       const EncodeOptions& options) const override {
    Encoding behind = encode_sequence(second, 1);
    return finish(encode_sequence(first, 0), &behind, options);
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    std::vector<std::string> tokens;
    for (const int32_t id : ids) {
      std::optional<std::string> token = id_to_token(id);
      HEDGEROW_CHECK(token, "decode: ids must be of the vocabulary; got ", id);
      if (!skip_special_tokens || !added_.is_special(*token)) tokens.push_back(std::move(*token));
    }
    if (decoder_ != nullptr) return decoder_->decode(tokens);
    std::string joined;
    for (size_t i = 0; i < tokens.size(); ++i) joined += (i == 0 ? "" : " ") + tokens[i];
    return joined;
  }

  std::optional<int32_t> token_to_id(std::string_view token) const override {
    const auto added = added_.token_to_id(token);
    return added ? added : model_->token_to_id(token);
  }

  std::optional<std::string> id_to_token(int32_t id) const override {
    auto token = added_.id_to_token(id);
    if (!token) token = model_->id_to_token(id);
    if (!token) return std::nullopt;
    return std::string(*token);
  }

  int64_t vocab_size() const override { return model_->vocab_size() + added_.num_new_tokens(); }

  int64_t num_special_tokens(bool pair) const override {
    return post_processor_ == nullptr ? 0 : post_processor_->num_added(pair);
  }

 private:
  Encoding encode_sequence(std::string_view text, int32_t type_id) const {
    PieceList list = added_.split(decode_utf8(text), normalizer_.get());
    if (pre_tokenizer_ != nullptr) pre_tokenizer_->split(list);
    Encoding encoding;
    std::vector<ModelToken> tokens;
    for (const Piece& piece : list.pieces) {
      if (piece.added_id >= 0) {
        encoding.push_back(piece.added_id, encode_utf8(piece.chars()), piece.origin(), type_id,
                           false);
        continue;
      }
      tokens.clear();
      model_->tokenize(piece.chars(), tokens);
      for (const ModelToken& token : tokens)
        encoding.push_back(
            token.id, std::string(token.value),
            piece.text->origin_of(piece.begin + token.begin, piece.begin + token.end), type_id,
            false);
    }
    return encoding;
  }

  Encoding finish(Encoding first, Encoding* second, const EncodeOptions& options) const {
    if (options.truncation) {
      Truncation room = *options.truncation;
      if (options.add_special_tokens) room.max_length -= num_special_tokens(second != nullptr);
      HEDGEROW_CHECK(room.max_length >= 0, "tokenize: max_length must hold the ",
                     num_special_tokens(second != nullptr), " special tokens; got ",
                     options.truncation->max_length);
      truncate_sequences(first, second, room);
    }
    Encoding out =
        post_processor_ == nullptr
            ? join_sequences(std::move(first), second)
            : post_processor_->process(std::move(first), second, options.add_special_tokens);
    if (options.padding) pad_batch({&out, 1}, *options.padding);
    return out;
  }

  std::unique_ptr<Normalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<PostProcessor> post_processor_;
  std::unique_ptr<Decoder> decoder_;
  AddedVocabulary added_;
};

}  // namespace

std::vector<Encoding> Tokenizer::encode_batch(std::span<const std::string> texts,
                                              const EncodeOptions& options) const {
  EncodeOptions each = options;
  each.padding.reset();
  std::vector<Encoding> batch;
  batch.reserve(texts.size());
  for (const std::string& text : texts) batch.push_back(encode(text, each));
  if (options.padding) pad_batch(batch, *options.padding);
  return batch;
}

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& where) {
  return std::make_unique<PipelineTokenizer>(formats::parse_tokenizer_json(json, where), where);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path file(path);
  HEDGEROW_CHECK(std::filesystem::exists(file, ignored), "tokenizer: no such file or folder; got ",
                 path);
  if (std::filesystem::is_directory(file, ignored)) {
    file /= "tokenizer.json";
    HEDGEROW_CHECK(std::filesystem::exists(file, ignored), "tokenizer: folder ", path,
                   " must hold tokenizer.json; it does not");
  }
  return parse_tokenizer(read_file(file.string()), file.string());
}

}  // namespace hedgerow::tokenizers
