#include "analysis/head_statistics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "analysis/observe.h"
#include "analysis/query_blocks.h"
#include "base/interrupt.h"
#include "hedgerow/error.h"
#include "models/head_values.h"

namespace hedgerow::analysis {
namespace {

// Sums of one layer over all inputs.
struct LayerSums {
  at::Tensor density;     // [H] over texts
  at::Tensor entropy;     // [H] over rows
  at::Tensor at_offset;   // [offset,H] over rows that see the neighbour
  at::Tensor neighbours;  // [offset] such rows
  at::Tensor merging;     // [H] over groups
  double diversity = 0;
  double uniform = 0;
  int64_t texts = 0, queries = 0, entropy_rows = 0, groups = 0;
  std::vector<int64_t> density_counts;
};

// One block of queries: weights and what they may see.
struct Rows {
  at::Tensor p;        // [B,H,C,S]
  at::Tensor visible;  // bool [B,1,C,S]
  at::Tensor keep;     // bool [B,C]: not padding
  at::Tensor n;        // double [B,C]: keys seen
  int64_t begin = 0;   // the first query
  int64_t shift = 0;   // query t stands beside key t + shift
};

Rows rows_of(nn::Mixer& mixer, const nn::AttentionTrace& heads, const QueryBlock& block) {
  Rows rows;
  rows.p = weights(mixer, heads, block);
  const int64_t batch = rows.p.size(0), count = rows.p.size(2), num_keys = rows.p.size(3);
  const std::optional<at::Tensor> mask = block.mask.visible(count, num_keys);
  const at::Tensor visible = mask ? *mask : at::ones({1, 1, 1, 1}, at::kBool);
  HEDGEROW_CHECK(visible.dim() < 4 || visible.size(1) == 1,
                 "head_statistics: the heads of a layer must see the same keys; got a mask ",
                 visible.sizes());
  rows.visible = visible.expand({batch, 1, count, num_keys});
  rows.n = rows.visible.sum(-1).squeeze(1).to(at::kDouble);
  // Self-attention: padding of the keys is padding of the queries.
  rows.keep = heads.mask.key_mask && heads.q.size(2) == num_keys
                  ? heads.mask.key_mask->narrow(1, block.begin, count)
                  : at::ones({batch, count}, at::kBool);
  rows.begin = block.begin;
  rows.shift = num_keys - heads.q.size(2);
  return rows;
}

// -sum p log p over the last axis, 0 log 0 = 0, in double.
at::Tensor entropy_of(const at::Tensor& p) {
  return at::where(p > 0, p * p.log(), 0).sum(-1).neg().to(at::kDouble);
}

// The values [B,H,C] of the rows in `mask` [B,C], summed: [H].
at::Tensor sum_of(const at::Tensor& values, const at::Tensor& mask) {
  return values.to(at::kDouble)
      .masked_fill(mask.logical_not().unsqueeze(1), 0)
      .sum(at::IntArrayRef{0, 2});
}

void add_entropy(const Rows& rows, LayerSums& sums) {
  const at::Tensor counted = rows.keep.logical_and(rows.n >= 2);              // [B,C]
  const at::Tensor base = rows.n.clamp_min(2).log().unsqueeze(1);             // [B,1,C]
  const at::Tensor entropy = entropy_of(rows.p) / base;                       // [B,H,C]
  const at::Tensor of_mean = entropy_of(rows.p.mean(1)).unsqueeze(1) / base;  // [B,1,C]
  // at least 0 but for rounding: entropy is concave
  const at::Tensor divergence = (of_mean - entropy.mean(1, /*keepdim=*/true)).clamp_min(0);
  sums.entropy += sum_of(entropy, counted);
  sums.diversity += sum_of(divergence, counted).item<double>();
  sums.entropy_rows += counted.sum().item<int64_t>();
  const at::Tensor seeing = rows.keep.logical_and(rows.n >= 1);
  sums.uniform += rows.n.clamp_min(1).reciprocal().masked_select(seeing).sum().item<double>();
  sums.queries += seeing.sum().item<int64_t>();
}

void add_offsets(const Rows& rows, int64_t reach, LayerSums& sums) {
  const int64_t count = rows.p.size(2), num_keys = rows.p.size(3);
  for (int64_t offset = -reach; offset <= reach; ++offset) {
    const int64_t k = rows.begin + rows.shift + offset;  // the key beside the block's first query
    if (k >= num_keys || k <= -count) continue;
    const at::Tensor weight = rows.p.diagonal(k, 2, 3);                 // [B,H,L]
    const at::Tensor seen = rows.visible.diagonal(k, 2, 3).squeeze(1);  // [B,L]
    const at::Tensor keep = rows.keep.narrow(1, std::max<int64_t>(0, -k), weight.size(2));
    const at::Tensor counted = seen.logical_and(keep);
    sums.at_offset[offset + reach] += sum_of(weight, counted);
    sums.neighbours[offset + reach] += counted.sum().to(at::kDouble);
  }
}

// One layer of one input, over its blocks: what is a figure of a text or of a group.
class TextSums {
 public:
  TextSums(const StatisticsInput& input, int64_t batch, int64_t heads)
      : input_(input),
        nonzero_(at::zeros({batch, heads}, at::kDouble)),
        visible_(at::zeros({batch}, at::kDouble)) {
    for (const auto& groups : input.groups)
      for (size_t i = 0; i < groups.size(); ++i) mass_.push_back(at::zeros({heads}, at::kDouble));
  }

