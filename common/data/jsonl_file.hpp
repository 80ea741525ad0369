// A .jsonl file, which has one JSON object per line; blank lines are skipped. Messages begin with
// file:line.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ladder {

// A line's object, valid only during the visit.
class JsonlObject {
 public:
  JsonlObject(const nlohmann::json& object, std::string place)
      : object_(object), place_(std::move(place)) {}

  // The member's text, or nothing if there is no such member. Throws CheckError if it is not a
  // string.
  std::optional<std::string> text(const std::string& name) const;
  // The member's objects, or nothing if there is no such member. Throws CheckError if it is not a
  // list of objects.
  std::optional<std::vector<JsonlObject>> objects(const std::string& name) const;
  bool has(const std::string& name) const;
  const std::string& place() const { return place_; }  // file:line, and where in the line

 private:
  const nlohmann::json& object_;
  std::string place_;
};

// Calls `visit` with each object, in the order of the lines. Throws CheckError if the file cannot
// be read, or a line is malformed or has a member twice.
void read_jsonl_objects(const std::string& path,
                        const std::function<void(const JsonlObject& object)>& visit);

}  // namespace ladder
