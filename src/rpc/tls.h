// Certificates: what a process shows others, and whom it trusts.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "rpc/grpc_server.h"
#include "rpc/tls_files.h"

namespace baton {

// INVALID_ARGUMENT: a file that is missing (`flags` names the options: "peer"), cannot be read or is not PEM, or a key
// that is not the certificate's.
absl::Status Check(const TlsFiles& files, const std::string& flags);

// The same of a process that only dials: it may trust an authority and show nothing.
absl::Status CheckForClient(const TlsFiles& files, const std::string& flags);

// Without files: no encryption. With an authority, callers must show a certificate that it signed.
std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const TlsFiles& files);

// For clients: like DialTcp, and encrypted where there is an authority, a PEM file, that signed the server's
// certificate.
ChannelFactory DialServer(const std::string& authority);

// Like DialTcp, and encrypted where there are files: both sides show certificates, and the other side's must be for the
// host name or IP address that is dialled.
ChannelFactory DialBy(const TlsFiles& files, const grpc::ChannelArguments& arguments = InternalChannelArguments());

}  // namespace baton
