// All options of a trainer: name, member, the values that it may have, help. One table serves the
// parser, --help, --print-config, the report, the checks of single values, and the question whether
// a resumed run may change an option.
//
// Common options are declared in common_options.cpp, a step's own where the step is:
//
//   void BucketOptions::declare(OptionTable& table) {
//     table.heading("Buckets");
//     table.value("--bucket-mb", capacity_mb, "capacity of a gradient bucket in MiB").changes_no_bits();
//   }
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/core/json.hpp"
#include "common/train/options/option_values.hpp"
#include "common/train/options/options.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ladder {

class OptionTable {
 public:
  // The common options and the step's own, bound to the members of `options`. Parser and options
  // outlive the table.
  OptionTable(CLI::App& parser, TrainOptions& options);

  using Value = std::variant<bool, std::int64_t, std::uint64_t, double, std::string>;
  struct Row {
    std::string heading, name;  // without the dashes
    Value value;                // that it had when it was declared
    bool is_harmless = false;
    const char* companion = nullptr;
    bool (*has_effect)(const TrainOptions&) = nullptr;
    // It decides where results go, what is shown or measured, or who computes what: never a bit. Of
    // any other option, a run that resumes with another value says so, because it does not continue
    // as the old one would have.
    void changes_no_bits() { is_harmless = true; }
    // It has an effect only with another option, `with` ("--optimizer adamw"), which `is_given`
    // finds. Elsewhere a value is refused, unless it is the default, as in what --print-config
    // prints.
    Row& only(const char* with, bool (*is_given)(const TrainOptions&)) {
      companion = with;
      has_effect = is_given;
      return *this;
    }
  };

  void heading(const char* text) { heading_ = text; }  // of the rows that follow, in --help

  // Each returns the row, until the next one.
  template <class Member>
  Row& value(const char* name, Member& member, const char* help) {
    const auto assign = [&member](const std::string& text) { return parse_value(text, member); };
    return add({name, type_name<Member>(), default_text(member), help}, member, assign);
  }
  template <class Number>
  Row& number(const char* name, Number& member, const std::type_identity_t<Range<Number>>& range,
              const char* help) {
    checks_.push_back([&member, range, name] { check_is_in(range, name, member); });
    return value(name, member, help);
  }
  // Like number(), for an option that may be given without a value; then it is `alone`.
  template <class Number>
  Row& number_or_alone(const char* name, Number& member,
                       const std::type_identity_t<Range<Number>>& range,
                       std::type_identity_t<Number> alone, const char* help) {
    checks_.push_back([&member, range, name] { check_is_in(range, name, member); });
    const auto assign = [&member, alone](const std::string& text) {
      member = alone;
      return text.empty() || parse_value(text, member);
    };
    return add({name, concat("[", type_name<Number>(), "]"), "", help}, member, assign,
               /*can_be_alone=*/true);
  }
  // An option of true or false; without a value it means true.
  Row& flag(const char* name, bool& member, const char* help);
  // If two names mean one value, --help shows the first, and the option's value is the second.
  template <class Enum>
  Row& choice(const char* name, Enum& member,
              const std::vector<std::pair<std::string, Enum>>& names, const char* help) {
    std::string shown, current, allowed;
    for (const auto& [text, constant] : names) {
      allowed += (allowed.empty() ? "" : "|") + text;
      if (constant == member && shown.empty()) shown = text;
      if (constant == member) current = text;
    }
    const auto assign = [&member, names](const std::string& text) {
      for (const auto& [known, constant] : names) {
        if (known != text) continue;
        member = constant;
        return true;
      }
      return false;
    };
    return add({name, allowed, shown, help}, current, assign);
  }

  const std::vector<Row>& rows() const { return rows_; }
  // The values of the rows, by name. Those under one heading, if one is given.
  Json values(const std::string& heading = "") const;
  // Throws UsageError naming the first option whose value alone is impossible, whatever the others
  // are.
  void check_ranges() const {
    for (const auto& check : checks_) check();
  }
  // Throws UsageError naming the first of the options given that can have no effect under the
  // others. `options` are those of the table, which had their defaults when it was made.
  void check_effects(const TrainOptions& options) const;

 private:
  struct Texts {
    const char* name;
    std::string type, current;
    const char* help;
  };
  // Takes a value as text, and returns false if it is invalid.
  using Assign = std::function<bool(const std::string&)>;
  Row& add(const Texts& texts, const Value& value, const Assign& assign, bool can_be_alone = false);

  CLI::App& parser_;
  std::vector<Row> rows_;
  std::vector<std::function<void()>> checks_;
  std::string heading_;
};

// The heading of all options that shape the model.
inline constexpr const char* kModelHeading = "Model";

// Declares the options that all steps have.
void declare_common_options(OptionTable& table, TrainOptions& options);

// What the option expects, for messages: "a whole number, for example --steps 200".
std::string expected_value(const CLI::Option& option);

// Throws UsageError naming the first option whose value alone is impossible.
void check_ranges(const TrainOptions& options);

// The names, without the dashes, of options that change no bit of a result.
std::set<std::string> options_that_change_no_bits(const TrainOptions& options);

}  // namespace ladder
