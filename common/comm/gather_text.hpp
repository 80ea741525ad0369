// Exchanges text between ranks: reports, options.
#pragma once

#include <string>
#include <vector>

#include "common/comm/communicator.hpp"

namespace ladder {

// Returns the texts of all ranks, in rank order, on every rank. Collective, blocking.
std::vector<std::string> all_gather_text(const std::string& text, Communicator& comm,
                                         CallSite where = CallSite::current());

}  // namespace ladder
