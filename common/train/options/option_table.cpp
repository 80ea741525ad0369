#include "common/train/options/option_table.hpp"

#include <CLI/CLI.hpp>

namespace ladder {

OptionTable::OptionTable(CLI::App& parser, TrainOptions& options) : parser_(parser) {
  declare_common_options(*this, options);
  options.own.declare(*this);
}

CLI::Option* OptionTable::add_to_parser(const Texts& texts,
                                        const std::function<bool(const std::string&)>& assign) {
  const auto read = [&parser = parser_, name = texts.name, assign](const std::string& text) {
    const CLI::Option& option = *parser.get_option(name);
    if (option.get_expected_min() > 0) check_is_value(parser, option, text);
    check_usage(assign(text), name, " is '", excerpt(text), "', it must be ",
                expected_value(option));
  };
  return parser_.add_option_function<std::string>(texts.name, read, texts.help)
      ->type_name(texts.type)
      ->default_str(texts.current)
      ->group(heading_);
}

OptionTable::Row OptionTable::add(const Texts& texts, const Json& value,
                                  const std::function<bool(const std::string&)>& assign) {
  add_to_parser(texts, assign);
  values_[texts.name + 2] = values_under_[heading_][texts.name + 2] = value;
  return {*this, texts.name + 2};
}

OptionTable::Row OptionTable::add_or_alone(const Texts& texts, const Json& value,
                                           const std::function<bool(const std::string&)>& assign) {
  add_to_parser(texts, assign)->expected(0, 1);  // CLI11 would take a default for the value
  values_[texts.name + 2] = values_under_[heading_][texts.name + 2] = value;
  return {*this, texts.name + 2};
}

OptionTable::Row OptionTable::flag(const char* name, bool& member, const char* help) {
  const auto assign = [&member](const std::string& text) {
    return parse_value(text.empty() ? "true" : text, member);
  };
  return add_or_alone({name, concat("[", kBoolType, "]"), "", help}, member, assign);
}

void OptionTable::moved(const char* name, const char* where) {
  const auto refuse = [name, where](const std::string&) {
    throw UsageError(concat("unknown option ", name, ": ", where));
  };
  parser_.add_option_function<std::string>(name, refuse, "")
      ->expected(0, 1)
      ->group("");  // not in --help
}

void check_ranges(TrainOptions options) {
  CLI::App parser;
  OptionTable(parser, options).check_ranges();
}

std::set<std::string> options_that_change_no_bits(TrainOptions options) {
  CLI::App parser;
  return OptionTable(parser, options).changes_no_bits();
}

Json to_json(const TrainOptions& options) {
  TrainOptions copy = options;
  CLI::App parser;
  return OptionTable(parser, copy).values();
}

Json model_to_json(const TrainOptions& options) {
  TrainOptions copy = options;
  CLI::App parser;
  return OptionTable(parser, copy).values_under(kModelHeading);
}

}  // namespace ladder
