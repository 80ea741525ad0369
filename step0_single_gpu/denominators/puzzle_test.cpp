// The exercise: its reports can be regenerated, read, and told apart by their numbers alone; its
// --grade accepts right answers only; and the program around it.
#include "step0_single_gpu/denominators/puzzle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/testing/process_test.hpp"

namespace ladder::lab {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string file_of(const std::string& name) {
  return std::string(LADDER_LAB) + "/" + name;
}

Json committed(char run) {
  const std::string file = file_of(concat("reports/run_", run, ".json"));
  return parse_json(read_text_file(file), file);
}

// Equal up to what another CPU's rounding does in three steps.
void expect_alike(const Json& a, const Json& b, const std::string& where) {
  if (a.is_number_float() || b.is_number_float()) {
    EXPECT_NEAR(a.get<double>(), b.get<double>(), 2e-4 * std::abs(b.get<double>())) << where;
    return;
  }
  ASSERT_EQ(a.size(), b.size()) << where;
  if (!a.is_structured()) {
    EXPECT_EQ(a, b) << where;
    return;
  }
  for (const auto& [key, value] : b.items()) {
    const Json* member = nullptr;
    if (a.is_array()) member = &a.at(std::stoul(key));
    if (a.is_object() && a.contains(key)) member = &a.at(key);
    ASSERT_NE(member, nullptr) << where << "." << key;
    expect_alike(*member, value, where + "." + key);
  }
}

TEST(Reports, AreThoseThatTheProgramWrites) {
  const std::vector<Mistake> hidden = hidden_mistakes(1);
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const std::string fresh = puzzle_report(kRuns[i], hidden[i], 1);
    expect_alike(committed(kRuns[i]), parse_json(fresh, "a new report"), concat("run ", kRuns[i]));
    for (const Mistake mistake : kAllMistakes)
      EXPECT_EQ(fresh.find(name_of(mistake)), std::string::npos) << "it gives itself away";
  }
}

// The reasoning of SOLUTION.md, on nothing but a report.
Mistake diagnose(const Json& report) {
  const auto number = [&](int cut, const char* series) {
    return report["cuts"][static_cast<std::size_t>(cut)][series][0].get<double>();
  };
  const auto differ = [](double a, double b) { return std::abs(a - b) > 3e-5 * std::abs(b); };
  const auto norm = [&](int cut) { return number(cut, "grad_norms"); };
  const double untrained = std::log(report["config"]["vocab-size"].get<double>());
  if (number(0, "losses") < 0.95 * untrained) return Mistake::kPadding;
  if (differ(norm(1), norm(0))) return Mistake::kMeanOfMeans;
  if (differ(norm(2), norm(1))) return Mistake::kScaledAgain;
  if (differ(norm(3), norm(0))) return Mistake::kLocalWeights;
  const auto validation = [&](std::size_t cut) {
    return report["cuts"][cut]["val_losses"][0]["loss"].get<double>();
  };
  return differ(validation(1), validation(0)) ? Mistake::kValidationMeans : Mistake::kNone;
}

TEST(Reports, SayEnoughForADiagnosis) {
  const std::vector<Mistake> hidden = hidden_mistakes(1);
  for (std::size_t i = 0; i < hidden.size(); ++i)
    EXPECT_STREQ(name_of(diagnose(committed(kRuns[i]))), name_of(hidden[i])) << kRuns[i];
  // Padding is not among the five.
  const std::string padding = puzzle_report('a', Mistake::kPadding, 1);
  EXPECT_EQ(diagnose(parse_json(padding, "padding")), Mistake::kPadding);
}

// The lines of a text that are answers.
std::string answers_in(const std::string& text) {
  std::istringstream lines(text);
  std::string answers;
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 2 && line[1] == ':') answers += line + "\n";
  }
  return answers;
}

