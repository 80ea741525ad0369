#include "step9_diloco/elastic/exchange.hpp"

#include <ATen/ops/from_blob.h>

#include <optional>
#include <string>
#include <utility>

#include "common/comm/slice.hpp"
#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/core/tree_sum.hpp"

namespace ladder {
namespace {

at::Tensor tensor_of(std::string bytes) {  // keeps them, without a copy
  auto* const kept = new std::string(std::move(bytes));
  return at::from_blob(
      kept->data(), {std::ssize(*kept) / 4}, [kept](void*) { delete kept; }, at::kFloat);
}

std::string_view bytes_in(const at::Tensor& values, const ElementRange& slice) {
  return {reinterpret_cast<const char*>(values.const_data_ptr<float>() + slice.begin),
          static_cast<std::size_t>(4 * slice.numel)};
}

// Sends bytes to a member, as pieces of a stream.
void send_stream(Messenger& messenger, const Quorum& quorum, int worker, const Member& to,
                 MessageKind kind, std::string_view bytes) {
  for (std::int64_t offset = 0; offset < std::ssize(bytes); offset += kPieceBytes)
    messenger.send(to.address, piece_of(quorum, worker, kind, offset, bytes));
}

// Adds up the pieces, from all contributors, of the slice that this one owns, in place. Returns
// those whose pieces are missing.
std::vector<int> reduce_own_slice(const at::Tensor& own, const std::vector<Member>& contributors,
                                  int worker, Mailbox& mailbox, const Timer& timer,
                                  double seconds) {
  std::vector<int> missing;
  const auto part_of = [&](int i) {
    const int sender = contributors[static_cast<std::size_t>(i)].worker;
    if (sender == worker) return own;
    std::optional<std::string> bytes =
        mailbox.take(MessageKind::kSlice, sender, 4 * own.numel(), seconds - timer.seconds());
    if (!bytes) missing.push_back(sender);
    return bytes ? tensor_of(*std::move(bytes)) : at::Tensor();
  };
  const auto add = [&](const at::Tensor& left, const at::Tensor& right) {
    return missing.empty() ? left.add_(right) : at::Tensor();
  };
  const at::Tensor sum = tree_sum(0, static_cast<int>(contributors.size()), part_of, add);
  if (missing.empty()) own.copy_(sum);
  return missing;
}

}  // namespace

Missing sum_over_contributors(const at::Tensor& values, const Quorum& quorum, int worker,
                              Messenger& messenger, Mailbox& mailbox, double seconds) {
  check(values.is_contiguous() && values.scalar_type() == at::kFloat,
        "only contiguous fp32 values can be averaged");
  const Timer timer;
  Missing missing;
  const std::vector<Member> contributors = quorum.contributors();
  const auto slice = [&](std::size_t i) {
    return slice_of(values.numel(), static_cast<int>(contributors.size()), static_cast<int>(i));
  };
  for (std::size_t i = 0; i < contributors.size(); ++i) {  // reduce-scatter
    if (quorum.member(worker).donor) break;
    if (contributors[i].worker == worker) continue;
    send_stream(messenger, quorum, worker, contributors[i], MessageKind::kSlice,
                bytes_in(values, slice(i)));
  }
  for (std::size_t i = 0; i < contributors.size(); ++i) {
    if (contributors[i].worker != worker || slice(i).numel == 0) continue;
    const at::Tensor own = values.narrow(0, slice(i).begin, slice(i).numel);
    missing.values = reduce_own_slice(own, contributors, worker, mailbox, timer, seconds);
    if (!missing.is_empty()) return missing;
    for (const Member& member : quorum.members) {
      if (member.worker == worker) continue;
      send_stream(messenger, quorum, worker, member, MessageKind::kSum, bytes_in(values, slice(i)));
    }
  }
  for (std::size_t i = 0; i < contributors.size(); ++i) {  // all-gather
    if (contributors[i].worker == worker || slice(i).numel == 0) continue;
    std::optional<std::string> sum = mailbox.take(MessageKind::kSum, contributors[i].worker,
                                                  4 * slice(i).numel, seconds - timer.seconds());
    if (!sum) {
      missing.sums.push_back(contributors[i].worker);
      continue;
    }
    values.narrow(0, slice(i).begin, slice(i).numel).copy_(tensor_of(*std::move(sum)));
  }
  return missing;
}

}  // namespace ladder
