// The live figure of collectives: their messages, round by round, and what each rank then has.
//
// sources: step1_ddp_reference/collectives/message_rounds.cpp
// sources: common/comm/slice.cpp
// sources: common/comm/link.cpp
// sources: common/core/json.cpp
//
// A request: collective=all_reduce&way=ring&ranks=4&kilobytes=4000&latency=50&bandwidth=10, with a
// bandwidth in Gbit/s and a latency in microseconds.
#include <array>

#include "common/comm/link.hpp"
#include "common/comm/slice.hpp"
#include "common/core/tree_sum.hpp"
#include "site/figures/request.hpp"
#include "site/figures/wasm.hpp"
#include "step1_ddp_reference/collectives/message_rounds.hpp"

namespace ladder {
namespace {

constexpr Setting kSettings[] = {{"ranks", 4, 2, 8, 1},
                                 {"kilobytes", 4000, 0, 100000, 100},
                                 {"latency", 50, 0, 1000, 5},
                                 {"bandwidth", 10, 1, 400, 1}};
constexpr std::array<const char*, 5> kCollectives = {"all_reduce", "reduce_scatter", "all_gather",
                                                     "broadcast", "all_to_all"};
constexpr std::array<const char*, 2> kWays = {"direct", "ring"};

template <std::size_t count>
std::size_t choice_in(const std::array<const char*, count>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  check_usage(found != names.end(), "there is no '", name, "'");
  return static_cast<std::size_t>(found - names.begin());
}

// ---- what ranks have -------------------------------------------------------------------------------

// A slice on a rank: how it was added up, and of how many ranks' parts.
struct Cell {
  std::string text;
  int parts = 1;
};
Cell add(const Cell& a, const Cell& b) {
  const auto in_brackets = [](const Cell& cell) {
    return cell.parts > 1 ? "(" + cell.text + ")" : cell.text;
  };
  return {in_brackets(a) + " + " + in_brackets(b), a.parts + b.parts};
}
using Cells = std::vector<std::vector<Cell>>;  // by rank and slice

// Each part by its rank alone, or with the number of its slice where slices change places.
Cells at_first(int num_ranks, bool names_slices) {
  Cells cells(static_cast<std::size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank)
    for (int slice = 0; slice < num_ranks; ++slice)
      cells[static_cast<std::size_t>(rank)].push_back(
          {"x" + std::to_string(rank) + (names_slices ? "." + std::to_string(slice) : "")});
  return cells;
}

// What arrives is added in the order of the ranks, by the tree.
void carry_out(const MessageRound& round, Cells& cells) {
  const Cells sent = cells;
  const auto num_ranks = cells.size();
  std::vector<std::vector<std::map<int, Cell>>> arrived(
      num_ranks, std::vector<std::map<int, Cell>>(num_ranks));
  for (const SliceMessage& message : round) {
    const auto from = static_cast<std::size_t>(message.from),
               to = static_cast<std::size_t>(message.to);
    for (std::size_t slice = 0; slice < num_ranks; ++slice) {
      const bool is_whole = message.slice == SliceMessage::kWhole;
      if (!is_whole && static_cast<std::size_t>(message.slice) != slice) continue;
      const std::size_t into = is_whole ? slice : static_cast<std::size_t>(message.into);
      if (message.adds) {
        arrived[to][into][message.from] = sent[from][slice];
      } else {
        cells[to][into] = sent[from][slice];
      }
    }
  }
  for (std::size_t rank = 0; rank < num_ranks; ++rank)
    for (std::size_t slice = 0; slice < num_ranks; ++slice) {
      auto& pieces = arrived[rank][slice];
      if (pieces.empty()) continue;
      std::vector<Cell> all;
      if (pieces.size() == 1) all = {pieces.begin()->second, sent[rank][slice]};  // around a ring
      if (pieces.size() > 1) {
        pieces[static_cast<int>(rank)] = sent[rank][slice];
        for (const auto& [from, piece] : pieces) all.push_back(piece);
      }
      const auto leaf = [&](int i) { return all[static_cast<std::size_t>(i)]; };
      cells[rank][slice] = tree_sum(0, static_cast<int>(all.size()), leaf, add);
    }
}

Json to_json(const Cells& cells) {
  Json json = Json::array();
  for (const auto& rank : cells) {
    Json row = Json::array();
    for (const Cell& cell : rank) row.push_back({{"text", cell.text}, {"parts", cell.parts}});
    json.push_back(row);
  }
  return json;
}

// ---- what it costs -----------------------------------------------------------------------------------

struct Cost {
  std::int64_t rounds = 0, messages = 0, bytes = 0;  // of the rank that sends most
  double ms = 0;
};

Cost cost_of(const std::vector<MessageRound>& rounds, const Request& request) {
  const auto num_ranks = static_cast<int>(request.count("ranks"));
  const std::int64_t numel = request.count("kilobytes") * 250;  // of 4 bytes
  std::vector<Cost> costs(static_cast<std::size_t>(num_ranks));
  for (const MessageRound& round : rounds)
    for (const SliceMessage& message : round) {
      Cost& cost = costs[static_cast<std::size_t>(message.from)];
      const bool is_whole = message.slice == SliceMessage::kWhole;
      cost.messages += 1;
      cost.bytes += 4 * (is_whole ? numel : slice_of(numel, num_ranks, message.slice).numel);
    }
  Cost most = *std::ranges::max_element(costs, {}, &Cost::bytes);
  most.rounds = std::ssize(rounds);
  const Link link = {request.number("latency"), request.number("bandwidth")};
  // A broadcast around a ring passes every rank, one after the other.
  const bool is_chain = !rounds.empty() && rounds.size() > 1 && rounds[0].size() == 1;
  const std::int64_t on_the_way = most.bytes * (is_chain ? most.rounds : 1);
  most.ms = 1000 * link_seconds(link, {.rounds = most.rounds, .bytes = on_the_way});
  return most;
}

Json to_json(const Cost& cost) {
  return {
      {"rounds", cost.rounds}, {"messages", cost.messages}, {"bytes", cost.bytes}, {"ms", cost.ms}};
}

std::string answer(const std::string& text) {
  const Request request(text, kSettings, {{"collective", "all_reduce"}, {"way", "direct"}});
  const auto collective =
      static_cast<Collective>(choice_in(kCollectives, request.text("collective")));
  const auto way = static_cast<Way>(choice_in(kWays, request.text("way")));
  const auto num_ranks = static_cast<int>(request.count("ranks"));
  const std::vector<MessageRound> rounds = message_rounds(collective, way, num_ranks);

  const bool moves = collective == Collective::kAllToAll;
  Cells cells = at_first(num_ranks, moves);
  Json states = Json::array({{{"messages", Json::array()}, {"cells", to_json(cells)}}});
  for (const MessageRound& round : rounds) {
    carry_out(round, cells);
    Json messages = Json::array();
    for (const SliceMessage& message : round)
      messages.push_back({message.from, message.to, message.slice});
    states.push_back({{"messages", messages}, {"cells", to_json(cells)}});
  }
  Json costs;
  for (const Way each : {Way::kDirect, Way::kRing})
    if (!moves || each == Way::kDirect)
      costs[kWays[static_cast<std::size_t>(each)]] =
          to_json(cost_of(message_rounds(collective, each, num_ranks), request));
  return to_text({{"settings", request.settings()},
                  {"collective", request.text("collective")},
                  {"way", request.text("way")},
                  {"states", states},
                  {"costs", costs}});
}

}  // namespace
}  // namespace ladder

std::string answer_to(const std::string& request) {
  return ladder::answer(request);
}
