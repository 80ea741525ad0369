#include "common/train/options/option_table.hpp"

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "common/data/bpe/byte_alphabet.hpp"

namespace ladder {

std::string expected_value(const CLI::Option& option) {
  static const std::map<std::string, std::string> kWords = {
      {"TEXT", "text"},          {"FILE", "a file name"},
      {"FLOAT", "a number"},     {"[FLOAT]", "a number"},
      {"INT", "a whole number"}, {"UINT", "a whole number from 0 to 18446744073709551615"}};
  const std::string type = option.get_type_name();
  const auto words = kWords.find(type);
  std::string expected = words == kWords.end() ? "" : words->second;
  for (const char c : expected.empty() ? type : "") {
    if (c != '[' && c != ']') expected += c == '|' ? " or " : std::string(1, c);
  }
  const std::string& example = option.get_default_str();
  return expected +
         (example.empty() ? "" : concat(", for example ", option.get_name(), " ", example));
}

namespace {

// Throws UsageError if the text is not a value, as in `--steps ""`, or is the name of an option: in
// `--out --steps 3` a value was forgotten, and --steps is not a folder. A text option may be empty.
void check_is_value(const CLI::App& app, const CLI::Option& option, const std::string& text) {
  const bool is_option =
      text.starts_with("--") && app.get_option_no_throw(text.substr(0, text.find('='))) != nullptr;
  check_usage(!is_option && (!text.empty() || option.get_type_name() == "TEXT"), option.get_name(),
              " needs a value: ", expected_value(option));
}

// A path need not be UTF-8, but it is written to JSON, as all options are.
void check_is_utf8(const char* name, const std::string& text) {
  const std::size_t good = well_formed_start(text);
  check_usage(
      good == text.size(), name, " is not UTF-8, as all texts must be: byte ", good + 1, " of ",
      text.size(), " belongs to no character, after '",
      [&] { return excerpt(text.substr(0, good)); }, "'");
}

}  // namespace

OptionTable::OptionTable(CLI::App& parser, TrainOptions& options) : parser_(parser) {
  declare_common_options(*this, options);
  options.own.declare(*this);
}

OptionTable::Row& OptionTable::add(const Texts& texts, const Value& value, const Assign& assign,
                                   bool can_be_alone) {
  const auto read = [=, &parser = parser_, name = texts.name](const std::string& text) {
    const CLI::Option& option = *parser.get_option(name);
    if (!can_be_alone) check_is_value(parser, option, text);
    check_is_utf8(name, text);
    check_usage(assign(text), name, " is '", excerpt(text), "', it must be ",
                expected_value(option));
  };
  // CLI11 would take a default for the value of an option that can be alone.
  parser_.add_option_function<std::string>(texts.name, read, texts.help)
      ->type_name(texts.type)
      ->default_str(can_be_alone ? "" : texts.current)
      ->group(heading_)
      ->expected(can_be_alone ? 0 : 1, 1);
  return rows_.emplace_back(Row{heading_, texts.name + 2, value});
}

Json OptionTable::values(const std::string& heading) const {
  Json found = Json::object();
  for (const Row& row : rows_) {
    if (heading.empty() || heading == row.heading)
      std::visit([&](const auto& value) { found[row.name] = value; }, row.value);
  }
  return found;
}

namespace {

// The table of options that nobody parses.
struct OwnTable {
  explicit OwnTable(const TrainOptions& of) : options(of), table(parser, options) {}
  TrainOptions options;
  CLI::App parser;
  OptionTable table;
};

}  // namespace

void OptionTable::check_effects(const TrainOptions& options) const {
  const OwnTable now(options);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row &row = rows_[i], &given = now.table.rows()[i];
    if (row.has_effect == nullptr || row.has_effect(options) || given.value == row.value) continue;
    const std::string value =
        std::visit([](const auto& each) { return default_text(each); }, given.value);
    check_usage(!options.given.contains(row.name), "--", row.name, " ", excerpt(value),
                " has no effect here: it is for ", row.companion, "; leave it out");
  }
}

OptionTable::Row& OptionTable::flag(const char* name, bool& member, const char* help) {
  const auto assign = [&member](const std::string& text) {
    return parse_value(text.empty() ? "true" : text, member);
  };
  return add({name, concat("[", kBoolType, "]"), "", help}, member, assign, /*can_be_alone=*/true);
}

void check_ranges(const TrainOptions& options) {
  OwnTable(options).table.check_ranges();
}

std::set<std::string> options_that_change_no_bits(const TrainOptions& options) {
  const OwnTable own(options);
  std::set<std::string> names;
  for (const OptionTable::Row& row : own.table.rows())
    if (row.is_harmless) names.insert(row.name);
  return names;
}

Json to_json(const TrainOptions& options) {
  return OwnTable(options).table.values();
}

Json model_to_json(const TrainOptions& options) {
  return OwnTable(options).table.values(kModelHeading);
}

}  // namespace ladder
