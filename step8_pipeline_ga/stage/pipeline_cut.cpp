#include "step8_pipeline_ga/stage/pipeline_cut.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/core/check.hpp"

namespace ladder {
namespace {

// Fills as many chunks as the limit allows, each with at least one block and leaving one for each
// chunk to come. Returns the number of blocks in each chunk; empty if they do not fit.
std::vector<std::size_t> fill(const std::vector<std::int64_t>& costs, std::size_t num_chunks,
                              std::int64_t limit) {
  const std::size_t num_blocks = costs.size() - 2;
  std::vector<std::size_t> filled;
  std::size_t block = 1;
  for (std::size_t chunk = 0; chunk < num_chunks; ++chunk) {
    const bool is_last = chunk + 1 == num_chunks;
    const std::size_t end = is_last ? num_blocks + 1 : num_blocks + 2 - (num_chunks - chunk);
    std::int64_t cost = (chunk == 0 ? costs.front() : 0) + (is_last ? costs.back() : 0);
    std::size_t taken = 0;
    for (; block < end && (cost + costs[block] <= limit); ++block, ++taken) cost += costs[block];
    if (taken == 0) return {};
    filled.push_back(taken);
  }
  return block == num_blocks + 1 ? filled : std::vector<std::size_t>();
}

std::string names_of(const std::vector<std::int64_t>& layers, std::int64_t head) {
  std::string names;
  const auto add = [&](const std::string& name) { names += (names.empty() ? "" : ", ") + name; };
  const auto is_block = [=](std::int64_t layer) { return layer > 0 && layer < head; };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] == 0) add("embedding");
    if (layers[i] == head) add("head");
    if (!is_block(layers[i])) continue;
    std::size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1 &&
           is_block(layers[last + 1])) {
      ++last;
    }
    add(last == i ? concat("block ", layers[i] - 1)
                  : concat("blocks ", layers[i] - 1, "-", layers[last] - 1));
    i = last;
  }
  return names;
}

}  // namespace

std::vector<std::size_t> PipelineCut::chunks_on(int stage) const {
  std::vector<std::size_t> own;
  for (auto c = static_cast<std::size_t>(stage); c < chunks.size();
       c += static_cast<std::size_t>(num_stages)) {
    own.push_back(c);
  }
  return own;
}

std::vector<std::int64_t> PipelineCut::layers_of(int stage) const {
  std::vector<std::int64_t> layers;
  for (const std::size_t c : chunks_on(stage))
    layers.insert(layers.end(), chunks[c].begin(), chunks[c].end());
  return layers;
}

PipelineCut cut_layers(const std::vector<std::int64_t>& layer_costs, int num_stages,
                       int chunks_per_stage) {
  const auto num_chunks =
      static_cast<std::size_t>(num_stages) * static_cast<std::size_t>(chunks_per_stage);
  const std::size_t num_blocks = layer_costs.size() - 2;
  check_usage(num_blocks >= num_chunks, "--layers ", num_blocks,
              " is too few for --pipeline-stages ", num_stages,
              chunks_per_stage > 1 ? concat(" with --chunks-per-stage ", chunks_per_stage) : "",
              ": each of the ", num_chunks, chunks_per_stage > 1 ? " chunks" : " stages",
              " needs at least one");
  const auto total = std::accumulate(layer_costs.begin(), layer_costs.end(), std::int64_t{0});
  std::int64_t too_low = -1, enough = total;  // the smallest limit that works lies between them
  while (enough - too_low > 1) {
    const std::int64_t middle = too_low + (enough - too_low) / 2;
    (fill(layer_costs, num_chunks, middle).empty() ? too_low : enough) = middle;
  }
  PipelineCut cut = {num_stages, {}, {}};
  std::int64_t layer = 0;
  for (const std::size_t blocks : fill(layer_costs, num_chunks, enough)) {
    const bool is_first = cut.chunks.empty(), is_last = cut.chunks.size() + 1 == num_chunks;
    std::vector<std::int64_t> chunk(blocks + (is_first ? 1 : 0) + (is_last ? 1 : 0));
    std::iota(chunk.begin(), chunk.end(), layer);
    layer += static_cast<std::int64_t>(chunk.size());
    std::int64_t cost = 0;
    for (const std::int64_t l : chunk) cost += layer_costs[static_cast<std::size_t>(l)];
    cut.chunks.push_back(std::move(chunk));
    cut.shares.push_back(static_cast<double>(cost) / static_cast<double>(total));
  }
  return cut;
}

std::string to_string(const PipelineCut& cut) {
  std::string text;
  const std::int64_t head = cut.chunks.back().back();
  for (int stage = 0; stage < cut.num_stages; ++stage) {
    double share = 0;
    for (const std::size_t c : cut.chunks_on(stage)) share += cut.shares[c];
    text += concat("stage ", stage, ": ", names_of(cut.layers_of(stage), head), " (",
                   std::lround(100 * share), "% of the forward's arithmetic)\n");
  }
  return text;
}

}  // namespace ladder
