#include "common/testing/examination.hpp"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <sstream>
#include <utility>

#include "common/core/memory_ledger.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/plain_words.hpp"

namespace ladder {
namespace {

// Up to this relative distance, results in this type may be equal but for rounding.
double rounding_of(at::ScalarType type) {
  return type == at::kBFloat16 ? 1e-2 : type == at::kHalf ? 1e-3 : 1e-5;
}

using Lines = std::vector<std::string>;

void add_new(Lines& lines, const std::string& line) {
  if (std::count(lines.begin(), lines.end(), line) == 0) lines.push_back(line);
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Returns the lines of all ranks, on every rank.
std::vector<Lines> gather_lines(const Lines& own, Communicator& comm) {
  std::string text;
  for (const std::string& line : own) text += line + "\n";
  std::vector<Lines> of_ranks;
  for (const std::string& of_rank : all_gather_text(text, comm)) {
    std::istringstream stream(of_rank);
    of_ranks.emplace_back();
    for (std::string line; std::getline(stream, line);) of_ranks.back().push_back(line);
  }
  return of_ranks;
}

bool is_unwritten(const CheckError& error) {
  return std::string(error.what()).starts_with("not implemented");
}

}  // namespace

void Examination::fault(const std::string& what) {
  if (!says_only_first_ || found_.empty()) add_new(found_, one_line(prefix_ + what));
}

void Examination::expect_number(const std::string& what, double found, double wanted) {
  if (found == wanted) return;
  const bool is_rounded = std::abs(found - wanted) <= rounding_of(at::kDouble) * std::abs(wanted);
  fault(concat(what, " is ", digits(found), ", not ", digits(wanted), is_rounded ? "; " : "",
               is_rounded ? kRoundingHint : ""));
}

void Examination::expect(const std::string& what, const at::Tensor& found,
                         const at::Tensor& wanted) {
  if (!found.defined()) return fault(what + " is undefined");
  if (found.sizes() != wanted.sizes() || found.scalar_type() != wanted.scalar_type()) {
    return fault(concat(what, " is ", found.scalar_type(), found.sizes(), ", not ",
                        wanted.scalar_type(), wanted.sizes()));
  }
  if (found.equal(wanted)) return;
  const at::Tensor is_wrong = found.ne(wanted).flatten();
  const auto first = is_wrong.nonzero()[0].item<std::int64_t>();
  const auto element = [first](const at::Tensor& of) {
    const at::Tensor value = of.flatten()[first];
    if (!of.is_floating_point()) return std::to_string(value.item<std::int64_t>());
    return of.scalar_type() == at::kFloat ? digits(value.item<float>())
                                          : digits(value.item<double>());
  };
  const bool is_rounded = found.is_floating_point() &&
                          relative_distance(found, wanted) <= rounding_of(found.scalar_type());
  fault(concat(what, " is ", element(found), ", not ", element(wanted), " (element ", first, "; ",
               is_wrong.sum().item<std::int64_t>(), " of ", is_wrong.numel(), " differ)",
               is_rounded ? "; " : "", is_rounded ? kRoundingHint : ""));
}

void Examination::expect_error(const std::string& what, const std::vector<std::string>& words,
                               const std::function<void()>& call) {
  try {
    call();
  } catch (const Disagreement&) {
    throw;
  } catch (const CheckError& error) {
    if (is_unwritten(error)) throw;
    for (const std::string& word : words) {
      if (std::string(error.what()).find(word) == std::string::npos)
        fault(concat(what, " says '", error.what(), "', without '", word, "'"));
    }
    return;
  }
  fault(what + " says nothing; expected a CheckError");
}

void Examination::expect_takes_at_most(const std::string& who, std::int64_t most,
                                       const std::string& hint, const std::function<void()>& act) {
  const std::int64_t before = read_memory().total_live_bytes;
  reset_memory_peaks();
  act();
  const std::int64_t found = read_memory().peak_bytes - before;
  if (found > most)
    fault(concat(who, " takes ", found, " bytes of memory, not ", most, " at most: ", hint));
}

std::string Examination::begin(const std::string& what) {
  const std::string name = part_.empty() ? what : part_ + ", " + what;
  prefix_ = part_.empty() ? beginning_ : name + ": ";
  set_current_check(name);
  return name;
}

void Examination::attempt(const std::string& what, const std::function<void()>& act) {
  const auto note = [&](Lines& lines, const std::string& message) {
    add_new(lines, one_line(concat(what, ": ", message)));
  };
  try {
    act();
  } catch (const Disagreement& error) {
    note(disagreements_, error.what());
  } catch (const CheckError& error) {
    if (!is_unwritten(error)) {
      note(thrown_, error.what());
    } else if (part_.empty()) {
      add_new(thrown_, error.what());
    } else {
      add_new(found_, concat(part_, ", ", file_, ", is not complete yet: ", error.what()));
    }
  } catch (const std::exception& error) {
    note(thrown_, in_plain_words(error));
  } catch (...) {
    note(thrown_,
         "the code throws something that is no std::exception; an error here is a "
         "CheckError, which check() throws");
  }
}

// An exception on one rank may be why the others found faults. For faults, one rank's lines are
// enough. They are those of the rank that found most: if sums differ between ranks, one of them may
// be right, and its few lines would not explain enough.
void Examination::conclude() {
  prefix_.clear();
  Lines said;
  const auto say = [&](std::size_t rank, const std::string& text) {
    if (std::count(said.begin(), said.end(), text) > 0) return;
    said.push_back(text);
    add_new(faults_, comm_.size() > 1 ? concat("rank ", rank, ": ", text) : text);
  };
  for (Lines* const lines : {&thrown_, &disagreements_}) {
    const std::vector<Lines> of_ranks = gather_lines(std::exchange(*lines, {}), comm_);
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
      for (const std::string& line : of_ranks[rank]) say(rank, line);
    }
  }
  const std::vector<Lines> of_ranks = gather_lines(std::exchange(found_, {}), comm_);
  const auto most = std::max_element(
      of_ranks.begin(), of_ranks.end(),
      [](const Lines& lines, const Lines& others) { return lines.size() < others.size(); });
  for (const std::string& line : *most)
    say(static_cast<std::size_t>(most - of_ranks.begin()), line);
}

std::vector<std::string> faults_of_groups(const std::vector<std::string>& own, Communicator& comm) {
  for (const Lines& lines : gather_lines(own, comm)) {
    if (!lines.empty()) return lines;
  }
  return {};
}

std::vector<std::string> faults_in_levels(const std::vector<Level>& levels) {
  for (std::size_t i = 0; i < levels.size(); ++i) {
    Lines faults = levels[i].faults();
    for (std::string& line : faults)
      line = concat("level ", i + 1, " of ", levels.size(), ", ", levels[i].name, ": ", line);
    if (!faults.empty()) return faults;
  }
  return {};
}

}  // namespace ladder
