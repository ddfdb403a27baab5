// Ids of requests that are unique across cache domains.
//
// Requests of different cache domains may have the same name, and no client may notice the other
// request. A router therefore identifies a request by cache domain and name. Clients see the name
// alone.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "base/ids.h"

namespace baton {

// Returns the router's id of a request. REQUIRES: `name` has no '/'.
inline RequestId ScopedId(const std::string& cache_domain, const std::string& name) {
  return cache_domain.empty() ? name : absl::StrCat(cache_domain, "/", name);
}
inline std::string NameOf(const RequestId& id) { return id.substr(id.rfind('/') + 1); }

}  // namespace baton
