#include "analysis/embeddings.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/interrupt.h"
#include "hedgerow/error.h"
#include "metrics/embeddings.h"

namespace hedgerow::analysis {
namespace {

metrics::EmbeddingView view(const at::Tensor& embeddings) {
  return {embeddings.const_data_ptr<float>(), embeddings.size(0), embeddings.size(1)};
}

}  // namespace

at::Tensor embed_texts(const models::LoadedModel& model, const std::vector<data::Sequence>& texts,
                       const std::function<void(int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  models::Encoder& encoder = *model.encoder;
  const int64_t num_texts = static_cast<int64_t>(texts.size());
  at::Tensor out = at::zeros({num_texts, encoder.config().hidden_size});
  std::vector<int64_t> order(texts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return texts[a].ids.size() > texts[b].ids.size(); });
  for (int64_t begin = 0; begin < num_texts;) {
    check_interrupt();
    const int64_t longest = std::max<int64_t>(1, texts[order[begin]].ids.size());
    const int64_t count =
        std::min(std::max<int64_t>(1, kTokensPerBatch / longest), num_texts - begin);
    const std::span<const int64_t> rows(order.data() + begin, count);
    const data::Batch batch = data::make_batch(texts, rows, encoder.config().pad_token_id);
    const at::Tensor hidden =
        encoder.forward({batch.input_ids, batch.attention_mask, batch.token_type_ids, {}})
            .last_hidden_state;
    const at::Tensor pooled = models::pool(model.pooling, hidden, batch.attention_mask);
    out.index_copy_(0, at::tensor(rows, at::kLong), pooled.to(at::kFloat));
    begin += count;
    if (progress) progress(begin);
  }
  return out;
}

EmbeddingFidelity embedding_fidelity(const at::Tensor& teacher, const at::Tensor& model) {
  EmbeddingFidelity out;
  out.cosines = metrics::row_cosines(view(teacher), view(model));
  out.embedding_cosine = metrics::mean_cosine(view(teacher), view(model));
  out.nn_agreement = out.top10_overlap = std::numeric_limits<double>::quiet_NaN();
  constexpr int64_t kNeighbours = 10;
  if (teacher.size(0) > kNeighbours + 1) {
    const metrics::NeighbourAgreement agreement =
        metrics::neighbour_agreement(view(teacher), view(model), kNeighbours);
    out.nn_agreement = agreement.nearest;
    out.top10_overlap = agreement.top_k;
  }
  return out;
}

std::vector<std::vector<int64_t>> nearest_texts(const at::Tensor& embeddings, int64_t k) {
  return metrics::nearest_rows(view(embeddings), k);
}

std::vector<int64_t> pair_ranks(const at::Tensor& queries, const at::Tensor& texts) {
  HEDGEROW_CHECK(queries.sizes() == texts.sizes(), "pairs: as many queries as texts; got ",
                 queries.sizes(), " and ", texts.sizes());
  constexpr int64_t kRows = 256;  // at a time
  const auto unit = [](const at::Tensor& t) { return t / t.norm(2, -1, true).clamp_min(1e-30); };
  const at::Tensor q = unit(queries.to(at::kDouble)), x = unit(texts.to(at::kDouble));
  const int64_t count = q.size(0);
  const at::Tensor all = at::arange(count);
  std::vector<int64_t> ranks;
  for (int64_t begin = 0; begin < count; begin += kRows) {
    const int64_t rows = std::min(kRows, count - begin);
    const at::Tensor cosines = q.narrow(0, begin, rows).matmul(x.t());  // [rows,N]
    const at::Tensor own_index = all.narrow(0, begin, rows).unsqueeze(1);
    const at::Tensor own = cosines.gather(1, own_index);
    const at::Tensor before =
        cosines.gt(own).logical_or(cosines.eq(own).logical_and(all.lt(own_index)));
    const at::Tensor some = before.sum(1).contiguous();
    ranks.insert(ranks.end(), some.const_data_ptr<int64_t>(),
                 some.const_data_ptr<int64_t>() + rows);
  }
  return ranks;
}

}  // namespace hedgerow::analysis
