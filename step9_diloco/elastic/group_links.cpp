#include "step9_diloco/elastic/group_links.hpp"

#include <algorithm>

#include "common/core/byte_hash.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

std::optional<CurveKeys> keys_of(const ElasticOptions& options) {
  if (options.key_file.empty()) return {};
  return read_curve_keys(options.key_file);
}

// Ten heartbeats may be late or lost before a worker counts as lost.
MembershipOptions membership_options(const ElasticOptions& options, const Newness& newness,
                                     const std::string& address, const std::string& fingerprint) {
  const double shortest_s = std::min(options.join_timeout_s, options.round_timeout_s);
  const double beat_s = std::clamp(shortest_s / 20, 0.01, 1.0);
  return {.worker = options.worker,
          .newness = newness,
          .address = address,
          .fingerprint = fingerprint,
          .rules = {.num_workers = options.num_workers,
                    .min_workers = options.min_workers,
                    .stale_s = 10 * beat_s,
                    .join_timeout_s = options.join_timeout_s},
          .beat_s = beat_s};
}

std::string fingerprint_of(const ElasticOptions& options, const WorkerState& state,
                           const std::string& description) {
  ByteHash hash;
  for (const auto* list : {&state.shared, &state.own})
    for (const NamedTensor& named : *list) {
      const std::string text =
          concat(named.name, " ", named.tensor.sizes(), " ", named.tensor.scalar_type(), ";");
      hash.update(text.data(), text.size());
    }
  return concat("'", description, "' (tensors ", hash.digest().substr(0, 8), "), --workers ",
                options.num_workers, ", --min-workers ", options.min_workers, ", --join-timeout ",
                options.join_timeout_s, ", --round-timeout ", options.round_timeout_s, ", --merge ",
                options.merge == Merge::kEqual ? "equal" : "tokens");
}

std::int64_t values_bytes(const WorkerState& state) {
  // The global copy: no fragment is larger. Of a few values, each slice may be as long as all.
  std::size_t most = 4096;
  for (const NamedTensor& named : state.shared) most = std::max(most, named.tensor.nbytes());
  return static_cast<std::int64_t>(most);
}

}  // namespace

GroupLinks::GroupLinks(const ElasticOptions& options, const WorkerState& state,
                       const QuorumNumber& last_quorum, const std::string& description,
                       const Log& log)
    : lighthouse(host_port(options.lighthouse)),
      keys(keys_of(options)),
      store(lighthouse, std::clamp(options.round_timeout_s / 2, 0.5, 5.0), Seal(keys), log),
      mailbox(values_bytes(state), snapshot_bytes(state)),
      server(options.worker),
      messenger(
          keys, own_host(lighthouse.host, lighthouse.port),
          [this](const Message& message) { receive(message); }, log),
      membership(
          membership_options(options, {last_quorum, state.outer_steps()}, messenger.address(),
                             fingerprint_of(options, state, description)),
          store, log) {}

void GroupLinks::receive(const Message& message) {
  if (message.kind == MessageKind::kRequest) {
    server.answer(message, messenger);
  } else {
    mailbox.deliver(message);
  }
}

}  // namespace ladder
