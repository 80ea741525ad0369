// Which pieces of a state to ask for, and which to ask for again: TCP's rules, on the receiver's
// side.
//
// A window of pieces is asked for and not there yet. It begins with one piece and grows by one with
// every piece that arrives, up to kWindow. A piece is asked for again
//
//   at once      when one that was asked for after it has arrived: pieces arrive in the order of the
//                requests, so it is lost, or was damaged;
//   in silence   when nothing has arrived for a retry time, only the one that was asked for first.
//                The link may just be busy, and every copy would make it busier.
//
// The retry time follows from how long pieces take from request to arrival: the smoothed time plus
// four times its smoothed deviation. It doubles in silence. What was asked for twice is not
// measured, for nobody knows which request was answered.
//
// Source: RFC 6298. Pure: the caller knows what time it is, and which pieces are there.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace ladder {

class PieceRequests {
 public:
  static constexpr std::int64_t kWindow = 16;

  explicit PieceRequests(std::int64_t num_pieces) : num_pieces_(num_pieces) {}

  // The pieces to ask for now. Call it whenever a piece has arrived, and after retry_s() without
  // one.
  std::vector<std::int64_t> due(double now_s, const std::function<bool(std::int64_t)>& has_piece);
  double retry_s() const { return retry_s_; }

 private:
  struct Asked {
    std::int64_t piece;
    double at_s;
    bool is_again;
  };
  std::vector<std::int64_t> note_arrivals(double now_s,
                                          const std::function<bool(std::int64_t)>& has_piece);
  void measure(double seconds);

  std::int64_t num_pieces_;
  std::int64_t next_ = 0;  // the first piece that was never asked for
  std::int64_t window_ = 1;
  std::vector<Asked> asked_;  // and not there yet, in the order of the requests
  double since_s_ = 0;        // the last arrival, or the request that one waits for
  double retry_s_ = 0.2;
  double smoothed_s_ = 0, deviation_s_ = 0;
};

}  // namespace ladder
