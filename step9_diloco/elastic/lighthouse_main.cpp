// elastic_lighthouse [--port N] …          serves until SIGINT or SIGTERM
// elastic_lighthouse --ask HOST:PORT       prints what the lighthouse there knows
// elastic_lighthouse --make-key FILE       writes the keys for --elastic-key
#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>

#include "common/core/check.hpp"
#include "common/core/stop_signal.hpp"
#include "common/train/options/option_values.hpp"
#include "common/train/run_main.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/elastic/lighthouse.hpp"
#include "step9_diloco/elastic/lighthouse_client.hpp"
#include "step9_diloco/elastic/listener.hpp"

namespace ladder {
namespace {

constexpr std::chrono::milliseconds kPeriod(3);
constexpr double kPatience = 5;  // seconds for an answer
constexpr double kDay = 86400;

struct Arguments {
  int port = 29400;
  int min_workers = 1;
  double join_timeout_s = 60;
  bool is_public = false;
  std::string key_file, new_key_file, asked;
};

std::optional<CurveKeys> keys_of(const Arguments& settings) {
  if (settings.key_file.empty()) return {};
  return read_curve_keys(settings.key_file);
}

void serve(const Arguments& settings) {
  const StopSignal stop;
  const auto log = [](const std::string& message) {
    std::cout << "lighthouse: " << message << std::endl;
  };
  const QuorumRules rules = {.min_workers = settings.min_workers,
                             .stale_s = stale_seconds(settings.join_timeout_s),
                             .join_timeout_s = settings.join_timeout_s};
  LighthouseServer lighthouse(settings.port, settings.is_public, rules, log, keys_of(settings));
  while (!StopSignal::was_raised()) {
    try {
      lighthouse.serve(kPeriod);
    } catch (const std::exception& error) {
      log(concat("carries on after: ", error.what()));
    }
  }
}

void ask(const Arguments& settings) {
  std::cout << LighthouseClient(host_port(settings.asked), keys_of(settings)).status(kPatience);
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  using namespace ladder;
  Arguments settings;
  CLI::App app(
      "The lighthouse of step 9's workers that may die: where they find one another. It serves "
      "until Ctrl-C; workers join with --elastic HOST:PORT.",
      "elastic_lighthouse");  // ./ladder lighthouse calls it
  app.add_option("--port", settings.port, "listens there; 0: any free port, which it prints")
      ->type_name("N")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--min-workers", settings.min_workers,
                 "so many must contribute to an average, not heal or have finished; fewer wait, or "
                 "train on")
      ->type_name("N")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  app.add_option("--join-timeout", settings.join_timeout_s,
                 "seconds that a round waits for a worker that still trains or heals; more than an "
                 "inner step, an evaluation or a save takes")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, kDay))
      ->capture_default_str();
  app.add_option("--elastic-key", settings.key_file,
                 "hears only workers with the same --elastic-key. Without it, whoever reaches the "
                 "port can interfere: on this machine, all its users")
      ->type_name("FILE");
  app.add_flag("--public", settings.is_public,
               "on all IPv4 addresses instead of the loopback only; needs --elastic-key. Keep the "
               "port behind a firewall: strangers can still delay the run");
  app.add_option("--ask", settings.asked,
                 "prints what the lighthouse there knows of each worker, and why there is no "
                 "quorum; and ends")
      ->type_name("HOST:PORT");
  app.add_option("--make-key", settings.new_key_file,
                 "writes a pair of keys for --elastic-key, and ends")
      ->type_name("FILE");
  return run_command(app, argc, argv, [&] {
    check_usage(!settings.is_public || !settings.key_file.empty(),
                "--public needs --elastic-key: without a key, everybody in the network could "
                "interfere (elastic_lighthouse --make-key FILE writes one)");
    if (!settings.new_key_file.empty()) {
      write_curve_keys(settings.new_key_file);
    } else {
      settings.asked.empty() ? serve(settings) : ask(settings);
    }
    return kExitDone;
  });
}
