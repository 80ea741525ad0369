// The settings of a config.json, which says what model the weights of a Hugging Face folder are.
//
// Trusts nothing: each function throws CheckError with the file's name, the setting and its value
// if that is not what it must be. A setting that is null is not set.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

#include "common/core/json.hpp"

namespace ladder {

class ConfigReader {
 public:
  // `path` is the file's name, for messages.
  ConfigReader(const std::string& text, const std::string& path);

  bool has(const char* name) const { return settings_.contains(name); }
  // A number of things, from 1 to 2^31 - 1.
  std::int64_t extent(const char* name) const;
  std::int64_t extent(const char* name, std::int64_t otherwise) const {
    return has(name) ? extent(name) : otherwise;
  }
  double positive(const char* name, double otherwise) const {
    return has(name) ? positive_in(settings_, name) : otherwise;
  }
  bool flag(const char* name, bool otherwise) const { return reader_.flag(name, otherwise); }
  std::string text(const char* name) const { return reader_.text(name); }
  // A setting that must have one of these values, if it is there.
  void only(const char* name, std::initializer_list<SortedJson> values) const {
    if (has(name)) reader_.only(name, values);
  }
  bool is_one_not_zero(std::initializer_list<const char*> names) const;
  // Both spellings: "rope_theta" with "rope_scaling", and "rope_parameters" with both in it.
  double rope_theta() const;

  const std::string& path() const { return path_; }

 private:
  double positive_in(const SortedJson& object, const char* name) const;

  const std::string path_;
  const SortedJson settings_;  // without those that are null
  const JsonSettings reader_;
};

}  // namespace ladder
