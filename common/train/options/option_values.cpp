#include "common/train/options/option_values.hpp"

#include <CLI/CLI.hpp>
#include <map>

namespace ladder {

std::string expected_value(const CLI::Option& option) {
  static const std::map<std::string, std::string> kWords = {
      {"TEXT", "text"},
      {"FILE", "a file name"},
      {"FLOAT", "a number"},
      {"INT", "a whole number"},
      {"UINT", "a whole number from 0 to 18446744073709551615"}};
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

void check_is_value(const CLI::App& app, const CLI::Option& option, const std::string& text) {
  const bool is_option =
      text.starts_with("--") && app.get_option_no_throw(text.substr(0, text.find('='))) != nullptr;
  check_usage(!is_option && (!text.empty() || option.get_type_name() == "TEXT"), option.get_name(),
              " needs a value: ", expected_value(option));
}

}  // namespace ladder