  void add(const Rows& rows) {
    const at::Tensor keep = rows.keep.unsqueeze(1);  // [B,1,C]
    nonzero_ += rows.p.ne(0).sum(-1).masked_fill(keep.logical_not(), 0).sum(-1);
    visible_ += rows.n.masked_fill(rows.keep.logical_not(), 0).sum(-1);
    size_t group = 0;
    for (size_t row = 0; row < input_.groups.size(); ++row)
      for (const TokenRange& range : input_.groups[row])
        add_group(rows, static_cast<int64_t>(row), range, mass_[group++]);
  }

  void finish(LayerSums& sums) const {
    const int64_t num_bins = static_cast<int64_t>(sums.density_counts.size());
    for (int64_t row = 0; row < visible_.size(0); ++row) {
      const double visible = visible_[row].item<double>();
      if (visible == 0) continue;
      const at::Tensor density = (nonzero_[row] / visible).contiguous();  // [H]
      sums.density += density;
      ++sums.texts;
      for (int64_t h = 0; h < density.size(0); ++h) {
        const double share = density.const_data_ptr<double>()[h];
        const auto bin = static_cast<int64_t>(share * static_cast<double>(num_bins));
        ++sums.density_counts[std::min(bin, num_bins - 1)];
      }
    }
    for (const at::Tensor& mass : mass_) sums.merging += mass;
    sums.groups += static_cast<int64_t>(mass_.size());
  }

 private:
  // Raises the group's mass by those of its tokens that ask in this block.
  static void add_group(const Rows& rows, int64_t row, const TokenRange& range, at::Tensor& mass) {
    const int64_t first = std::max(range.begin, rows.begin),
                  last = std::min(range.end, rows.begin + rows.p.size(2));
    for (int64_t t = first; t < last; ++t) {
      const at::Tensor p =
          rows.p.select(0, row).select(1, t - rows.begin).to(at::kDouble);  // [H,S]
      const at::Tensor others = p.narrow(1, range.begin, t - range.begin).sum(1) +
                                p.narrow(1, t + 1, range.end - t - 1).sum(1);
      mass = at::maximum(mass, others);
    }
  }

  const StatisticsInput& input_;
  at::Tensor nonzero_, visible_;  // [B,H] and [B] pairs
  std::vector<at::Tensor> mass_;  // [H] of each group
};

void check_input(const StatisticsInput& input) {
  const at::Tensor& ids = input.input.input_ids;
  HEDGEROW_CHECK(ids.dim() == 2, "head_statistics: input_ids must be [B,T]; got ", ids.sizes());
  HEDGEROW_CHECK(input.groups.empty() || static_cast<int64_t>(input.groups.size()) == ids.size(0),
                 "head_statistics: groups must be given for each row; got ", input.groups.size(),
                 " for ", ids.size(0), " rows");
  for (const auto& groups : input.groups)
    for (const TokenRange& range : groups)
      HEDGEROW_CHECK(range.begin >= 0 && range.end - range.begin >= 2 && range.end <= ids.size(1),
                     "head_statistics: a group must be 2 or more tokens of its row; got [",
                     range.begin, ", ", range.end, ") of ", ids.size(1));
}

std::vector<double> as_row(const at::Tensor& values) {
  const at::Tensor row = values.to(at::kDouble).contiguous();
  return {row.const_data_ptr<double>(), row.const_data_ptr<double>() + row.numel()};
}

// 0 / 0: NaN.
std::vector<double> means(const at::Tensor& sums, double count) { return as_row(sums / count); }

std::vector<LayerSums> empty_sums(models::Encoder& model, const HeadStatisticsOptions& options) {
  std::vector<LayerSums> all(model.num_layers());
  for (int64_t layer = 0; layer < model.num_layers(); ++layer) {
    LayerSums& sums = all[layer];
    const int64_t heads = model.attention(layer).mixer().layout().heads,
                  offsets = 2 * options.reach + 1;
    sums.density = at::zeros({heads}, at::kDouble);
    sums.entropy = at::zeros({heads}, at::kDouble);
    sums.merging = at::zeros({heads}, at::kDouble);
    sums.at_offset = at::zeros({offsets, heads}, at::kDouble);
    sums.neighbours = at::zeros({offsets}, at::kDouble);
    sums.density_counts.assign(options.density_bins, 0);
  }
  return all;
}

HeadStatistics averaged(const std::vector<LayerSums>& all, int64_t reach) {
  HeadStatistics out;
  for (int64_t offset = -reach; offset <= reach; ++offset) out.offsets.push_back(offset);
  out.at_offset.resize(out.offsets.size());
  for (const LayerSums& sums : all) {
    const double rows = static_cast<double>(sums.entropy_rows);
    out.density.push_back(means(sums.density, static_cast<double>(sums.texts)));
    out.density_counts.push_back(sums.density_counts);
    out.entropy.push_back(means(sums.entropy, rows));
    out.diversity.push_back(sums.diversity / rows);
    out.subword_merging.push_back(means(sums.merging, static_cast<double>(sums.groups)));
    for (size_t i = 0; i < out.offsets.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i);
      out.at_offset[i].push_back(means(sums.at_offset[row], sums.neighbours[row].item<double>()));
    }
  }
  if (!all.empty()) {
    out.num_texts = all.front().texts;
    out.num_queries = all.front().queries;
    out.num_groups = all.front().groups;
    out.uniform_weight = all.front().uniform / static_cast<double>(out.num_queries);
  }
  return out;
}

std::vector<NamedHead> ranked(std::vector<NamedHead> heads) {
  std::stable_sort(heads.begin(), heads.end(),
                   [](const NamedHead& a, const NamedHead& b) { return a.weight > b.weight; });
  return heads;
}

}  // namespace

