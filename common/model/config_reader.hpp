// The settings of a config.json, which says what model the weights of a Hugging Face folder are.
//
// Trusts nothing: each function throws CheckError with the file's name, the setting and its value
// if that is not what it must be. A setting that is missing has the value that transformers' own
// class gives it, which the caller names. What nobody has asked for is refused in the end, unless
// it changes no model's function: so the settings that a family knows are those that it reads.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "common/core/json.hpp"
#include "common/model/model_options.hpp"
#include "common/model/rope_scaling.hpp"

namespace ladder {

// What a config.json says of a model.
struct ModelConfig {
  ModelOptions model;        // family and shape; `context` is the longest that the model can have
  bool has_dropout = false;  // it was trained with dropout
  // Tokens that attention reaches back over, its own among them, or 0: all. In texts that are no
  // longer, a window changes nothing.
  std::int64_t window = 0;
};

class ConfigReader {
 public:
  // What to do about a model that Ladder does not compute.
  static constexpr const char* kAdvice =
      "start from another model, or train this one with transformers";

  // `path` is the file's name, for messages.
  ConfigReader(const std::string& text, const std::string& path);

  // Whether it is there, and not null.
  bool has(const char* name);
  // A number of things, from 1 to 2^31 - 1. Null is refused, unless it stands for a value.
  std::int64_t extent(const char* name, std::int64_t if_missing);
  std::int64_t extent(const char* name, std::int64_t if_missing, std::int64_t if_null);
  double positive(const char* name, double otherwise);
  bool flag(const char* name, bool otherwise);
  std::string text(const char* name);
  // A setting that must have one of these values, if it is there and not null. `advice` says what
  // to do about another one.
  void only(const char* name, std::initializer_list<SortedJson> values,
            const char* advice = kAdvice);
  // A list of which each text must begin like this, if it is there and not null.
  void only_all(const char* name, const char* begin);
  // Of a list of zeros and ones, one for each of `count` things: N if every Nth is 0, or 0 if none
  // is. Nothing if it is missing or null.
  std::optional<std::int64_t> interval_of_zeros(const char* name, std::int64_t count);
  bool is_one_not_zero(std::initializer_list<const char*> names);
  // Of rotary positions, in both spellings: "rope_theta" with "rope_scaling", and "rope_parameters"
  // with both in it. `theta` is what it is if neither says so.
  struct Rope {
    double theta;
    RopeScaling scaling;
  };
  Rope rope(std::int64_t context, double theta);
  // Settings of which the family makes no use, whatever they are.
  void ignore(std::initializer_list<const char*> names);

  // Throws CheckError naming the first setting that nobody has asked for, of those that could
  // change what the model computes.
  void refuse_unknown(const char* family) const;

  const std::string& path() const { return path_; }

 private:
  const SortedJson* find(const char* name);  // null if it is missing or null
  std::int64_t extent_in(const SortedJson& object, const char* name) const;
  double positive_in(const SortedJson& object, const char* name) const;
  RopeScaling scaling_in(const SortedJson& rope, const std::string& type, const char* where,
                         std::int64_t context) const;

  const std::string path_;
  const SortedJson settings_;
  const JsonSettings reader_;
  std::set<std::string> known_;
};

}  // namespace ladder