std::string right_answers(std::uint64_t seed) {
  std::string text;
  const std::vector<Mistake> hidden = hidden_mistakes(seed);
  for (std::size_t i = 0; i < hidden.size(); ++i)
    text += concat(kRuns[i], ": ", name_of(hidden[i]), "\n");
  return text;
}

TEST(Grades, AcceptsTheSolution) {
  EXPECT_EQ(answers_in(read_text_file(file_of("SOLUTION.md"))), right_answers(1));
  EXPECT_THAT(grade_answers(right_answers(1), 1), IsEmpty());
  EXPECT_THAT(grade_answers("# mine\n\n" + right_answers(1) + "  # the end", 1), IsEmpty());
  EXPECT_THAT(grade_answers(right_answers(2), 2), IsEmpty());
}

// Every wrong name of every run, alone among right ones.
TEST(Grades, RejectsEveryWrongAnswer) {
  const std::vector<Mistake> hidden = hidden_mistakes(1);
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    for (const Mistake mistake : kAllMistakes) {
      if (mistake == hidden[i]) continue;
      std::string text;
      for (std::size_t j = 0; j < hidden.size(); ++j)
        text += concat(kRuns[j], ": ", name_of(j == i ? mistake : hidden[j]), "\n");
      EXPECT_THAT(grade_answers(text, 1),
                  ElementsAre(AllOf(
                      StartsWith(concat("run ", kRuns[i], " is not '", name_of(mistake), "'")),
                      HasSubstr(": then "))));
    }
  }
  EXPECT_FALSE(grade_answers(right_answers(1), 2).empty()) << "another puzzle";
}

TEST(Grades, SaysWhatIsNoAnswer) {
  const std::string right = right_answers(1);
  const std::string four = right.substr(0, right.find("e:"));
  EXPECT_THAT(grade_answers(four, 1), ElementsAre("run e has no answer"));
  EXPECT_THAT(grade_answers(four + "e: wrong\n", 1),
              ElementsAre(StartsWith("run e: 'wrong' is none of right, mean-of-means, ")));
  EXPECT_THAT(grade_answers(right + "e: right\n", 1), ElementsAre("run e has two answers"));
  EXPECT_THAT(grade_answers(right + "f: right\n", 1),
              ElementsAre(StartsWith("'f: right' is no answer")));
  EXPECT_THAT(grade_answers(right + "ab: right\n", 1), ElementsAre(HasSubstr("is no answer")));
  EXPECT_THAT(grade_answers(right + "no idea\n", 1), ElementsAre(HasSubstr("is no answer")));
  EXPECT_THAT(grade_answers("", 1), ::testing::SizeIs(5));
}

class LabProgram : public ProcessTest {
 protected:
  std::string lab(const std::string& arguments, int exit_code,
                  const std::vector<std::string>& says = {}) const {
    return run(concat(one_word(LADDER_DENOMINATORS), " ", arguments), exit_code, says);
  }
};

TEST_F(LabProgram, HelpsAndRefuses) {
  const std::string help = lab("--help", 0);
  for (const Mistake mistake : kAllMistakes) EXPECT_THAT(help, HasSubstr(name_of(mistake)));
  lab("--stepz 3", 2, {"error: ", "--stepz"});
  lab("--steps 0", 2, {"error: --steps is 0, it must be at least 1"});
  lab("--check a.md --grade b", 2, {"error: --check excludes --grade"});
}

// README.md's own table is checked by the command there; scripts/check_readme_commands runs it.
TEST_F(LabProgram, GradesAnswersAndChecksATable) {
  folder_.write("right", right_answers(1));
  lab("--grade right", 0, {"all five answers are right\n"});
  folder_.write("wrong", "a: right\n");
  lab("--grade wrong", 1, {"run b has no answer\n"});
  folder_.write("table.md", "| run | nothing |\n");
  lab("--steps 1 --check table.md", 1, {"the table has 1 lines, not 8"});
}

}  // namespace
}  // namespace ladder::lab
