// TLS credentials for gRPC servers and channels.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "rpc/grpc_server.h"
#include "rpc/tls_files.h"

namespace baton {

// Checks the files of a process that accepts connections. `flags` is the common prefix of the
// flags, for example "peer" for "peer-cert". Returns INVALID_ARGUMENT with the name of the flag for
// each of these:
// - A required file is not given.
// - A file cannot be read or is not PEM.
// - The key does not belong to the certificate.
absl::Status Check(const TlsFiles& files, const std::string& flags);

// Like Check, for a process that only dials. The process may have an authority without a
// certificate of its own.
absl::Status CheckForClient(const TlsFiles& files, const std::string& flags);

// Returns server credentials. Without files, connections are not encrypted. With an authority, the
// server accepts only clients whose certificate this authority signed.
std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const TlsFiles& files);

// Returns a factory for clients' channels. An empty `authority` gives unencrypted channels, like
// DialTcp. Otherwise `authority` is a PEM file, and it must have signed the server's certificate.
ChannelFactory DialServer(const std::string& authority);

// Returns a factory of channels. Without files, the channels are not encrypted, like those of
// DialTcp. With files, the server must show a certificate for the host name or IP address that is
// dialled. The channel shows this process's certificate if there is one.
ChannelFactory DialBy(const TlsFiles& files, const grpc::ChannelArguments& arguments = InternalChannelArguments());

}  // namespace baton
