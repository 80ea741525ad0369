// Which layers each stage runs.
//
// All stages wait for the slowest one, so the list of layers is cut where the most expensive chunk
// is as cheap as possible. Blocks cost the same; the embedding, a lookup, costs nothing, and the
// head's product with the vocabulary may cost as much as several blocks. So the cuts need not be
// evenly spaced:
//
//   layers  | embedding | block0 | block1 | block2 | block3 | block4 | head |
//   stages  |<------------ 0 ------------>|<----- 1 ------->|<----- 2 ----->|
//
// Pure: every rank finds the same cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ladder {

struct PipelineCut {
  int num_stages = 1;
  std::vector<std::vector<std::int64_t>> chunks;  // the layers of each; chunk c is on stage c mod p
  std::vector<double> shares;                     // of the whole forward's cost, by chunk

  // A stage's chunks, as indices, and the layers of all of them; both in ascending order.
  std::vector<std::size_t> chunks_on(int stage) const;
  std::vector<std::int64_t> layers_of(int stage) const;
};

// Cuts a list of layers, of which the first is the embedding and the last is the head, into
// num_stages · chunks_per_stage chunks with at least one block each. Of several best cuts, the
// first stages get more. Throws UsageError naming the options if there are fewer blocks than
// chunks.
PipelineCut cut_layers(const std::vector<std::int64_t>& layer_costs, int num_stages,
                       int chunks_per_stage = 1);

// A line per stage: "stage 0: embedding, blocks 0-1 (51% of the forward's arithmetic)".
std::string to_string(const PipelineCut& cut);

}  // namespace ladder