std::vector<TokenRange> subword_groups(const std::vector<std::string>& tokens) {
  std::vector<TokenRange> groups;
  const int64_t num_tokens = static_cast<int64_t>(tokens.size());
  for (int64_t begin = 0; begin < num_tokens;) {
    int64_t end = begin + 1;
    while (end < num_tokens && tokens[end].size() > 2 && tokens[end].starts_with("##")) ++end;
    if (end - begin >= 2) groups.push_back({begin, end});
    begin = end;
  }
  return groups;
}

HeadStatistics head_statistics(models::Encoder& model, const std::vector<StatisticsInput>& inputs,
                               const HeadStatisticsOptions& options,
                               const std::function<void(int64_t)>& inputs_done) {
  HEDGEROW_CHECK(options.reach >= 0, "head_statistics: reach must be at least 0; got ",
                 options.reach);
  HEDGEROW_CHECK(options.density_bins >= 1,
                 "head_statistics: density_bins must be at least 1; got ", options.density_bins);
  for (const StatisticsInput& input : inputs) check_input(input);
  const at::NoGradGuard no_grad;
  std::vector<LayerSums> all = empty_sums(model, options);
  int64_t done = 0;
  for (const StatisticsInput& input : inputs) {
    check_interrupt();
    const ObserveLayers observe(model, [&](int64_t layer, const nn::AttentionTrace& heads) {
      nn::Mixer& mixer = model.attention(layer).mixer();
      TextSums text(input, heads.q.size(0), mixer.layout().heads);
      for_each_query_block(heads, [&](const QueryBlock& block) {
        const Rows rows = rows_of(mixer, heads, block);
        text.add(rows);
        add_entropy(rows, all[layer]);
        add_offsets(rows, options.reach, all[layer]);
      });
      text.finish(all[layer]);
    });
    model.forward(input.input);
    if (inputs_done) inputs_done(++done);
  }
  HeadStatistics out = averaged(all, options.reach);
  out.head_values = models::head_values(model);
  return out;
}

std::vector<NamedHead> positional_heads(const HeadStatistics& statistics) {
  std::vector<NamedHead> heads;
  for (size_t layer = 0; layer < statistics.density.size(); ++layer)
    for (size_t h = 0; h < statistics.density[layer].size(); ++h) {
      NamedHead best{static_cast<int64_t>(layer), static_cast<int64_t>(h), 0, -1};
      for (size_t i = 0; i < statistics.offsets.size(); ++i) {
        const double weight = statistics.at_offset[i][layer][h];
        if (statistics.offsets[i] == 0 || !(weight > best.weight)) continue;
        best.offset = statistics.offsets[i];
        best.weight = weight;
      }
      if (best.weight >= 0) heads.push_back(best);
    }
  return ranked(std::move(heads));
}

std::vector<NamedHead> subword_merging_heads(const HeadStatistics& statistics) {
  std::vector<NamedHead> heads;
  if (statistics.num_groups == 0) return heads;
  for (size_t layer = 0; layer < statistics.subword_merging.size(); ++layer)
    for (size_t h = 0; h < statistics.subword_merging[layer].size(); ++h)
      heads.push_back({static_cast<int64_t>(layer), static_cast<int64_t>(h), 0,
                       statistics.subword_merging[layer][h]});
  return ranked(std::move(heads));
}

}  // namespace hedgerow::analysis
