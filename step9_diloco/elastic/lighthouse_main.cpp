// elastic_lighthouse [--port N] [--public] [--elastic-key FILE]   serves until SIGINT or SIGTERM
// elastic_lighthouse --make-key FILE                              writes the keys for --elastic-key
#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>

#include "common/core/check.hpp"
#include "common/train/run_main.hpp"
#include "common/train/stop_signal.hpp"
#include "step9_diloco/elastic/lighthouse.hpp"
#include "step9_diloco/elastic/listener.hpp"

namespace ladder {
namespace {

constexpr std::chrono::milliseconds kPeriod(3);

struct Settings {
  int port = 29400;
  bool is_public = false;
  std::string key_file, new_key_file;
};

void serve(const Settings& settings) {
  std::optional<CurveKeys> keys;
  if (!settings.key_file.empty()) keys = read_curve_keys(settings.key_file);
  const StopSignal stop;
  const auto log = [](const std::string& message) {
    std::cout << "lighthouse: " << message << std::endl;
  };
  LighthouseServer lighthouse(settings.port, settings.is_public, log, keys);
  while (!StopSignal::was_raised()) {
    try {
      lighthouse.serve(kPeriod);
    } catch (const std::exception& error) {
      log(concat("carries on after: ", error.what()));
    }
  }
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  using namespace ladder;
  Settings settings;
  CLI::App app(
      "The lighthouse of step 9's workers that may die: where they find one another. It serves "
      "until Ctrl-C; workers join with --elastic HOST:PORT.",
      "elastic_lighthouse");
  app.add_option("--port", settings.port, "listens there; 0: any free port, which it prints")
      ->type_name("N")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--elastic-key", settings.key_file,
                 "hears only workers with the same --elastic-key. Without it, whoever reaches the "
                 "port can interfere: on this machine, all its users")
      ->type_name("FILE");
  app.add_flag("--public", settings.is_public,
               "on all IPv4 addresses instead of the loopback only; needs --elastic-key. Keep the "
               "port behind a firewall: strangers can still delay the run");
  app.add_option("--make-key", settings.new_key_file,
                 "writes a pair of keys for --elastic-key, and ends")
      ->type_name("FILE");
  return run_command(app, argc, argv, [&] {
    check_usage(!settings.is_public || !settings.key_file.empty(),
                "--public needs --elastic-key: without a key, everybody in the network could "
                "interfere (elastic_lighthouse --make-key FILE writes one)");
    settings.new_key_file.empty() ? serve(settings) : write_curve_keys(settings.new_key_file);
    return kExitDone;
  });
}
