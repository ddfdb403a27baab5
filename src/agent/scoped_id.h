// Requests of different tenants may have the same name, and neither is told that the other exists. So a router calls a
// request by tenant and name; clients and workers see the name alone.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "base/ids.h"

namespace baton {

// `tenant`: the cache salt. REQUIRES: the name has no '/'.
inline RequestId ScopedId(const std::string& tenant, const std::string& name) {
  return tenant.empty() ? name : absl::StrCat(tenant, "/", name);
}
inline std::string NameOf(const RequestId& id) { return id.substr(id.rfind('/') + 1); }

}  // namespace baton
