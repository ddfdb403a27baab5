// The router that a command of `baton` calls.
#pragma once

#include <string>

namespace baton {

struct ServerOptions {
  std::string address = "127.0.0.1:7070";
  std::string key;        // API key; empty: none
  std::string authority;  // PEM file that signed the router's certificate; empty: no encryption
};

}  // namespace baton
