// A router that asks for keys, and its HTTP port.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "http_client.h"
#include "shell/router_cluster.h"
#include "temp_dir.h"

namespace baton {

// The router has one key, of the tenant "alpha". Pages of `origins` may call it.
struct KeyedRouter {
  TempDir directory;
  NewKey key = DrawKey();
  Cluster c;

  explicit KeyedRouter(std::vector<std::string> origins = {}) {
    directory.Write("keys.toml", "[alpha]\nkeys = [\"" + key.hash + "\"]\n");
    c.options.keys = directory / "keys.toml";
    c.options.allow_origins = std::move(origins);
    c.Serve(ByteModel("bytes"));
  }
  HttpAnswer Ask(const std::string& line, const std::string& headers = "") {
    HttpClient client(c.node->http()->address());
    client.Send(line + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
    return client.Read();
  }
  // The header with the key.
  std::string Mine() const { return "authorization: Bearer " + key.key + "\r\n"; }
};

}  // namespace baton
