// JSON as Ladder reads and writes it: doubles read back to the same bits, values that are not
// finite are null, and no two readers make different things of a file: an object with the same key
// twice is refused, of which most readers silently keep the last value.
//
// Only declared here, because what defines it costs each source a second of compiling. Who builds
// or reads a value includes <nlohmann/json.hpp>.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ladder {

// Keys keep the order in which they are written. Lookups and insertions take time linear in an
// object's number of keys.
using Json = nlohmann::ordered_json;
// For what other programs write, however large: keys are sorted, and found in logarithmic time.
using SortedJson = nlohmann::json;
// A member of a struct of which few look into the value. A null pointer: not known.
using KnownJson = std::shared_ptr<const Json>;

// Throws CheckError with `origin` (a file's name) and the place of the error. Refuses more than 32
// levels or `most_members` keys in one object: Ladder writes no such file, and no file may keep a
// reader busy for hours.
Json parse_json(std::string_view text, const std::string& origin, std::size_t most_members = 1000);
// Parses like parse_json(), with 100 levels and any number of keys.
SortedJson parse_sorted_json(std::string_view text, const std::string& origin);

// Returns the member `name`, a count: a whole number from 0 to 2^53. Throws CheckError with
// `origin` and the value for anything else.
std::int64_t count_in(const Json& object, const char* name, const std::string& origin);

// As text, on one line or indented. Bytes that are not UTF-8, as in the sample of a byte model,
// become U+FFFD.
std::string to_text(const Json& json, int indent = -1);

// At most as much of a text as fits on a few lines of a terminal.
std::string excerpt(std::string_view text);

// The JSON library's error messages in our own words:
// "[json.exception.parse_error.101] parse error at line 1, column 2: …" becomes "line 1, column 2:
// …".
std::string json_problem(std::string_view message);

// The settings in an object of a JSON file. Messages say which setting of which file is wrong.
// Lifetime: the object outlives this and what is returned.
class JsonSettings {
 public:
  // `where` is the object's name in the file, for messages; empty for the file itself.
  JsonSettings(const SortedJson& object, std::string file, std::string where);

  bool has(const char* name) const;  // and it is not null
  // The member, which must be there.
  const SortedJson& member(const char* name) const;
  JsonSettings object(const char* name) const;
  std::vector<JsonSettings> objects(const char* name) const;  // of a list
  std::string text(const char* name) const;
  bool flag(const char* name, bool otherwise) const;  // `otherwise` if it is missing or null
  // Throws CheckError naming the setting and its value if it is another one. A missing member is
  // null.
  void only(const char* name, std::initializer_list<SortedJson> supported) const;
  const std::string& place() const { return place_; }  // "FILE: model"

 private:
  const SortedJson& object_;
  std::string file_, where_, place_;
};

}  // namespace ladder
