#include "common/testing/examination.hpp"

#include <algorithm>
#include <exception>
#include <sstream>
#include <utility>

#include "common/comm/gather_text.hpp"

namespace ladder {
namespace {

void add_new(std::vector<std::string>& lines, std::string line) {
  if (std::count(lines.begin(), lines.end(), line) == 0) lines.push_back(std::move(line));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

void Examination::fault(const std::string& what) {
  add_new(found_, concat("rank ", comm_.rank(), ": ", what));
}

void Examination::expect(const std::string& what, const at::Tensor& found,
                         const at::Tensor& wanted) {
  if (found.equal(wanted)) return;
  const at::Tensor is_wrong = found.ne(wanted).flatten();
  const auto first = is_wrong.nonzero()[0].item<std::int64_t>();
  std::ostringstream line;
  line.precision(9);
  line << what << " is " << found.flatten()[first].item<double>() << ", not "
       << wanted.flatten()[first].item<double>() << " (element " << first << "; "
       << is_wrong.sum().item<std::int64_t>() << " of " << is_wrong.numel() << " differ)";
  fault(line.str());
}

void Examination::expect_error(const std::string& what, const std::vector<std::string>& words,
                               const std::function<void()>& call) {
  try {
    call();
  } catch (const CheckError& error) {
    for (const std::string& word : words) {
      if (std::string(error.what()).find(word) == std::string::npos)
        fault(concat(what, " says '", error.what(), "', without '", word, "'"));
    }
    return;
  }
  fault(what + " says nothing, a CheckError is wanted");
}

void Examination::attempt(const std::string& what, const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    fault(concat(what, ": ", error.what()));
  }
}

// Where the ranks' sums differ, one of them may be right: its few lines would not say enough.
void Examination::conclude() {
  std::string own;
  for (const std::string& line : std::exchange(found_, {})) own += line + "\n";
  std::vector<std::string> most;
  for (const std::string& text : all_gather_text(own, comm_)) {
    std::vector<std::string> lines = lines_of(text);
    if (lines.size() > most.size()) most = std::move(lines);
  }
  for (std::string& line : most) add_new(faults_, std::move(line));
}

}  // namespace ladder
