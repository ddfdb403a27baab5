// The router that a command of `baton` calls.
#pragma once

#include <string>

namespace baton {

struct ServerOptions {
  std::string address = "127.0.0.1:7070";
  std::string key;  // API key; empty for none
  // PEM file with the authority that signed the router's certificate. Empty for no encryption.
  std::string authority;
};

}  // namespace baton
