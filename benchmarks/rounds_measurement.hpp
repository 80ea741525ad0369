// How long DiLoCo's workers wait for one another on a slow link, when computing is paced: an inner
// step sleeps for a given time.
//
// So every worker is exactly as fast as every other, and needs no core of its own. The averages are
// real, by step 9's own code: between threads of this process, where a PacedCommunicator makes them
// as slow as the link, or between ranks over MPI, at its own speed. An inner step polls as the
// hooks of a real one do, in regular intervals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/paced_communicator.hpp"
#include "step9_diloco/diloco_options.hpp"

namespace ladder {

struct PacedRounds {
  DilocoOptions diloco;
  int num_workers = 4;
  std::int64_t numel = 842752;  // of the model: 16 equal tensors
  Link link = {.latency_us = 100, .gbit_per_s = 0.1};
  bool must_be_polled = false;  // the link carries nothing unless somebody asks it to
  double step_s = 0.050;
  int polls_per_step = 20;
  std::int64_t num_steps = 40;

  // How long the link needs for the largest fragment, by the formula of traffic_theory.hpp.
  double transfer_s() const;
  // What a round then waits for: the part of the transfer that the delay does not cover.
  double predicted_wait_s() const;
  double predicted_s() const;  // all steps and all waits
};

// What a worker has done, in seconds since the first step's start.
struct RoundsTimeline {
  struct Flight {
    std::int64_t fragment = 0;
    double start_s = 0;     // of the average
    double awaited_s = 0;   // training stops, to wait for it
    double finished_s = 0;  // the round is over
  };
  std::vector<double> step_starts_s;
  double step_s = 0;
  std::vector<Flight> flights;
  double total_s = 0;

  double waited_s() const;       // in all rounds together
  double median_wait_s() const;  // in a round
};

RoundsTimeline measure(const PacedRounds& rounds);  // on threads: worker 0's
// Measures this rank. Collective. The link and num_workers are the group's own.
RoundsTimeline measure_on(Communicator& comm, const PacedRounds& rounds);

// An SVG with a strip for each of these, named as given, all to the same scale.
std::string draw_svg(const std::vector<std::pair<std::string, RoundsTimeline>>& strips,
                     const std::string& title);

}  // namespace ladder
