#include "common/comm/communicator.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstring>

#include "common/core/memory_ledger.hpp"
#include "common/core/trace.hpp"

namespace ladder {

void all_reduce_sum(std::span<double> values, Communicator& comm, CallSite where) {
  const MemoryScope scope(MemoryCategory::kCommunication);
  const Span span("sum of numbers");
  const at::Tensor sums = at::empty({static_cast<std::int64_t>(values.size())}, at::kDouble);
  double* const data = sums.mutable_data_ptr<double>();
  std::copy(values.begin(), values.end(), data);
  comm.all_reduce(sums, where)->wait();
  std::copy_n(data, values.size(), values.begin());
}

double all_reduce_sum(double value, Communicator& comm, CallSite where) {
  all_reduce_sum(std::span(&value, 1), comm, where);
  return value;
}

std::vector<int> ranks_of_color(int color, std::span<const ColorAndKey> passed_by_rank) {
  std::vector<std::pair<int /*key*/, int /*rank*/>> members;
  for (std::size_t r = 0; r < passed_by_rank.size(); ++r) {
    if (passed_by_rank[r].color == color)
      members.emplace_back(passed_by_rank[r].key, static_cast<int>(r));
  }
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& [key, rank] : members) ranks.push_back(rank);
  return ranks;
}

std::vector<std::string> all_gather_text(const std::string& text, Communicator& comm,
                                         CallSite where) {
  const at::Tensor length = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong);
  at::Tensor lengths = at::empty({comm.size()}, at::kLong);
  comm.all_gather(length, lengths, where)->wait();
  const auto longest = lengths.max().item<std::int64_t>();
  at::Tensor padded = at::full({longest}, ' ', at::kByte);
  if (!text.empty()) std::memcpy(padded.data_ptr(), text.data(), text.size());
  at::Tensor all = at::empty({comm.size() * longest}, at::kByte);
  comm.all_gather(padded, all, where)->wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const at::Tensor own = all.narrow(0, rank * longest, lengths[rank].item<std::int64_t>());
    texts.emplace_back(own.numel() > 0 ? static_cast<const char*>(own.const_data_ptr()) : "",
                       static_cast<std::size_t>(own.numel()));
  }
  return texts;
}

}  // namespace ladder
