#include "server/membership.h"

#include <algorithm>
#include <utility>

#include "base/logging.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton {

void Membership::Update() {
  for (Group& group : groups_) {
    std::vector<WorkerAddress> all;
    for (const WorkerName& name : group.names) {
      const std::string key = name.port.empty() ? name.name : StrCat(name.name, ":", name.port);
      Known& known = group.known[key];
      auto found = resolve_(name);
      const std::string error = found.ok() ? "" : std::string(Message(found.status()));
      if (found.ok()) known.addresses = *std::move(found);
      const std::string before = std::exchange(known.error, error);
      if (error != before && !error.empty()) {
        spdlog::warn("{}; its {} workers stay as they were", error, known.addresses.size());
      } else if (error != before) {
        spdlog::info("{} is answered for again, with {} workers", key, known.addresses.size());
      }
      for (const WorkerAddress& address : known.addresses) {
        if (std::find(all.begin(), all.end(), address) == all.end()) all.push_back(address);
      }
    }
    set_(group.role, all);
  }
}

}  // namespace baton
