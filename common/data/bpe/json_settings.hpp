// The settings in an object of a JSON file. Messages say which setting of which file is wrong.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

namespace ladder {

// Lifetime: the object outlives this and what is returned.
class JsonSettings {
 public:
  // `where` is the object's name in the file, for messages; empty for the file itself.
  JsonSettings(const nlohmann::json& object, std::string file, std::string where);

  // The member, which must be there.
  const nlohmann::json& member(const char* name) const;
  JsonSettings object(const char* name) const;
  std::string text(const char* name) const;
  bool flag(const char* name, bool otherwise) const;  // `otherwise` if it is missing or null
  // Throws CheckError naming the setting and its value if it is another one. A missing member is
  // null.
  void only(const char* name, std::initializer_list<nlohmann::json> supported) const;
  const std::string& place() const { return place_; }  // "FILE: model"

 private:
  const nlohmann::json& object_;
  std::string file_, where_, place_;
};

}  // namespace ladder
