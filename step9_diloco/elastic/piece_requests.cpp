#include "step9_diloco/elastic/piece_requests.hpp"

#include <algorithm>
#include <cmath>

namespace ladder {
namespace {

constexpr double kShortestRetry = 0.05;  // seconds: longer than a busy machine's pauses

}  // namespace

std::vector<std::int64_t> PieceRequests::due(double now_s,
                                             const std::function<bool(std::int64_t)>& has_piece) {
  std::vector<std::int64_t> due = note_arrivals(now_s, has_piece);  // what is lost
  if (asked_.empty()) since_s_ = now_s;
  if (!asked_.empty() && now_s - since_s_ >= retry_s_) {
    due.push_back(asked_.front().piece);
    asked_.erase(asked_.begin());
    retry_s_ *= 2;
    since_s_ = now_s;
  }
  for (const std::int64_t piece : due) asked_.push_back({piece, now_s, /*is_again=*/true});
  while (next_ < num_pieces_ && static_cast<std::int64_t>(asked_.size()) < window_) {
    asked_.push_back({next_, now_s, /*is_again=*/false});
    due.push_back(next_++);
  }
  return due;
}

// Returns those that are lost.
std::vector<std::int64_t> PieceRequests::note_arrivals(
    double now_s, const std::function<bool(std::int64_t)>& has_piece) {
  std::vector<std::int64_t> lost;
  std::vector<Asked> open;
  for (const Asked& asked : asked_) {
    if (!has_piece(asked.piece)) {
      open.push_back(asked);
      continue;
    }
    since_s_ = now_s;
    window_ = std::min(window_ + 1, kWindow);
    if (asked.is_again) continue;
    measure(now_s - asked.at_s);
    for (const Asked& earlier : open) lost.push_back(earlier.piece);
    open.clear();
  }
  asked_ = std::move(open);
  return lost;
}

void PieceRequests::measure(double seconds) {
  const bool is_first = smoothed_s_ == 0;
  const double difference = is_first ? seconds / 2 : std::abs(seconds - smoothed_s_);
  smoothed_s_ = is_first ? seconds : smoothed_s_ + (seconds - smoothed_s_) / 8;
  deviation_s_ = is_first ? difference : deviation_s_ + (difference - deviation_s_) / 4;
  retry_s_ = std::max(smoothed_s_ + 4 * deviation_s_, kShortestRetry);
}

}  // namespace ladder
