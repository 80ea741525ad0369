// Judges a loop of step 1: what it computes, holds and sends, the trainings show. No training shows a
// wait() that comes too late, because our comm hook makes backward wait. The spans of a trace do.
#include <string_view>

#include "common/core/trace.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/temp_folder.hpp"
#include "common/train/start.hpp"
#include "step0_single_gpu/judge/cases.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step1_ddp_reference/train.hpp"

namespace ladder {
namespace step1 {
namespace {

// Whether the gradients are read between a backward and its wait(): first by their norm.
bool reads_too_early(const TraceLog& log) {
  bool has_waited = true;
  for (const TracedSpan& span : log.spans()) {
    const std::string_view name = span.name;
    if (name == "backward") has_waited = false;
    if (name == "wait") has_waited = true;
    if (name == "norm" && !has_waited) return true;
  }
  return false;
}

std::vector<std::string> faults_of_order(Communicator& comm) {
  static const TempFolder folder;
  const CaseTexts texts(all_gather_text(folder.path().string(), comm)[0]);
  Examination examination(comm);
  examination.examine("the order of a step", [&](Communicator&) {
    TraceLog log;
    const TraceScope scope(&log);
    train(options_for(trainer(), options_of(cases().front(), texts)), comm);
    check(!reads_too_early(log),
          "the gradient norm is taken before wait(): only a backend that blocks has summed the "
          "gradients by then");
  });
  return examination.faults();
}

}  // namespace
}  // namespace step1

std::vector<std::string> judge_linked(Communicator& comm) {
  Judge judge({.trainer = step1::trainer(), .sends_in_place = false}, comm);
  return judge.all_cases_are_right() ? step1::faults_of_order(comm) : judge.faults();
}

}  // namespace ladder
