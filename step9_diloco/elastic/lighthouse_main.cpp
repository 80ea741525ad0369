// elastic_lighthouse [--port N] [--public] [--elastic-key FILE]   serves until SIGINT or SIGTERM
// elastic_lighthouse --make-key FILE                              writes the keys for --elastic-key
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "common/core/check.hpp"
#include "common/train/options/option_values.hpp"
#include "common/train/stop_signal.hpp"
#include "step9_diloco/elastic/curve_keys.hpp"
#include "step9_diloco/elastic/lighthouse.hpp"

namespace {

constexpr std::chrono::milliseconds kPeriod(3);
constexpr const char* kUsage =
    "The lighthouse of step 9's workers that may die: where they find one another. It serves "
    "until\n"
    "Ctrl-C; workers join with --elastic HOST:PORT.\n\n"
    "usage: elastic_lighthouse [--port N] [--elastic-key FILE [--public]] | --make-key FILE\n"
    "  --port N            listens there (default 29400; 0: any free port, which it prints)\n"
    "  --elastic-key FILE  hears only workers with the same --elastic-key. Without it, whoever\n"
    "                      reaches the port can interfere: on this machine, all its users\n"
    "  --public            on all IPv4 addresses instead of the loopback only; needs "
    "--elastic-key.\n"
    "                      Keep the port behind a firewall: strangers can still delay the run\n"
    "  --make-key FILE     writes a pair of keys for --elastic-key, and ends\n";

struct Settings {
  int port = 29400;
  bool is_public = false;
  std::string key_file;
};

int port_in(const std::string& text) {
  int port = -1;
  ladder::check_usage(ladder::parse_value(text, port) && port >= 0 && port <= 65535, "--port is '",
                      text, "', it must be a number from 0 to 65535");
  return port;
}

// Nothing if it has done what was asked for.
std::optional<Settings> parse(const std::vector<std::string>& arguments) {
  Settings settings;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool has_value = i + 1 < arguments.size();
    if (arguments[i] == "--help") {
      std::cout << kUsage;
      return {};
    }
    if (arguments[i] == "--public") {
      settings.is_public = true;
    } else if (arguments[i] == "--port" && has_value) {
      settings.port = port_in(arguments[++i]);
    } else if (arguments[i] == "--elastic-key" && has_value) {
      settings.key_file = arguments[++i];
    } else if (arguments[i] == "--make-key" && has_value) {
      ladder::write_curve_keys(arguments[++i]);
      return {};
    } else {
      const bool is_known = arguments[i] == "--port" || arguments[i] == "--make-key" ||
                            arguments[i] == "--elastic-key";
      throw ladder::UsageError(ladder::concat(
          arguments[i], is_known ? " needs a value" : " is no option", "\n", kUsage));
    }
  }
  ladder::check_usage(!settings.is_public || !settings.key_file.empty(),
                      "--public needs --elastic-key: without a key, everybody in the network could "
                      "interfere (elastic_lighthouse --make-key FILE writes one)");
  return settings;
}

int run(const std::vector<std::string>& arguments) {
  const std::optional<Settings> settings = parse(arguments);
  if (!settings) return 0;
  std::optional<ladder::CurveKeys> keys;
  if (!settings->key_file.empty()) keys = ladder::read_curve_keys(settings->key_file);
  const ladder::StopSignal stop;
  const auto log = [](const std::string& message) {
    std::cout << "lighthouse: " << message << std::endl;
  };
  ladder::LighthouseServer lighthouse(settings->port, settings->is_public, log, keys);
  while (!ladder::StopSignal::was_raised()) {
    try {
      lighthouse.serve(kPeriod);
    } catch (const std::exception& error) {
      log(ladder::concat("carries on after: ", error.what()));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const ladder::UsageError& error) {
    std::cerr << "elastic_lighthouse: " << error.what() << "\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "elastic_lighthouse: " << error.what() << "\n";
    return 1;
  }
}
